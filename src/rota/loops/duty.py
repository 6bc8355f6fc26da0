"""A duty: periodic work that one node of the cluster does at a time, under a heartbeat lock (S1.11, S1.14).

    a new beat ──> wait score x 10 ms ──> claim (duty, tick) ──won──> this node does it until the beat is over
                                               └─lost──> ask again now and then: its holder may have died

Ticks are numbers of the store's clock. The claim only says who should try; what must not be done twice is fenced in the
store. So a node that cannot ask, for want of a session or of an answer, does it too: rather twice tried than never. A
node asks for all of its duties at once (`Duties`): each question is a transaction where a database coordinates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.config import PlacementConfig
from rota.core.placement.beat import lock_key, tick_of, wait_s
from rota.errors import CoordinatorError
from rota.loops.store_time import StoreTime
from rota.model.folders import BEAT
from rota.ports import Clock, Coordinator, Store

BEAT_S = 60.0
ASK_S = 6.0
"""How often one who has not got it looks whether its holder is still there. With a session, that is less than a lease:
what a holder left behind is rescued in time."""
USUAL = PlacementConfig()


class Duties:
    """What one node knows of its duties."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.moment: StoreTime | None = None
        self.won: dict[str, int] = {}
        self.asked: tuple[float, str | None, int] | None = None
        """When, in which session and for which tick it was asked last."""
        self.turn = asyncio.Lock()
        """Held while it asks."""


class Duty:
    """One duty, as one node sees it."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator | None,
        clock: Clock,
        name: str,
        node: str,
        *,
        busy: Callable[[], float] = lambda: 0.0,
        takes_part: bool = True,
        placement: PlacementConfig = USUAL,
        duties: Duties | None = None,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._name = name
        self._node = node
        self._busy = busy
        self._takes_part = takes_part
        """Duties are for schedulers; a node that only executes leaves them alone."""
        self._placement = placement
        self._all = duties or Duties()
        self._all.names.append(name)

    async def is_mine(self) -> bool:
        """Whether this node should do it now."""
        if not self._takes_part:
            return False
        if self._coordinator is None:
            return True
        async with self._all.turn:
            return await self._is_mine(self._coordinator)

    async def _is_mine(self, coordinator: Coordinator) -> bool:
        known, tick, session = self._all, await self._tick(), coordinator.session
        keys = {lock_key(name, tick) for name in known.names}
        key, now_s = lock_key(self._name, tick), self._clock.monotonic()
        if known.asked is not None and known.asked[1:] == (session, tick):
            if key in known.won or now_s < known.asked[0] + ASK_S:
                return session is None or key in known.won
            if await self._are_held(coordinator, keys - known.won.keys()):
                known.asked = now_s, session, tick
                return False
        elif known.asked is not None and known.asked[2] != tick:
            await self._clock.sleep(self._wait_s())
        known.asked = now_s, session, tick
        try:
            won = await coordinator.claim(dict.fromkeys(sorted(keys), self._node))
            old = {it: fence for it, fence in known.won.items() if it not in keys}
            if len(old) > len(keys):  # those of two beats in one transaction: nobody else wants them
                await coordinator.release(old)
                old = {}
        except CoordinatorError:
            known.asked = None
            return True
        known.won = old | won
        return key in won

    async def _are_held(self, coordinator: Coordinator, keys: set[str]) -> bool:
        """Whether others have them all. A look costs less than a claim in vain."""
        try:
            return keys <= await coordinator.keys(BEAT)
        except CoordinatorError:
            return False

    def _wait_s(self) -> float:
        config = self._placement
        return wait_s(self._busy(), self._clock.chance(), score_s=config.score_s, jitter_s=config.jitter_s)

    async def _tick(self) -> int:
        moment = self._all.moment
        if moment is None or moment.elapsed() > BEAT_S:
            moment = self._all.moment = StoreTime(self._clock, await self._store.now())
        return tick_of(moment.now(), BEAT_S)
