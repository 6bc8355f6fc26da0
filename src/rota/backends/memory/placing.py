"""What placement needs of the store: the jobs that want an owner, and the offline list."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.backends.memory.finishing import Finishing
from rota.model.cluster import Drain, Drains, Placeable, Role


class Placing(Finishing):
    """Jobs to be placed, and nodes that take nothing more."""

    async def placeable(self, known: int) -> Placeable:
        if known == self._placed_revision:
            return Placeable(revision=known)
        jobs = tuple(sorted(job.id for job in self._jobs.values() if job.is_placed))
        return Placeable(revision=self._placed_revision, jobs=jobs)

    async def misplaced(self, *, repair: bool = False) -> int:
        return 0  # told from the jobs themselves

    async def busy_jobs(self, job_ids: Sequence[int]) -> frozenset[int]:
        return frozenset(job_ids) & {run.job_id for crowd in self._live.values() for run in crowd.values()}

    async def drains(self) -> Drains:
        return Drains(now=self._clock.wall(), drains=tuple(self._drained[name] for name in sorted(self._drained)))

    async def drain(self, drains: Sequence[Drain]) -> None:
        new = sorted(it.name for it in drains if it.name not in self._drained)
        for it in drains:
            was = self._drained.get(it.name)
            roles = {*it.roles, *(() if was is None else was.roles)}
            self._drained[it.name] = msgspec.structs.replace(it, roles=tuple(role for role in Role if role in roles))
        if new:
            self._record("node.drained", {"names": [*new]})

    async def undrain(self, names: Sequence[str], roles: Sequence[Role]) -> None:
        known = sorted(name for name in names if name in self._drained)
        for name in known:
            was = self._drained.pop(name)
            if left := tuple(role for role in was.roles if role not in roles):
                self._drained[name] = msgspec.structs.replace(was, roles=left)
        if known:
            self._record("node.undrained", {"names": [*known]})
            self._nudge()
