"""Duties: one node at a time does them, the idlest first, and another when it dies (S1.11, S1.14, A1.4)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from rota.config import LeaseConfig
from rota.coordinators.memory import MemoryCoordinator
from rota.loops.duty import Duty
from rota.loops.expirer import Expirer
from rota.loops.loader import Loader
from rota.model.work import Queued
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore
from rota.wiring import own_coordinator

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
        assert await own_coordinator(crowd.store, crowd.clock, ttl_s=4.0).keys("beat") != frozenset()
        assert len(await own_coordinator(crowd.store, crowd.clock, ttl_s=4.0).keys("beat")) <= 3, "old locks are let go"
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


class Looks(MemoryStore):
    """A store that writes down who looks for what has expired."""

    looks: Counter[str]

    async def queued(self, *args: Any, **wanted: Any) -> tuple[Queued, ...]:
        if wanted.get("expired"):
            task = asyncio.current_task()
            assert task is not None
            self.looks[task.get_name()] += 1
        return await super().queued(*args, **wanted)


def test_one_node_looks_for_what_has_expired_and_the_others_rarely() -> None:
    """S1.11: the check of tasks is under the heartbeat lock."""

    async def main(loop: SimLoop) -> None:
        store = Looks(SimClock(loop, 1, name="store"), actor="sim")
        store.looks = Counter()
        tasks = {}
        for name in "abc":
            clock = SimClock(loop, 1, name=name)
            coordinator = MemoryCoordinator(store.realm, clock, ttl_s=4.0)
            await coordinator.join()
            duty = Duty(store, coordinator, clock, "expire", name)
            expirer = Expirer(store, clock, LeaseConfig(), Loader(store), duty=duty)
            tasks[name] = [asyncio.create_task(expirer.run(), name=name), asyncio.create_task(renewed(coordinator))]
        await asyncio.sleep(62)
        store.looks.clear()
        await asyncio.sleep(30)
        ((holder, often), *others) = store.looks.most_common()
        assert often >= 20
        assert all(looks <= 6 for _, looks in others), store.looks
        for task in tasks.pop(holder):
            task.cancel()
        await asyncio.sleep(12)  # its session ends, and the others ask again
        store.looks.clear()
        await asyncio.sleep(15)
        assert max(store.looks.values()) >= 10, "another has the duty"
        for task in (it for both in tasks.values() for it in both):
            task.cancel()

    simulate(main, seed=1)


async def renewed(coordinator: MemoryCoordinator) -> None:
    while True:
        await coordinator.renew()
        await asyncio.sleep(1)
