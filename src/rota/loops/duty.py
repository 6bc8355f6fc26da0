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
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class Duties:
    """What one node knows of its duties."""

    names: list[str] = field(default_factory=list)
    moment: StoreTime | None = None
    won: dict[str, int] = field(default_factory=dict)
    asked: tuple[float, str | None, int] | None = None
    """When, in which session and for which tick it was asked last."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it asks."""


@dataclass(slots=True)
class Duty:
    """One duty, as one node sees it."""

    store: Store
    coordinator: Coordinator | None
    clock: Clock
    name: str
    node: str
    busy: Callable[[], float] = float
    takes_part: bool = True
    """Duties are for schedulers; a node that only executes leaves them alone."""
    placement: PlacementConfig = field(default_factory=PlacementConfig)
    duties: Duties = field(default_factory=Duties)

    def __post_init__(self) -> None:
        self.duties.names.append(self.name)

    async def is_mine(self) -> bool:
        if not self.takes_part:
            return False
        if self.coordinator is None:
            return True
        async with self.duties.turn:
            return await self._is_mine(self.coordinator)

    async def _is_mine(self, coordinator: Coordinator) -> bool:
        known, tick, session = self.duties, await self._tick(), coordinator.session
        keys = {lock_key(name, tick) for name in known.names}
        key, now_s = lock_key(self.name, tick), self.clock.monotonic()
        if known.asked is not None and known.asked[1:] == (session, tick):
            if key in known.won or now_s < known.asked[0] + ASK_S:
                return session is None or key in known.won
            if await self._are_held(coordinator, keys - known.won.keys()):
                known.asked = now_s, session, tick
                return False
        elif known.asked is not None and known.asked[2] != tick:
            await self.clock.sleep(self._wait_s())
        known.asked = now_s, session, tick
        try:
            won = await coordinator.claim(dict.fromkeys(sorted(keys), self.node))
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
        config = self.placement
        return wait_s(self.busy(), self.clock.chance(), score_s=config.score_s, jitter_s=config.jitter_s)

    async def _tick(self) -> int:
        moment = self.duties.moment
        if moment is None or moment.elapsed() > BEAT_S:
            moment = self.duties.moment = StoreTime(self.clock, await self.store.now())
        return tick_of(moment.now(), BEAT_S)
