"""A duty: periodic work that one node of the cluster does at a time, under a heartbeat lock (S1.11, S1.14).

    a new beat ──> wait score x 10 ms ──> claim (duty, tick) ──won──> this node does it until the beat is over
                                               └─lost──> ask again now and then: its holder may have died

Ticks are numbers of the store's clock. The claim only says who should try; what must not be done twice is fenced in the
store. So a node that cannot ask, for want of a session or of an answer, does it too: rather twice tried than never.
"""

from __future__ import annotations

from collections.abc import Callable

from rota.config import PlacementConfig
from rota.core.placement.beat import lock_key, tick_of, wait_s
from rota.errors import CoordinatorError
from rota.loops.store_time import StoreTime
from rota.ports import Clock, Coordinator, Store

BEAT_S = 60.0
ASK_S = 5.0
USUAL = PlacementConfig()


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
        self._moment: StoreTime | None = None
        self._won: dict[str, int] = {}
        self._asked: tuple[float, str | None, int] | None = None
        """When, in which session and for which tick it was asked last."""

    async def is_mine(self) -> bool:
        """Whether this node should do it now."""
        if not self._takes_part:
            return False
        if self._coordinator is None:
            return True
        tick, session, now_s = await self._tick(), self._coordinator.session, self._clock.monotonic()
        key = lock_key(self._name, tick)
        if self._asked is not None and self._asked[1:] == (session, tick) and now_s < self._asked[0] + ASK_S:
            return session is None or key in self._won
        if self._asked is not None and self._asked[2] != tick:
            await self._clock.sleep(self._wait_s())
        self._asked = now_s, session, tick
        try:
            won = await self._coordinator.claim({key: self._node})
            await self._coordinator.release({old: fence for old, fence in self._won.items() if old != key})
        except CoordinatorError:
            self._asked = None
            return True
        self._won = won
        return key in won

    def _wait_s(self) -> float:
        config = self._placement
        return wait_s(self._busy(), self._clock.chance(), score_s=config.score_s, jitter_s=config.jitter_s)

    async def _tick(self) -> int:
        if self._moment is None or self._moment.elapsed() > BEAT_S:
            self._moment = StoreTime(self._clock, await self._store.now())
        return tick_of(self._moment.now(), BEAT_S)
