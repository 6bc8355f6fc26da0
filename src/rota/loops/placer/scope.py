"""Placement `scope`: lead if nobody does, cut the jobs anew when the schedulers change, act by the newest plan.

    leader    members changed ──> claim `shard` ──> write the plan over the one that was read ──> release `shard`
    everyone  a newer plan ──> keep what stays one's own, tell its epoch, and wait with what is new ──> go on with all

What is new waits until every living scheduler has told the plan's epoch, at most one session: by then the former owner
has stopped, or its session is over. Nobody goes back to an older epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rota.config import PlacementConfig
from rota.coordinators.recipes import Election, on_notice, read_plan
from rota.core.placement.scope import needs_plan, next_epoch, owner_of, plan
from rota.logger import log
from rota.loops.loop import Loop
from rota.loops.placer.cluster_view import ClusterView
from rota.loops.placer.session_keeper import SessionKeeper
from rota.model.cluster import Peer, ScopePlan, Strategy
from rota.model.entry import Entry
from rota.model.folders import ELECTION, LIVE, SHARD
from rota.model.value import encode
from rota.ports import Clock, Coordinator, Store

PLAN = LIVE

Owner = Callable[[int], str | None]


class ScopePlacer(Loop):
    """Leads if nobody does, and owns the jobs that the leader's plan gives to this scheduler (`Ownership`)."""

    def __init__(
        self, store: Store, coordinator: Coordinator, clock: Clock, config: PlacementConfig, keeper: SessionKeeper
    ) -> None:
        super().__init__(clock)
        self._coordinator = coordinator
        self._strategy = Strategy(config.strategy)
        self._keeper = keeper
        self._view = ClusterView(store, coordinator, clock)
        self._election = Election(coordinator, keeper.peer.address or keeper.peer.name)
        self._term: int | None = None
        self._written: int | None = None
        """The version of the plan that this leader wrote."""
        self._plan: ScopePlan | None = None
        self._newest = 0
        """The highest epoch that it has seen, in whatever session."""
        self._owner: Owner = lambda job_id: None
        self._before: Owner | None = None
        self._planned_s = 0.0
        self._listening = False

    @property
    def epoch(self) -> int:
        return 0 if self._plan is None else self._plan.epoch

    def owns(self, job_id: int, at: datetime) -> bool:
        name = self._keeper.peer.name
        if not self._keeper.may_fire or self._keeper.session is None or self._owner(job_id) != name:
            return False
        return self._before is None or self._before(job_id) == name

    async def once(self) -> float:
        if self._keeper.session is None:
            return self._coordinator.ttl_s
        self._listen()
        peers = await self._view.peers()
        if await self._election.campaign():
            await self._lead(peers)
        await self._follow(peers)
        return self._coordinator.ttl_s / 8 if self._before is not None else self._coordinator.ttl_s / 2

    def lose(self) -> None:
        """The session is over: the plan is another's business until this scheduler takes part again."""
        self._term, self._written, self._plan, self._before = None, None, None, None
        self._owner = lambda job_id: None
        self._keeper.signals.ownership_changed.emit()

    async def _lead(self, peers: tuple[Peer, ...]) -> None:
        """Cut anew if need be; a new leader always does, for the last one may have died half-way."""
        drained = await self._view.drained()
        active = [peer for peer in peers if peer.name not in drained]
        jobs = sorted(await self._view.jobs())
        entry = await self._coordinator.get(PLAN)
        last = read_plan(entry)
        if self._term == self._election.fence:
            is_own = entry is not None and entry.version == self._written  # only the leader writes there
            if is_own and not needs_plan(last, active, jobs, self._strategy):
                return
            if not is_own:
                self._keeper.signals.repaired.emit("the plan was lost or changed by somebody else, and was made anew")
        epoch = next_epoch(last, [self._newest, *(peer.epoch for peer in peers)])
        await self._free(entry)
        shard = await self._claim_shard(epoch)
        new = plan(active, jobs, self._strategy, epoch)
        version = 0 if entry is None or entry.session is not None else entry.version
        written = await self._coordinator.put(PLAN, encode(new), version=version)
        await self._coordinator.release(shard)
        if written is not None:
            self._term, self._written = self._election.fence, written
            log.info("scope.planned", epoch=epoch, schedulers=len(active), jobs=len(jobs))

    async def _claim_shard(self, epoch: int) -> dict[str, int]:
        """Say that a plan is being made. Whoever else says so leads no more, or never did."""
        won = await self._coordinator.claim({SHARD: str(epoch)})
        if not won and (entry := await self._coordinator.get(SHARD)) is not None:
            await self._coordinator.delete(SHARD, entry.version)
            won = await self._coordinator.claim({SHARD: str(epoch)})
        return won

    async def _free(self, entry: Entry | None) -> None:
        """A plan belongs to no session: if somebody claims its place, nobody could write one."""
        if entry is not None and entry.session is not None:
            await self._coordinator.delete(PLAN, entry.version)

    async def _follow(self, peers: tuple[Peer, ...]) -> None:
        new = read_plan(await self._coordinator.get(PLAN))
        if new is not None and new.epoch > self.epoch:
            self._adopt(new)
            own = next((str(part) for part in new.parts if part.name == self._keeper.peer.name), "")
            await self._keeper.tell(epoch=new.epoch, range=own)
        elif self._before is not None and await self._may_go_on(peers):
            self._before = None
            self._keeper.signals.ownership_changed.emit()

    def _adopt(self, new: ScopePlan) -> None:
        before = self._owner
        if self._before is not None:  # two plans in a row: only what was one's own all the time goes on
            earlier, later = self._before, self._owner
            before = lambda job_id: later(job_id) if earlier(job_id) == later(job_id) else None  # noqa: E731
        self._plan, self._owner, self._before = new, owner_of(new), before
        self._newest = max(self._newest, new.epoch)
        self._planned_s = self.clock.monotonic()
        self._keeper.signals.ownership_changed.emit()

    async def _may_go_on(self, peers: tuple[Peer, ...]) -> bool:
        """A4.4 and A4.5: everybody has read this plan, and none newer is being made; or a session has passed."""
        if self.clock.monotonic() - self._planned_s > self._coordinator.ttl_s:
            return True
        shard = await self._coordinator.get(SHARD)
        newer = shard is not None and shard.value.isdigit() and int(shard.value) > self.epoch
        return not newer and all(peer.epoch >= self.epoch for peer in peers)

    def _listen(self) -> None:
        if not self._listening:
            self._listening = True
            on_notice(self._coordinator, "drain", self.wake)
            for folder in (PLAN, SHARD, ELECTION):
                self._coordinator.listen(folder, self.wake)
