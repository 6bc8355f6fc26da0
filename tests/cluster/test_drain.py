"""A node that is told to stop finishes what it has and takes no more; told twice, it gives its items back (P15)."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.cluster.processes import lease
from tests.cluster.shift import SECOND_NS, Shift, a_shift

LONG_LEASE = {**lease(120, 1), "ROTA_EXECUTOR_SEATS": "6"}
"""So that nothing is taken from a node because of its lease."""


def stopped_by(always: signal.Signals, nightly: signal.Signals) -> pytest.MarkDecorator:
    """A node hears both signals by the same handler; each test takes another one every time."""
    return pytest.mark.parametrize(
        "stop",
        [pytest.param(always, id=always.name), pytest.param(nightly, id=nightly.name, marks=pytest.mark.nightly)],
    )


async def nodes_of(shift: Shift) -> dict[str, int]:
    """How many attempts each node brought to an end."""
    return dict(await shift.witness.ask("SELECT node, count(*) FROM rota_attempt GROUP BY node"))


async def is_draining(shift: Shift, name: str) -> bool:
    ((state,),) = await shift.witness.ask(f"SELECT state FROM rota_node WHERE name = '{name}'")
    return bool(state == "draining")


@stopped_by(signal.SIGTERM, nightly=signal.SIGINT)
async def test_a_node_that_drains_finishes_what_it_has_and_others_take_the_rest(
    stop: signal.Signals, postgres_url: str, tmp_path: Path
) -> None:
    async with a_shift(postgres_url, tmp_path, settings=LONG_LEASE) as shift:
        await shift.control.limits.set_quota("acme")
        await shift.start("node-0", "node-1")
        done = await shift.assign("acme", 40, info={"ms": 20, "gate": "go"}, concurrency=3)
        await shift.until(lambda: len(shift.watcher.executing()) == 12, "both nodes to be full")
        shift.nodes["node-0"].send(stop)
        await shift.until_asked(lambda: is_draining(shift, "node-0"), "it to begin to drain")
        opened = time.monotonic_ns()
        shift.watcher.open_gate("go")
        assert shift.nodes["node-0"].ended(30) == 0
        left_s = (time.monotonic_ns() - opened) / SECOND_NS
        await shift.until_idle()
        lines = await shift.attempts(*(it.id for it in done.items))
        assert [(it["attempt"], it["outcome"]) for it in lines] == [(1, "succeeded")] * 40, "lost or doubled"
        assert {len(shift.starts(it.id)) for it in done.items} == {1}
        shares = await nodes_of(shift)
        print(f"\ndrained {left_s:.2f} s after its items could end; ended by node: {shares}")
        assert shares == {"node-0": 6, "node-1": 34}, "it finishes what it had, and takes no more"
        assert shift.judged().clean


@stopped_by(signal.SIGINT, nightly=signal.SIGTERM)
async def test_a_node_that_is_told_twice_gives_its_items_back(
    stop: signal.Signals, postgres_url: str, tmp_path: Path
) -> None:
    async with a_shift(postgres_url, tmp_path, settings=LONG_LEASE) as shift:
        await shift.control.limits.set_quota("acme")
        await shift.start("node-0")
        done = await shift.assign("acme", 6, info={"ms": 60_000, "again_ms": 50}, concurrency=3)
        await shift.until(lambda: len(shift.watcher.executing()) == 6, "the node to be full")
        await shift.start("node-1")
        node = shift.nodes["node-0"]
        node.send(stop)
        await shift.until_asked(lambda: is_draining(shift, "node-0"), "it to begin to drain")
        told = time.monotonic_ns()
        node.send(stop)
        assert node.ended(20) == 130
        await shift.until_idle()
        again_s = max(shift.starts(it.id)[1].mono_ns - told for it in done.items) / SECOND_NS
        print(f"\nstopped at once: n=6 items started again elsewhere within {again_s:.2f} s")
        assert {state for state, _, _ in (await shift.items(done.id)).values()} == {"succeeded"}
        verdict = shift.judged()
        assert verdict.clean, verdict


async def test_a_drain_of_running_work_can_be_called_off_and_lasts_over_a_restart(
    postgres_url: str, tmp_path: Path
) -> None:
    """S0.37, A0.14, P15: nothing is lost or doubled, whatever the person decides half-way."""
    async with a_shift(postgres_url, tmp_path, settings=LONG_LEASE) as shift:

        async def has(name: str) -> int:
            held = "SELECT count(*) FROM rota_queue q JOIN rota_node n ON n.id = q.node_id"
            ((count,),) = await shift.witness.ask(f"{held} WHERE n.name = '{name}' AND n.left_at IS NULL")
            return int(count)

        async def has_none() -> bool:
            return await has("node-0") == 0

        async def has_some() -> bool:
            return await has("node-0") > 0

        async def goes_on() -> bool:
            return (await nodes_of(shift)).get("node-0", 0) >= 6 and await has("node-0") > 0

        async def other_is_full() -> bool:
            return await has("node-1") == 6

        items: list[int] = []

        async def assign(count: int, gate: str) -> None:
            done = await shift.assign("acme", count, info={"ms": 20, "gate": gate}, concurrency=3)
            items.extend(it.id for it in done.items)

        await shift.control.limits.set_quota("acme")
        await shift.start("node-0", "node-1")
        await assign(12, "called off")
        await shift.until(lambda: len(shift.watcher.executing()) == 12, "both nodes to be full")

        await shift.control.nodes.drain(["node-0"])
        await shift.control.nodes.undrain(["node-0"])
        await assign(24, "drained")
        shift.watcher.open_gate("called off")
        await shift.until_asked(goes_on, "it to end what it had and to go on")

        await shift.control.nodes.drain(["node-0"])
        shift.watcher.open_gate("drained")
        await shift.until_asked(has_none, "it to be empty")
        await assign(30, "restarted")
        await shift.until_asked(other_is_full, "the other to take what there is")
        assert await has("node-0") == 0, "it is drained"
        shift.nodes["node-0"].send(signal.SIGTERM)
        assert shift.nodes["node-0"].ended(30) == 0
        await shift.start("node-0")
        ended = (await nodes_of(shift)).get("node-1", 0)
        shift.watcher.open_gate("restarted")

        async def others_go_on() -> bool:
            assert await has("node-0") == 0, "a restart does not undrain"
            return (await nodes_of(shift)).get("node-1", 0) >= ended + 30

        await shift.until_asked(others_go_on, "the other to go on alone")
        await assign(24, "undrained")
        await shift.control.nodes.undrain(["node-0"])
        await shift.until_asked(has_some, "it to take part again")
        shift.watcher.open_gate("undrained")
        await shift.until_idle()
        lines = await shift.attempts(*items)
        assert [(it["attempt"], it["outcome"]) for it in lines] == [(1, "succeeded")] * len(items), "lost or doubled"
        assert {len(shift.starts(it)) for it in items} == {1}
        assert shift.judged().clean
