"""Two nodes of one name: the first keeps its work while it lives; one whose name was taken can be stopped."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

from tests.checkers.slots import SECOND
from tests.cluster.processes import SHORT, SHORT_MARGIN_S, NodeProcess, lease
from tests.cluster.shift import Shift, a_shift


def namesake(shift: Shift, folder: Path, *, elsewhere: bool = True) -> NodeProcess:
    """Another process with the name of a node, on a host of its own."""
    (folder / "twin").mkdir(exist_ok=True)
    first = shift.nodes["node-0"]
    return NodeProcess(
        "node-0", shift.url, folder / "twin", app=shift.watcher.app, settings=first.settings, elsewhere=elsewhere
    )


async def outlast_lease(shift: Shift) -> None:
    """Wait until the lease that the first has now would be over, with its margin."""
    query = "SELECT until_at FROM rota_lease JOIN rota_node ON node_id = id WHERE name = 'node-0'"
    ((until,),) = await shift.witness.ask(query)

    async def is_over() -> bool:
        return await shift.witness.now() > until + SHORT_MARGIN_S * SECOND

    await shift.until_asked(is_over, "a lease to pass")


async def test_a_node_whose_name_was_taken_stops_when_told_to(postgres_url: str, tmp_path: Path) -> None:
    async with a_shift(postgres_url, tmp_path, settings=SHORT) as shift:
        (first,) = await shift.start("node-0")
        first.freeze()
        second = namesake(shift, tmp_path)
        second.start()
        try:
            await shift.until(lambda: " node.joined" in second.log, "the second to join")
            first.thaw()
            await shift.until(lambda: "node.replaced" in first.log, "the first to notice")
            first.send(signal.SIGTERM)
            assert await asyncio.to_thread(first.ended, 20) == 0
            assert second.running
        finally:
            second.kill()


async def test_a_newcomer_leaves_a_living_node_its_name_and_its_work(postgres_url: str, tmp_path: Path) -> None:
    async with a_shift(postgres_url, tmp_path, settings=SHORT) as shift:
        await shift.control.limits.set_quota("acme")
        (first,) = await shift.start("node-0")
        done = await shift.assign("acme", 1, info={"ms": 0, "gate": "go"})
        await shift.until(lambda: len(shift.watcher.executing()) == 1, "the item to execute")
        second = namesake(shift, tmp_path)
        second.start()
        try:
            await shift.until(lambda: "node.name_held" in second.log, "the second to say what it waits for")
            await outlast_lease(shift)
            shift.watcher.open_gate("go")
            await shift.until_idle()
            (item,) = done.items
            lines = await shift.attempts(item.id)
            assert [(it["attempt"], it["outcome"]) for it in lines] == [(1, "succeeded")], "its work was ended"
            assert " node.joined" not in second.log
            first.kill()
            await shift.until(lambda: " node.joined" in second.log, "the second to join when the lease is over")
        finally:
            second.kill()


async def test_a_restart_on_the_same_host_does_not_wait_for_the_lease(postgres_url: str, tmp_path: Path) -> None:
    async with a_shift(postgres_url, tmp_path, settings=lease(120, 1)) as shift:
        (first,) = await shift.start("node-0")
        first.kill()
        await shift.start("node-0")
        assert "node.name_held" not in first.log
