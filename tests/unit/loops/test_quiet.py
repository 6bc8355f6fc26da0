"""Rest: a loop that would be told of news rests longer while there is none, and news ends that, not the usual rest."""

from __future__ import annotations

import asyncio

from rota.config import DispatchConfig
from rota.loops import dispatcher as dispatching
from rota.loops.dispatcher import QUIET_S, UNTOLD_S, Dispatcher
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.model.work import GLOBAL, Limit
from rota.ports import Clock
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore
from rota.transactions.assign import assign
from rota.transactions.limits import set_limits
from tests.factories import a_node, an_assignment

USUAL_S, LONG_S = 1.0, 15.0


class Counting(Loop):
    """Notes when it looks."""

    def __init__(self, clock: Clock, quiet_s: float) -> None:
        super().__init__(clock)
        self.quiet_s = quiet_s
        self.looks: list[float] = []

    async def once(self) -> float:
        self.looks.append(self.clock.monotonic())
        return USUAL_S

    def since(self, at_s: float) -> int:
        return len([it for it in self.looks if it >= at_s])


def test_a_loop_rests_while_there_is_no_news_and_no_longer() -> None:
    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 1)
        it = Counting(clock, LONG_S)
        running = asyncio.create_task(it.run())
        await clock.sleep(30)  # it comes to rest
        began_s = clock.monotonic()
        await clock.sleep(60)
        assert it.since(began_s) <= 5
        told_s = clock.monotonic()
        it.stir()
        await clock.sleep(USUAL_S + 0.01)
        assert 1 <= it.since(told_s) <= 2, "it looks as soon as it would have, had it not rested"
        for _ in range(1000):
            it.stir()
            await clock.sleep(0.01)
        assert it.since(told_s) <= 14, "news only ends the longer rest"
        it.stop()
        await running

    simulate(main, seed=1)


def test_a_loop_that_nobody_tells_looks_as_often_as_ever() -> None:
    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 1)
        it = Counting(clock, 0.0)
        running = asyncio.create_task(it.run())
        await clock.sleep(60.5)
        assert it.since(0) >= 60
        it.stop()
        await running

    simulate(main, seed=1)


def a_dispatcher(loop: SimLoop) -> tuple[MemoryStore, Dispatcher, SimClock]:
    clock = SimClock(loop, 1)
    store = MemoryStore(clock, actor="test")
    return store, Dispatcher(store, clock, DispatchConfig(), Identity("n"), None, hears=True), clock


async def joined(store: MemoryStore, dispatcher: Dispatcher) -> None:
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=5), Limit(name="quota:acme/default")])
    dispatcher.identity.id = await a_node(store, seats=10, lease_s=1e6)
    await dispatcher.once()
    await dispatcher.once()


def test_a_dispatcher_that_has_nothing_to_do_rests() -> None:
    async def main(loop: SimLoop) -> None:
        store, dispatcher, _ = a_dispatcher(loop)
        await joined(store, dispatcher)
        assert await dispatcher.once() == QUIET_S

    simulate(main, seed=1)


def test_a_dispatcher_that_was_not_told_of_work_looks_often_for_a_while() -> None:
    async def main(loop: SimLoop) -> None:
        store, dispatcher, clock = a_dispatcher(loop)
        await joined(store, dispatcher)
        await clock.sleep(1)
        await assign(store, an_assignment(1))
        await clock.sleep(5)
        assert await dispatcher.once() <= DispatchConfig().idle_s * 2.5, "it gives the item, and rests shortly"
        assert dispatcher.given == 1
        assert await dispatcher.once() <= DispatchConfig().idle_s * 2.5
        await clock.sleep(UNTOLD_S)
        await dispatcher.once()
        assert await dispatcher.once() == QUIET_S, "then it trusts again"

    simulate(main, seed=1)


def test_a_dispatcher_that_was_told_goes_on_to_rest() -> None:
    async def main(loop: SimLoop) -> None:
        store, dispatcher, clock = a_dispatcher(loop)
        await joined(store, dispatcher)
        await clock.sleep(1)
        await assign(store, an_assignment(1))
        await clock.sleep(5)
        dispatcher.look()
        await dispatcher.once()
        assert dispatcher.given == 1
        assert await dispatcher.once() == QUIET_S

    simulate(main, seed=1)


def test_a_word_just_before_the_look_is_no_silence() -> None:
    """Work that arrived a moment ago may be told of in a moment."""

    async def main(loop: SimLoop) -> None:
        store, dispatcher, clock = a_dispatcher(loop)
        await joined(store, dispatcher)
        await clock.sleep(1)
        await assign(store, an_assignment(1))
        await clock.sleep(dispatching.UNTOLD_US / 1_000_000 / 2)
        await dispatcher.once()
        assert dispatcher._trusts_words

    simulate(main, seed=1)
