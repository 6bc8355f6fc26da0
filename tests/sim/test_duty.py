"""Duties: one node at a time does them, the idlest first, and another when it dies (S1.11, S1.14, A1.4)."""

from __future__ import annotations

import asyncio
from collections import Counter

from rota.backends.memory import MemoryStore
from rota.backends.memory.coordinator import MemoryCoordinator
from rota.loops.duty import Duty
from rota.sim.loop import SimClock, SimLoop, simulate

LOOK_S = 0.1


class Crowd:
    """Some nodes with one duty."""

    def __init__(self, loop: SimLoop, seed: int, scores: dict[str, float]) -> None:
        self.clock = SimClock(loop, seed, name="store")
        self.store = MemoryStore(self.clock, actor="sim")
        self.done: Counter[str] = Counter()
        self._tasks = {name: asyncio.create_task(self._node(loop, seed, name, score)) for name, score in scores.items()}

    async def _node(self, loop: SimLoop, seed: int, name: str, score: float) -> None:
        clock = SimClock(loop, seed, name=name, skew_s=3600 if name == "c" else 0)
        coordinator = MemoryCoordinator(self.store.realm, clock, ttl_s=4.0)
        await coordinator.join()
        duty = Duty(self.store, coordinator, clock, "sweeping", name, busy=lambda: score)
        while True:
            await coordinator.renew()
            if await duty.is_mine():
                self.done[name] += 1
            await clock.sleep(LOOK_S)

    def kill(self, name: str) -> None:
        self._tasks.pop(name).cancel()

    def end(self) -> None:
        for name in list(self._tasks):
            self.kill(name)


def test_the_idlest_does_it_and_when_it_dies_another() -> None:
    async def main(loop: SimLoop) -> None:
        crowd = Crowd(loop, 1, {"a": 80.0, "b": 10.0, "c": 40.0})
        await asyncio.sleep(62)  # they came when the first beat had begun
        crowd.done.clear()
        await asyncio.sleep(50)
        assert set(crowd.done) == {"b"}
        crowd.kill("b")
        await asyncio.sleep(15)
        crowd.done.clear()
        await asyncio.sleep(20)
        assert len(crowd.done) == 1, "one of the others has the rest of the beat"
        await asyncio.sleep(60)
        crowd.done.clear()
        await asyncio.sleep(20)
        assert set(crowd.done) == {"c"}, "the idlest of those that are left, whatever its own clock says"
        crowd.end()

    simulate(main, seed=1)


def test_nobody_does_it_twice_at_a_time_over_many_beats() -> None:
    async def main(loop: SimLoop) -> None:
        crowd = Crowd(loop, 2, {"a": 20.0, "b": 20.0, "c": 20.0})
        await asyncio.sleep(600)
        assert 5400 <= crowd.done.total() <= 6100
        assert await crowd.store.coordinator(crowd.clock, ttl_s=4.0).keys("beat") != frozenset()
        assert len(await crowd.store.coordinator(crowd.clock, ttl_s=4.0).keys("beat")) <= 3, "old locks are let go"
        crowd.end()

    simulate(main, seed=2)


def test_a_node_that_cannot_ask_does_it_too() -> None:
    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 3)
        store = MemoryStore(clock, actor="sim")
        apart = Duty(store, MemoryCoordinator(store.realm, clock, ttl_s=4.0), clock, "sweeping", "a")
        assert await apart.is_mine()
        assert await Duty(store, None, clock, "sweeping", "a").is_mine()

    simulate(main, seed=3)
