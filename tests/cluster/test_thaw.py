"""A machine that stood still as a whole, and goes on when nobody believes in it any more (docs/failure.md)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.cluster.processes import NodeProcess, lease
from tests.cluster.shift import Shift, a_shift, quotas
from tests.servers.postgres import PostgresServer

SETTINGS = {"ROTA_EXECUTOR_SEATS": "2", **lease(3, 0.5)}


def tree(node: NodeProcess) -> list[int]:
    """All processes of a node, the agent first."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = [node.pid]
    for pid in found:
        found += children.get(pid, [])
    return found


async def overlaps(shift: Shift, run_id: int) -> list[dict[str, object]]:
    detail = await shift.control.runs.detail(run_id)
    return [dict(event.data) for event in detail.history if event.kind == "item.overlap_suspected"]


async def run_elsewhere(shift: Shift, run_id: int) -> int:
    """Wait until an item that a node had begun has begun on another; says which item."""
    (item,) = await shift.items(run_id)
    await shift.until(lambda: len(shift.starts(item)) == 2, "the item to start again elsewhere")
    return item


@pytest.mark.timeout(120)
async def test_attempts_that_a_thawed_machine_may_have_run_beside_later_ones_are_in_the_history(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    async with postgres_server.fresh_database() as url, a_shift(url, tmp_path, settings=SETTINGS) as shift:
        await quotas(shift.control, ["t"])
        (frozen,) = await shift.start("a")
        told = await shift.assign("t", 1, info={"ms": 30_000, "again_ms": 2000})
        await shift.until(lambda: len(shift.watcher.executing()) == 1, "the item to run on a")
        await shift.start("b")
        pids = tree(frozen)
        assert len(pids) > 3, "agent, zygote, supervisor and worker"
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        item = await run_elsewhere(shift, told.id)
        for pid in reversed(pids):  # the task goes on first
            os.kill(pid, signal.SIGCONT)

        async def recorded() -> bool:
            return bool(await overlaps(shift, told.id))

        await shift.until_asked(recorded, "the history to say so")
        (line,) = await overlaps(shift, told.id)
        assert (line["item"], line["attempt"], line["node"]) == (item, 1, "a")
        assert isinstance(line["late_s"], float)
        assert line["late_s"] > 1.0
        await shift.until_idle()
        assert {state for state, _, _ in (await shift.items(told.id)).values()} == {"succeeded"}
        assert shift.judged().two_nodes, "the witnesses saw two at a time"


@pytest.mark.timeout(120)
async def test_an_agent_that_stood_still_alone_is_not_suspected(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    """Its switches have killed its processes in time, whoever learned of that when. A switch that is late by twice the
    margin would be suspected, and rightly: hence a long margin."""
    settings = {**SETTINGS, **lease(6, 2)}
    async with postgres_server.fresh_database() as url, a_shift(url, tmp_path, settings=settings) as shift:
        await quotas(shift.control, ["t"])
        (frozen,) = await shift.start("a")
        told = await shift.assign("t", 1, info={"ms": 30_000, "again_ms": 1000})
        await shift.until(lambda: len(shift.watcher.executing()) == 1, "the item to run on a")
        await shift.start("b")
        frozen.send(signal.SIGSTOP)
        await run_elsewhere(shift, told.id)
        frozen.send(signal.SIGCONT)
        await shift.until(lambda: frozen.log.count(" node.joined") == 2, "a to join again")
        await shift.until_idle()
        assert await overlaps(shift, told.id) == []
