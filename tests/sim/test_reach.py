"""Rounds of a node that cannot reach another: it gives it nothing, and does not stand in its way (S1.16, A1.9)."""

from __future__ import annotations

import asyncio

from rota.config import DispatchConfig
from rota.loops.dispatcher import Dispatcher
from rota.loops.member import Identity
from rota.model.states import ItemState
from rota.model.work import Limit
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore
from rota.transactions.assign import assign
from rota.transactions.limits import set_limits
from tests.factories import a_node, an_assignment


class Pair:
    """Two nodes that make rounds, each the only one of its group. What is given never ends."""

    def __init__(self, loop: SimLoop) -> None:
        self.clock = SimClock(loop, 1, name="store")
        self.store = MemoryStore(self.clock, actor="sim")
        self.ids: dict[str, int] = {}
        self.dispatchers: dict[str, Dispatcher] = {}
        self._loop = loop
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, name: str) -> None:
        identity = Identity(name)
        self.ids[name] = identity.id = await a_node(self.store, name, seats=10, group=name, lease_s=10_000)
        dispatcher = Dispatcher(
            self.store, SimClock(self._loop, 1, name=name), DispatchConfig(), identity, None, hears=False
        )
        self.dispatchers[name] = dispatcher
        self._tasks.append(asyncio.create_task(dispatcher.run()))
        await asyncio.sleep(1)

    async def waiting(self) -> int:
        return sum(it.state is ItemState.READY for it in await self.store.queued())

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


def test_a_node_that_is_cut_off_from_who_could_run_what_waits_leaves_the_rounds_to_it() -> None:
    async def main(loop: SimLoop) -> None:
        pair = Pair(loop)
        await pair.store.transact(set_limits, [Limit(name="quota:acme/default")])
        await pair.start("a")
        await pair.start("b")
        pair.dispatchers["a"].leave_out(frozenset({pair.ids["b"]}))
        pair.dispatchers["b"].leave_out(frozenset({pair.ids["a"]}))
        await assign(pair.store, an_assignment(1, group="a"))
        await asyncio.sleep(1)
        assert (pair.dispatchers["a"].given, pair.dispatchers["b"].given) == (1, 0)
        for number in range(1, 6):  # in turn what only the one and only the other can run
            for name in ("b", "a"):
                await assign(pair.store, an_assignment(1, group=name))
                await asyncio.sleep(12)
            assert await pair.waiting() == 0
            assert {name: it.given for name, it in pair.dispatchers.items()} == {"a": 1 + number, "b": number}
        pair.end()

    simulate(main, seed=1)


def test_a_node_that_reaches_all_keeps_the_rounds() -> None:
    async def main(loop: SimLoop) -> None:
        pair = Pair(loop)
        await pair.store.transact(set_limits, [Limit(name="quota:acme/default")])
        await pair.start("a")
        await pair.start("b")
        for name in ("b", "a", "nobody"):
            await assign(pair.store, an_assignment(1, group=name))
            await asyncio.sleep(5)
        assert (pair.dispatchers["a"].given, pair.dispatchers["b"].given) == (2, 0)
        pair.end()

    simulate(main, seed=1)
