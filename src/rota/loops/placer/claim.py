"""Placement `claim`: sweep over all jobs, release, claim, hand over, tell the balance.

    woken, or a while has passed ──> read everything once ──> release ──> claim ──> hand over ──> tell X and N ──> rest

Every event leads to the same sweep over all jobs (S0.46), so a lost event costs a while, never a job. X is what is
held, never a counter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

from rota.config import PlacementConfig
from rota.coordinators.recipes import handover_key, on_notice, read_handover, write_handover
from rota.core.placement.claim import Order, Sweep, gives, limit, sweep
from rota.core.placement.layout import is_job
from rota.errors import CoordinatorError
from rota.logger import log
from rota.loops.loop import Loop
from rota.loops.placer.cluster_view import ClusterView
from rota.loops.placer.session_keeper import SessionKeeper
from rota.model.cluster import Handover, Role
from rota.model.folders import HANDOVER, JOBS, LIVE
from rota.ports import Clock, Coordinator, Store
from rota.transactions.members import undrain

PACE_S = 0.1
"""The least time between the beginnings of two sweeps: changes come in swarms."""
IDLE_SHARE = 4.0
"""How many times as long as a sweep took a scheduler leaves the next one be: it has other things to do."""
IDLE_SESSIONS = 2.0
"""How many sessions a scheduler rests when nothing wakes it."""
CLAIM_MAX = 500
"""How many claims one call makes: a coordinator has to answer it in bounded time, also when it is busy."""
GIVE_MAX = 5000
DRAIN_MAX = 50
"""How many jobs a drained scheduler gives up in one sweep, so that it can be called back half-way."""


async def read_limit(view: ClusterView, faults: int) -> int:
    """N as a scheduler that has no job yet tells it first."""
    drained = await view.drained()
    active = [peer for peer in await view.peers() if peer.name not in drained]
    return limit(len(await view.jobs()), len(active), faults)


class ClaimPlacer(Loop):
    """Claims jobs for this scheduler; owns those that it holds (`Ownership`)."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        clock: Clock,
        config: PlacementConfig,
        keeper: SessionKeeper,
        *,
        view: ClusterView | None = None,
        order: Order | None = None,
    ) -> None:
        super().__init__(clock)
        self._store = store
        self._coordinator = coordinator
        self._config = config
        self._keeper = keeper
        self._order = order
        self._view = view or ClusterView(store, coordinator, clock)
        self._handovers = Handovers(coordinator, keeper.peer.name)
        self._mine: dict[int, int] = {}
        self._session: str | None = None
        self._doubtful: set[int] = set()
        self._unsure = False
        self._watching = self._listening = False
        self._next_s = 0.0
        self.limit = 0
        """N."""

    @property
    def held(self) -> frozenset[int]:
        return frozenset(self._mine)

    def owns(self, job_id: int, at: datetime) -> bool:
        return job_id in self._mine and self._keeper.may_fire

    async def once(self) -> float:
        await self.clock.sleep(max(self._next_s - self.clock.monotonic(), 0.0))
        began_s = self.clock.monotonic()
        if not self._in_session():
            return self._coordinator.ttl_s
        try:
            facts = await self._look()
            won = await self._act(facts)
        finally:
            took_s = self.clock.monotonic() - began_s
            self._next_s = began_s + max(PACE_S, took_s + min(IDLE_SHARE * took_s, self._coordinator.ttl_s / 4))
        self._listen()
        return self._rest_s(facts, won)

    def lose(self) -> None:
        """The session is over: others may have the jobs."""
        self._mine.clear()
        self._session = None
        self._keeper.signals.ownership_changed.emit()

    def _in_session(self) -> bool:
        """Whether this scheduler takes part; claims of an earlier session are forgotten."""
        if self._keeper.session is None:
            return False
        if self._session != self._keeper.session:
            self._mine.clear()
            self._unsure = self._unsure or bool(self._doubtful)  # the new session may have begun before they were won
            self._doubtful.clear()
            self._session = self._keeper.session
        return True

    async def _look(self) -> Sweep:
        """Read everything once, this scheduler's own listing first (S0.26: 5)."""
        drained = await self._view.drained()
        self._watch()
        jobs = await self._view.jobs()
        owned = await self._view.owned()
        if self._unsure:
            await self._find_own()
        await self._settle_doubts(owned)
        self._mine = {job_id: fence for job_id, fence in self._mine.items() if job_id in owned}
        peers = await self._view.peers()
        handovers = await self._handovers.read({peer.name for peer in peers}, owned)
        return Sweep(
            name=self._keeper.peer.name,
            peers=peers,
            drained=drained,
            jobs=jobs,
            owned=owned,
            held=self.held,
            unowned_s=self._view.unowned_s(jobs - owned),
            handovers=handovers,
            giving=self._handovers.own,
            faults=self._config.faults,
            session_s=self._coordinator.ttl_s,
            automatic=self._config.automatic,
        )

    async def _act(self, facts: Sweep) -> int:
        decided = sweep(facts, self._order)
        self.limit = decided.limit
        drop = decided.release or await self._drain(facts)
        await self._release(drop)
        won = await self._claim(decided.claim)
        await self._handovers.tidy(facts)
        if not drop and not won:
            await self._give(facts)
        if drop or won:
            self._keeper.signals.ownership_changed.emit()  # S0.36: jobs are scheduled before X is told
        await self._keeper.tell(held=len(self._mine), limit=decided.limit)
        if won:
            self._keeper.signals.acquired.emit(won, len(self._mine))
        return won

    async def _claim(self, job_ids: Sequence[int]) -> int:
        """Try for jobs, some at a time: a coordinator answers a call in bounded time."""
        won = 0
        for start in range(0, len(job_ids), CLAIM_MAX):
            won += await self._claim_some(job_ids[start : start + CLAIM_MAX])
        return won

    async def _claim_some(self, job_ids: Sequence[int]) -> int:
        session, name = self._session, self._keeper.peer.name
        try:
            won = await self._coordinator.claim({f"{JOBS}/{job_id}": name for job_id in job_ids})
        except CoordinatorError:
            self._doubtful.update(job_ids)  # some may be ours without our knowing
            raise
        if session is None or session != self._keeper.session:
            self._unsure = True  # they were won, if at all, under the session that has begun meanwhile
            return 0
        self._mine |= {int(key.rpartition("/")[2]): fence for key, fence in won.items()}
        return len(won)

    async def _release(self, job_ids: Iterable[int]) -> None:
        """First fire them no more, then let others have them."""
        fences = [(job_id, self._mine.pop(job_id)) for job_id in job_ids if job_id in self._mine]
        try:
            for start in range(0, len(fences), CLAIM_MAX):
                some = fences[start : start + CLAIM_MAX]
                await self._coordinator.release({f"{JOBS}/{job_id}": fence for job_id, fence in some})
        except CoordinatorError:
            self._doubtful.update(job_id for job_id, _ in fences)
            raise

    async def _give(self, facts: Sweep) -> None:
        given = gives(facts, GIVE_MAX)
        if given and await self._handovers.announce(given):
            log.info("job.handed_over", jobs=len(given), to=sorted(set(given.values())))
            await self._release(given)
            self._keeper.signals.ownership_changed.emit()

    async def _drain(self, facts: Sweep) -> tuple[int, ...]:
        """The next few jobs that a drained scheduler gives up: idle ones first, the others when their runs are over or
        the deadline has passed. One that keeps some is back when it has no more than those and others have had the
        time to take the rest: else it would take it back itself."""
        spec = self._view.drain_of(facts.name)
        if spec is None:
            return ()
        if spec.keep is not None and len(facts.held) <= spec.keep:
            if all(facts.unowned_s.get(it, 0.0) > facts.session_s for it in facts.jobs - facts.owned):
                await self._store.transact(undrain, [facts.name], (Role.SCHEDULER,))
                self.wake()
            return ()
        busy = frozenset() if spec.is_over(self._view.now) else await self._store.busy_jobs(sorted(facts.held))
        return tuple(sorted(facts.held - busy)[: min(DRAIN_MAX, len(facts.held) - (spec.keep or 0))])

    def _doubt(self) -> None:
        """A person has ended claims: another may have got some of them by now."""
        self._unsure = True
        self.wake()

    async def _settle_doubts(self, owned: frozenset[int]) -> None:
        """Ask again for what was never answered: who claims what it has already is told so."""
        await self._claim(sorted(self._doubtful & owned))
        self._doubtful.clear()

    async def _find_own(self) -> None:
        """Look which claims are this session's."""
        self._unsure = False  # before the look: doubts that come meanwhile ask for another
        try:
            entries = await self._coordinator.read(JOBS)
        except CoordinatorError:
            self._unsure = True
            raise
        self._mine = {int(it.name): it.fence for it in entries if it.session == self._session and is_job(it.name)}

    def _watch(self) -> None:
        """S0.26: 6, before the first sweep."""
        if not self._watching:
            self._watching = True
            on_notice(self._coordinator, "drain", self.wake)
            on_notice(self._coordinator, "release", self._doubt)

    def _listen(self) -> None:
        """S0.26: 8, after the first sweep."""
        if not self._listening:
            self._listening = True
            for folder in (JOBS, LIVE, HANDOVER):
                self._coordinator.listen(folder, self.wake)

    def _rest_s(self, facts: Sweep, won: int) -> float:
        """Soon again while there is something to do."""
        waits = facts.jobs - facts.owned or facts.handovers or (facts.name in facts.drained and self._mine)
        return self._coordinator.ttl_s / 8 if won or waits else self._coordinator.ttl_s * IDLE_SESSIONS


class Handovers:
    """The hand-overs of all, and those of one giver: say who shall have a job, then release it; for one session nobody
    but the receiver may claim it.

    The giver writes its entry, or a person does for it; the giver removes what has arrived.
    """

    def __init__(self, coordinator: Coordinator, giver: str) -> None:
        self._coordinator = coordinator
        self._key = handover_key(giver)
        self._own: dict[int, Handover] = {}
        self._version = 0

    @property
    def own(self) -> frozenset[int]:
        return frozenset(self._own)

    async def read(self, alive: Collection[str], owned: Collection[int]) -> dict[int, Handover]:
        """All jobs that are on their way, and to whom. A giver that is dead gives up nothing any more: of its jobs only
        those count that nobody has yet."""
        self._own, self._version = {}, 0
        found: dict[int, Handover] = {}
        entries = await self._coordinator.read(HANDOVER)
        for entry in sorted(entries, key=lambda it: it.name in alive):  # what the living say counts more
            jobs = read_handover(entry)
            found |= {job_id: it for job_id, it in jobs.items() if entry.name in alive or job_id not in owned}
            if entry.key == self._key:
                self._own, self._version = jobs, entry.version
        return found

    async def announce(self, jobs: Mapping[int, str]) -> bool:
        """Say which jobs go to whom, before they are released. False: somebody else wrote meanwhile; look again."""
        return await self._write({**self._own, **{job_id: Handover(to=name) for job_id, name in jobs.items()}})

    async def tidy(self, facts: Sweep) -> None:
        """Forget what has arrived, what cannot, and what nobody fetched during a session."""
        going = {job_id: it for job_id, it in self._own.items() if _is_going(facts, job_id, it.to)}
        if going != self._own:
            await self._write(going)

    async def _write(self, jobs: Mapping[int, Handover]) -> bool:
        if not jobs:
            return await self._coordinator.delete(self._key, self._version)
        version = await self._coordinator.put(self._key, write_handover(jobs), version=self._version)
        if version is None:
            return False
        self._own, self._version = dict(jobs), version
        return True


def _is_going(facts: Sweep, job_id: int, receiver: str) -> bool:
    if job_id not in facts.jobs or receiver not in {peer.name for peer in facts.active}:
        return False
    if job_id in facts.held:
        return receiver != facts.name
    return job_id not in facts.owned and facts.unowned_s.get(job_id, 0.0) <= facts.session_s
