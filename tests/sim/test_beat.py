"""Placement `beat`: the idlest of now has the beat, whatever it told of itself, and however late it wakes (S1.14)."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rota.config import PlacementConfig
from rota.coordinators.memory import MemoryCoordinator
from rota.loops.placer.beat import FIRE, BeatPlacer
from rota.loops.placer.session_keeper import SessionKeeper
from rota.model.cluster import Peer
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore

BEAT_S = 10.0
BEATS = 30


class Crowd:
    """Schedulers with a score each, which changes; a slow one needs a while for every read of the store."""

    def __init__(self, loop: SimLoop, seed: int, scores: dict[str, float], slow: str = "") -> None:
        self.scores = scores
        self._loop, self._seed = loop, seed
        self.store = MemoryStore(SimClock(loop, seed, name="store"), actor="sim")
        self._tasks = [asyncio.create_task(it.run()) for name in scores for it in self._node(name, name == slow)]

    def _node(self, name: str, is_slow: bool) -> tuple[SessionKeeper, BeatPlacer]:
        clock = SimClock(self._loop, self._seed, name=name)
        store = MemoryStore(clock, actor="sim")
        coordinator = MemoryCoordinator(self.store.realm, clock, ttl_s=4.0)
        keeper = SessionKeeper(
            coordinator, clock, lambda: Peer(name=name, incarnation=name), busy=lambda: self.scores[name]
        )
        beater = BeatPlacer(
            Slow(store, clock, 0.3) if is_slow else store,  # type: ignore[arg-type]
            coordinator,
            clock,
            PlacementConfig(kind="beat", beat_s=BEAT_S),
            keeper,
        )
        keeper.signals.session_began.on(beater.wake)
        keeper.signals.session_lost.on(beater.lose)
        return keeper, beater

    async def winners(self, beats: int) -> Counter[str]:
        """Who has the coming beats."""
        found: Counter[str] = Counter()
        seen = set(await self._holders())
        while found.total() < beats:
            await asyncio.sleep(BEAT_S / 4)
            now = await self._holders()
            found.update(now[key] for key in now.keys() - seen)
            seen |= now.keys()
        return found

    async def _holders(self) -> dict[str, str]:
        entries = await MemoryCoordinator(self.store.realm, self.store._clock, ttl_s=4.0).read("beat")
        return {it.key: it.value for it in entries if FIRE in it.key}

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()


class Slow:
    """A store that is slow to answer."""

    def __init__(self, store: MemoryStore, clock: SimClock, delay_s: float) -> None:
        self._store, self._clock, self._delay_s = store, clock, delay_s

    async def now(self) -> object:
        await self._clock.sleep(self._delay_s)
        return await self._store.now()

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


@pytest.mark.parametrize("slow", ["", "a"])
def test_the_idlest_of_now_has_every_beat_though_its_score_changed_too_little_to_be_told(slow: str) -> None:
    async def main(loop: SimLoop) -> None:
        crowd = Crowd(loop, 1, {"a": 12.0, "b": 3.0}, slow)
        await asyncio.sleep(2 * BEAT_S)
        crowd.scores |= {"a": 3.0, "b": 12.0}
        await asyncio.sleep(2 * BEAT_S)
        assert await crowd.winners(BEATS) == {"a": BEATS}
        crowd.end()

    simulate(main, seed=1)
