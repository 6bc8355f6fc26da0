"""The store is away for longer than a lease: an item that asked for it outlives that with its token, another is killed
by its switch and tried again, nothing is lost (P3, P5, P12)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.cluster.processes import LEEWAY_S, lease
from tests.cluster.shift import SECOND_NS, Shift, a_shift
from tests.conftest import installed
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer

Kind = type[PostgresServer] | type[MariadbServer]


BACK_S = 2.0
"""How long after the store is back work goes on (docs/failure.md)."""
HOLD_S = 100.0
"""More than any outage here takes, the recovery of the server included."""


async def outlive(shift: Shift, server: PostgresServer | MariadbServer, down_s: float) -> None:
    """Stop the server for so long under items of which some asked for more time than that. These end when it is up."""
    await shift.control.limits.set_quota("acme")
    await shift.start("node-0")
    held = await shift.assign("acme", 4, info={"ms": 0, "gate": "up"}, hold_s=HOLD_S)
    short = await shift.assign("acme", 4, info={"ms": 60_000, "again_ms": 50})
    await shift.until(lambda: len(shift.watcher.executing()) == 8, "both to execute")
    await shift.start("node-1")  # which shall rescue some of them, and not the others
    await asyncio.to_thread(server.kill)
    down = time.monotonic_ns()
    await asyncio.sleep(down_s)
    killed = {it.item for it in shift.executed() if not it.told and it.end_ns < time.monotonic_ns() - SECOND_NS // 10}
    await asyncio.to_thread(server.start)
    up = time.monotonic_ns()
    shift.watcher.open_gate("up")
    await shift.until_idle(60)
    held_ids, short_ids = ({it.id for it in done.items} for done in (held, short))
    assert killed == short_ids, "the switch must kill what did not ask for more time, and nothing else"
    await judge(shift, held.id, short.id)
    ran = [it for it in shift.executed() if it.item in short_ids]
    gone_s = [(it.end_ns - down) / SECOND_NS for it in ran if it.attempt == 1]
    again_s = [(it.start_ns - up) / SECOND_NS for it in ran if it.attempt == 2]
    print(
        f"\n{server.name} away for {(up - down) / SECOND_NS:.1f} s: {len(held_ids)} held items went on; "
        f"{len(short_ids)} others killed after {min(gone_s):.2f} to {max(gone_s):.2f} s and started again at most "
        f"{max(again_s):.2f} s after it answered"
    )
    assert max(again_s) <= BACK_S + LEEWAY_S


async def judge(shift: Shift, held: int, short: int) -> None:
    """What was held ended in its first attempt, under its token; the rest in the second."""
    verdict = shift.judged()
    assert verdict.clean, verdict
    for run, tries in ((held, 1), (short, 2)):
        items = await shift.items(run)
        assert {state for state, _, _ in items.values()} == {"succeeded"}
        assert {result for _, result, _ in items.values()} == {f'"slept in attempt {tries}"'}
        assert {len(shift.starts(item)) for item in items} == {tries}


async def with_server(kind: Kind, folder: Path, settings: dict[str, str], down_s: float) -> None:
    with installed(kind) as server:
        url = server.url(await server.create_database())
        async with a_shift(url, folder, settings=settings) as shift:
            await outlive(shift, server, down_s)


async def test_a_held_item_outlives_an_outage_and_others_are_tried_again(tmp_path: Path) -> None:
    await with_server(PostgresServer, tmp_path, lease(4, 1), down_s=7)


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", [PostgresServer, MariadbServer])
async def test_a_held_item_outlives_an_outage_of_thirty_seconds(kind: Kind, tmp_path: Path) -> None:
    await with_server(kind, tmp_path, {}, down_s=30)
