"""Hand over: say who shall have a job, then release it; for one session nobody but the receiver may claim it.

The giver writes its entry, or a person does for it; the giver removes what has arrived.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rota.coordinators.recipes.scheduler_entries import handover_key, read_handover, write_handover
from rota.core.placement.claim import Sweep
from rota.model.cluster import Handover
from rota.model.folders import HANDOVER
from rota.ports import Coordinator


class Handovers:
    """The hand-overs of all, and those of one giver."""

    def __init__(self, coordinator: Coordinator, giver: str) -> None:
        self._coordinator = coordinator
        self._key = handover_key(giver)
        self._own: dict[int, Handover] = {}
        self._version = 0

    @property
    def own(self) -> frozenset[int]:
        """The jobs that this giver is to give."""
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
