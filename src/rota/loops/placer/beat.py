"""Placement `beat`: before each beat, wait by the busy score, then try for its lock; whoever has it fires.

rest until 2 s before the next beat ──> from 1.5 s before, score x 10 ms ──> claim (lock, tick) ──won──> fire its slots
                                                   ^                      └─lost──> rest
                                                   └── the winner's session has ended: its claim is gone ──┘
"""

from __future__ import annotations

from datetime import datetime

from rota.config import PlacementConfig
from rota.core.placement.beat import begins_at, delay_s, lock_key, look_s, tick_of, tick_of_soon, wait_s
from rota.loops.loop import Loop
from rota.loops.placer.cluster_view import ClusterView
from rota.loops.placer.session_keeper import SessionKeeper
from rota.loops.store_time import StoreTime
from rota.model.folders import BEAT
from rota.ports import Clock, Coordinator, Store

FIRE = "fire"


class BeatPlacer(Loop):
    """Tries for the lock of each beat; owns all slots of the beats that it has won (`Ownership`)."""

    def __init__(
        self, store: Store, coordinator: Coordinator, clock: Clock, config: PlacementConfig, keeper: SessionKeeper
    ) -> None:
        super().__init__(clock)
        self._store = store
        self._coordinator = coordinator
        self._config = config
        self._beat_s = config.beat_s
        self._keeper = keeper
        self._view = ClusterView(store, coordinator, clock)
        self._won: dict[int, int] = {}
        self._seen = 0
        """The last beat that was turned to: a look that came too early for it is followed by another at once."""
        self._session: str | None = None
        self._listening = False

    def owns(self, job_id: int, at: datetime) -> bool:
        return self._keeper.may_fire and tick_of(at, self._beat_s) in self._won

    async def once(self) -> float:
        if self._keeper.session is None:
            return self._coordinator.ttl_s
        if self._session != self._keeper.session:
            self._won, self._session = {}, self._keeper.session
        moment = StoreTime(self.clock, await self._store.now())
        drained = self._keeper.peer.name in await self._view.drained()
        now_tick = tick_of(moment.now(), self._beat_s)
        next_tick = tick_of_soon(moment.now(), self._beat_s)
        wanted = {tick for tick in (now_tick, next_tick) if tick not in self._won}
        if wanted and not drained:
            await self.clock.sleep(delay_s(max(wanted), self._beat_s, moment.now(), self._wait_s()))
            await self._try(wanted)
        await self._forget(next_tick + 1 if drained else now_tick - 1)
        self._seen = next_tick
        self._listen()
        return self._rest_s(moment)

    def lose(self) -> None:
        """The session is over: others may have the beats."""
        self._won.clear()
        self._keeper.signals.ownership_changed.emit()

    def _wait_s(self) -> float:
        """By the score of now: what others were told of it is older."""
        config = self._config
        return wait_s(self._keeper.busy(), self.clock.chance(), score_s=config.score_s, jitter_s=config.jitter_s)

    async def _try(self, ticks: set[int]) -> None:
        session = self._session
        keys = {lock_key(FIRE, tick): tick for tick in ticks}
        won = await self._coordinator.claim(dict.fromkeys(keys, self._keeper.peer.incarnation))
        if won and session == self._keeper.session:
            self._won |= {keys[key]: fence for key, fence in won.items()}
            self._keeper.signals.ownership_changed.emit()

    async def _forget(self, before: int) -> None:
        """Let go of the locks of beats that are long over (until then nobody can take one again); drained, of all."""
        old = {lock_key(FIRE, tick): self._won.pop(tick) for tick in list(self._won) if tick < before}
        if old:
            await self._coordinator.release(old)

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            self._coordinator.listen(BEAT, self.wake)

    def _rest_s(self, moment: StoreTime) -> float:
        """Until shortly before the next beat; if another has this one, not longer than half a session."""
        now = moment.now()
        soon_s = (begins_at(tick_of(now, self._beat_s) + 1, self._beat_s) - now).total_seconds() - look_s(self._beat_s)
        if soon_s <= 0 and self._seen > tick_of(now, self._beat_s):
            soon_s += self._beat_s
        fires = tick_of(now, self._beat_s) in self._won
        return max(soon_s if fires else min(soon_s, self._coordinator.ttl_s / 2), 0.01)
