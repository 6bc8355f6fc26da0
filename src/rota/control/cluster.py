"""The cluster: share jobs out anew, give one job to a scheduler, end the claim of one, wait until jobs have arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from rota.control.survey import ClusterSurvey
from rota.coordinators.recipes.scheduler_entries import handover_key, read_handover, write_handover
from rota.core.cluster import ClusterFacts, Rebalance, Shift, claim_objections, idlest, rebalance
from rota.errors import NotFound, Refused
from rota.model.cluster import Handover, Placement, Role
from rota.model.folders import JOBS
from rota.model.job import Job, JobName
from rota.model.plan import JobFilter
from rota.transactions.members import undrain

LOOK_S = 0.25
TRIES = 20
"""How often an entry is written anew when its giver wrote at the same time."""


class Transfer(NamedTuple):
    """A job on its way from its owner to another scheduler. `undrained`: that one was taken off the offline list."""

    job_id: int
    giver: str | None
    receiver: str
    undrained: bool = False


class Released(NamedTuple):
    """A job whose claim was ended, and its owner until then. None: it had no owner."""

    job_id: int
    owner: str | None


class ClusterControl(ClusterSurvey):
    """What may be asked of the cluster, and of placement `claim`."""

    async def job_names(self, job_ids: Sequence[int]) -> dict[int, JobName]:
        """Return the names of jobs, by id."""
        wanted = JobFilter(ids=tuple(job_ids), limit=max(len(job_ids), 1))
        return {job.id: job.definition.full_name for job in await self._store.jobs(wanted)}

    async def rebalance(self, *, dry_run: bool = False) -> tuple[ClusterFacts, Rebalance]:
        """Share the jobs out evenly, by weight: write down who gives which jobs to whom. The schedulers do it."""
        facts = await self.facts()
        _refuse_other(facts, "there is nothing to rebalance")
        plan = rebalance(facts)
        if not dry_run:
            for giver in sorted({it.giver for it in plan.shifts}):
                jobs = {it.job_id: Handover(to=it.receiver) for it in plan.shifts if it.giver == giver}
                await self._hand_over(giver, jobs)
        return facts, plan

    async def arrived(self, shifts: Sequence[Shift], tell: Callable[[int], None], within_s: float) -> int:
        """Wait until all jobs have arrived or were deleted, or time is up. Returns how many have arrived."""
        until_s = self._clock.monotonic() + within_s
        while True:
            facts = await self.facts()
            there = sum(facts.owners.get(it.job_id) == it.receiver or it.job_id not in facts.jobs for it in shifts)
            tell(there)
            if there == len(shifts) or self._clock.monotonic() >= until_s:
                return there
            await self._clock.sleep(LOOK_S)

    async def claim(self, name: JobName, *, node: str | None = None, force: bool = False) -> Transfer:
        """Give a job to a scheduler, by default to the idlest. Refused if that has its limit of jobs or is drained;
        with `force` it takes the job above its limit, and is taken off the offline list."""
        job, facts = await self._placed(name), await self.facts()
        _refuse_other(facts, "nobody can claim a job")
        receiver = node or idlest(facts)
        if receiver is None or facts.peer(receiver) is None:
            raise NotFound("no scheduler takes jobs here" if node is None else f"no scheduler {node} takes part here")
        if not force and (found := claim_objections(facts, receiver)):
            raise Refused(f"{'; '.join(found)}. To give it the job all the same: --force")
        owner = facts.owners.get(job.id)
        undrained = receiver in facts.drained
        if undrained:
            await self._store.transact(undrain, [receiver], (Role.SCHEDULER,))
            await self._notify("drain")
        if owner != receiver:
            giver = receiver if owner is None or facts.peer(owner) is None else owner
            await self._hand_over(giver, {job.id: Handover(to=receiver, force=force)})
        return Transfer(job.id, owner, receiver, undrained)

    async def release(self, name: JobName) -> Released:
        """End the claim of a job. Any scheduler that may claim it takes it."""
        job, facts = await self._placed(name), await self.facts()
        _refuse_other(facts, "there is no claim to end")
        entry = await self._entry(f"{JOBS}/{job.id}")
        if entry is None:
            return Released(job.id, None)
        ended = await self._coordination.delete(entry.key, entry.version)
        await self._notify("release")
        return Released(job.id, entry.value if ended else None)

    async def _placed(self, name: JobName) -> Job:
        """Return the job of that name. Raises Refused if it does not fire by itself, and so needs no owner."""
        found = await self._store.named([name])
        if not found:
            raise NotFound(f"there is no job {name}; see: rota job list")
        if not found[0].is_placed:
            raise Refused(
                f"job {name} is {found[0].state} and needs no owner: only jobs that fire by themselves have one"
            )
        return found[0]

    async def _hand_over(self, giver: str, jobs: Mapping[int, Handover]) -> None:
        """Add jobs to the list that `giver` hands over. Retries when somebody else writes the list at the same time."""
        for _ in range(TRIES):
            entry = await self._entry(handover_key(giver))
            known = {} if entry is None else read_handover(entry)
            value, version = write_handover({**known, **jobs}), 0 if entry is None else entry.version
            if await self._coordination.put(handover_key(giver), value, version=version) is not None:
                return
        raise Refused(f"the hand-overs of {giver} change all the time; try again")


def _refuse_other(facts: ClusterFacts, what: str) -> None:
    """Raise Refused unless the placement is `claim`: no other has owners that change one by one."""
    if facts.placement is Placement.CLAIM:
        return
    if not facts.peers:
        raise Refused(f"no scheduler takes part here: {what}; start one with: rota node start")
    raise Refused(f"the placement here is {facts.placement or 'none'}, which has no claims: {what}")
