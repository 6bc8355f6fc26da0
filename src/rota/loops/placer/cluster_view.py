"""What a placement reads of the cluster: jobs, live schedulers and the offline list."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from rota.coordinators.recipes import read_member
from rota.core.placement.layout import is_job
from rota.model.cluster import Drain, Peer, Role
from rota.model.folders import JOBS, LIVE
from rota.ports import Clock, Coordinator, Store


class ClusterView:
    """Reads each of them when it is asked, once in a sweep, and remembers what changes rarely."""

    def __init__(self, store: Store, coordinator: Coordinator, clock: Clock) -> None:
        self._store = store
        self._coordinator = coordinator
        self._clock = clock
        self._jobs: frozenset[int] = frozenset()
        self._revision = -1
        self._drains: tuple[Drain, ...] = ()
        self._unowned: dict[int, float] = {}
        self.now = datetime.min.replace(tzinfo=UTC)
        """The store's clock when the offline list was read."""

    async def jobs(self) -> frozenset[int]:
        """All jobs that are placed; read again only when the set has changed."""
        placeable = await self._store.placeable(self._revision)
        if placeable.jobs is not None:
            self._jobs, self._revision = frozenset(placeable.jobs), placeable.revision
        return self._jobs

    async def peers(self) -> tuple[Peer, ...]:
        found = (read_member(entry) for entry in await self._coordinator.read(LIVE))
        return tuple(peer for peer in found if peer is not None)

    async def owned(self) -> frozenset[int]:
        names = (key.rpartition("/")[2] for key in await self._coordinator.keys(JOBS))
        return frozenset(int(name) for name in names if is_job(name))

    async def drained(self) -> frozenset[str]:
        listed = await self._store.drains()
        self._drains, self.now = listed.drains, listed.now
        return frozenset(it.name for it in self._drains if Role.SCHEDULER in it.roles)

    def drain_of(self, name: str) -> Drain | None:
        return next((it for it in self._drains if it.name == name and Role.SCHEDULER in it.roles), None)

    def unowned_s(self, job_ids: Iterable[int]) -> dict[int, float]:
        """For how long each of these has been seen without an owner."""
        now_s = self._clock.monotonic()
        self._unowned = {job_id: self._unowned.get(job_id, now_s) for job_id in job_ids}
        return {job_id: now_s - since_s for job_id, since_s in self._unowned.items()}
