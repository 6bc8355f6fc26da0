"""The cluster: share jobs out anew, give one job to a scheduler, end the claim of one, wait until jobs have arrived;
pause the firing of everything, of a tenant or of a project, and resume it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from rota.control.survey import ClusterSurvey, Family
from rota.control.values import Shape, fields_of, iso
from rota.coordinators.recipes import handover_key, read_handover, write_handover
from rota.core.cluster import ClusterFacts, Rebalance, Shift, claim_objections, idlest, rebalance
from rota.core.findings import Finding
from rota.errors import InvalidInput, NotFound, Refused
from rota.model.cluster import Drain, Handover, Hold, Peer, Placement, Role
from rota.model.folders import JOBS
from rota.model.job import Job, JobName
from rota.model.plan import JobFilter
from rota.transactions.change import hold, unhold
from rota.transactions.members import undrain

LOOK_S = 0.25
TRIES = 20
"""How often an entry is written anew when its giver wrote at the same time."""
SUGGEST_MAX = 1000
"""How many jobs are looked at for the name that was meant."""
QUOTA = "quota:"
FIRST = 10
"""How many jobs are named where there may be many."""


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


class HoldControl(Family):
    async def hold(self, tenant: str = "", project: str = "") -> tuple[Hold, ...]:
        """Let nothing of a project of a tenant, of a tenant, or of all fire, until told otherwise. Runs that were fired
        go on, and may be started by hand. Says all that is held then. Raises NotFound for what has neither jobs nor a
        quota: a pause of a misspelt name would hold nothing."""
        _check_scope(tenant, project)
        await self._refuse_unknown(tenant, project)
        await hold(self._store, tenant, project)
        return await self.all()

    async def _refuse_unknown(self, tenant: str, project: str) -> None:
        if not tenant or await self._has_jobs(tenant, project or None):
            return
        from rota.definitions.report import suggestion

        tenants = await self._tenants()
        if tenant not in tenants and not await self._has_jobs(tenant, None):
            raise NotFound(f"there is no tenant {tenant}{suggestion(tenant, tenants)}; see: rota tenant list")
        if project:
            known = {it.definition.project for it in await self._jobs_of(tenant)}
            raise NotFound(f"tenant {tenant} has no project {project}{suggestion(project, known)}; see: rota job list")

    async def _has_jobs(self, tenant: str, project: str | None) -> bool:
        return bool(await self._store.jobs(JobFilter(tenant=tenant, project=project, limit=1)))

    async def _jobs_of(self, tenant: str | None) -> Sequence[Job]:
        return await self._store.jobs(JobFilter(tenant=tenant, limit=SUGGEST_MAX))

    async def _tenants(self) -> set[str]:
        """Return tenants with a quota and tenants of some jobs, to suggest the name that was meant."""
        limits = await self._store.limits()
        quotas = {it.name.removeprefix(QUOTA).partition("/")[0] for it in limits if it.name.startswith(QUOTA)}
        return quotas | {it.definition.tenant for it in await self._jobs_of(None)}

    async def unhold(self, tenant: str = "", project: str = "") -> bool:
        """Let it fire again, and what fell due meanwhile by the misfire policies of its jobs. Says whether it was
        held; a wider or narrower scope stays as it is."""
        _check_scope(tenant, project)
        return await self._store.transact(unhold, tenant, project)

    async def all(self) -> tuple[Hold, ...]:
        return await self._store.holds()

    async def on(self, name: JobName) -> tuple[Hold, ...]:
        """Return the holds that keep a job from firing."""
        return tuple(it for it in await self.all() if it.covers(name))


def _check_scope(tenant: str, project: str) -> None:
    from rota.definitions.assignment import check_names

    if project and not tenant:
        raise InvalidInput.of("project", "a project belongs to a tenant; name it TENANT/PROJECT")
    check_names({field: name for field, name in (("tenant", tenant), ("project", project)) if name})


def cluster_shape(seen: ClusterFacts, names: Mapping[int, JobName]) -> Shape:
    first = [str(names.get(it, it)) for it in seen.unowned[:FIRST]]
    return {
        "at": iso(seen.now),
        "placement": None if seen.placement is None else str(seen.placement),
        "jobs": len(seen.jobs),
        "active": len(seen.active),
        "spare": seen.spare if seen.placement is Placement.CLAIM else None,
        "margin": seen.margin if seen.placement is Placement.CLAIM else None,
        "unowned": {"count": len(seen.unowned), "first": first},
        "leader": seen.leader,
        "epoch": None if seen.plan is None else seen.plan.epoch,
        "schedulers": [_peer_shape(seen, peer) for peer in seen.peers],
        "handovers": [
            {"job_id": job_id, "from": giver, "to": it.to, "force": it.force}
            for giver, jobs in seen.handovers.items()
            for job_id, it in jobs.items()
        ],
        "drained": [drain_shape(it) for it in seen.drains],
        "paused": [hold_shape(it) for it in seen.holds],
    }


def _peer_shape(seen: ClusterFacts, peer: Peer) -> Shape:
    return {
        "name": peer.name,
        "state": str(seen.state_of(peer)),
        "address": peer.address or None,
        "version": peer.version,
        "held": seen.held[peer.name],
        "limit": seen.limits.get(peer.name),
        **fields_of(peer, "alarm", "faults", "weight", "busy", "epoch"),
        "range": peer.range or None,
        "unreachable": list(peer.unreachable),
    }


def drain_shape(it: Drain) -> Shape:
    return fields_of(it, "name", "roles", "keep", "deadline_at")


def hold_shape(it: Hold) -> Shape:
    return {"tenant": it.tenant or None, "project": it.project or None, "at": iso(it.held_at), "actor": it.actor}


def paused_shape(tenant: str, project: str, held: Iterable[Hold]) -> Shape:
    """The scope that was asked about (empty: everything), and all that is paused."""
    return {"tenant": tenant or None, "project": project or None, "paused": [hold_shape(it) for it in held]}


def rebalanced_shape(seen: ClusterFacts, plan: Rebalance, arrived: int, *, dry_run: bool) -> Shape:
    """Who has how many jobs before and after, and the moves between."""
    return {
        "schedulers": [
            {
                "name": it.name,
                "held_before": plan.before[it.name],
                "held_after": plan.after[it.name],
                "limit": seen.limits[it.name],
                "alarm": it.alarm,
            }
            for it in seen.active
        ],
        "moves": [{"job_id": it.job_id, "from": it.giver, "to": it.receiver} for it in plan.shifts],
        "dry_run": dry_run,
        "arrived": arrived,
    }


def examined_shape(found: Iterable[Finding], repaired: Sequence[str], *, healthy: bool) -> Shape:
    return {"findings": [finding_shape(it) for it in found], "repaired": list(repaired), "healthy": healthy}


def finding_shape(it: Finding) -> Shape:
    named = {"severity": str(it.severity), "code": it.code, "about": it.about or None}
    return {**named, "what": it.what, "why": it.why, "todo": it.todo or None}


def claimed_shape(name: JobName, given: Transfer, *, arrived: bool) -> Shape:
    """A job that goes to a scheduler, and whether it is there already."""
    return {
        "job": str(name),
        "from": given.giver,
        "to": given.receiver,
        "arrived": arrived,
        "undrained": given.undrained,
    }


def released_shape(name: JobName, released: Released) -> Shape:
    return {"job": str(name), "released_by": released.owner}
