"""The cluster as a whole: who has which jobs, what a rebalance would move, and what a drain would leave.

Works on facts that were read once. It decides what an operator may ask for, not who fires a job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime

from rota.core.placement import claim
from rota.core.placement.share import moves
from rota.model.cluster import Drain, Handover, Hold, Peer, Placement, Role, ScopePlan
from rota.model.node import NodeState
from rota.model.value import Value


class ClusterFacts(Value, frozen=True, kw_only=True):
    """What coordinator and store know of the schedulers, read once."""

    now: datetime
    placement: Placement | None = None
    """None: nobody takes part, or each fires whatever is due."""
    jobs: frozenset[int] = frozenset()
    """K is how many these are: stored, enabled, with a trigger."""
    peers: tuple[Peer, ...] = ()
    drains: tuple[Drain, ...] = ()
    holds: tuple[Hold, ...] = ()
    """Scopes of which nothing fires."""
    owners: Mapping[int, str] = {}
    """Whose the jobs are, by claims or by the plan."""
    handovers: Mapping[str, Mapping[int, Handover]] = {}
    """Jobs on their way, by giver."""
    plan: ScopePlan | None = None
    leader: str | None = None
    """Who makes the plan (scope), or has the lock of the newest beat (beat)."""

    @property
    def drained(self) -> frozenset[str]:
        """The schedulers on the offline list, whether they live or not."""
        return frozenset(it.name for it in self.drains if Role.SCHEDULER in it.roles)

    @property
    def active(self) -> tuple[Peer, ...]:
        """The schedulers that count as S."""
        return tuple(peer for peer in self.peers if peer.name not in self.drained)

    @property
    def going(self) -> dict[int, Handover]:
        return {job_id: it for jobs in self.handovers.values() for job_id, it in jobs.items()}

    @property
    def held(self) -> Counter[str]:
        """X of each, counted from what is owned."""
        return Counter(name for job_id, name in self.owners.items() if job_id in self.jobs)

    @property
    def limits(self) -> dict[str, int]:
        """N of each scheduler that may take jobs."""
        return {it.name: claim.limit(len(self.jobs), len(self.active), it.faults) for it in self.active}

    @property
    def spare(self) -> int:
        return claim.spare(len(self.jobs), self.limits.values())

    @property
    def margin(self) -> int:
        """How many more schedulers may die before the others cannot hold all jobs."""
        return claim.margin(len(self.jobs), self.limits.values())

    @property
    def unowned(self) -> tuple[int, ...]:
        """The jobs without an owner, where jobs have owners at all."""
        has_owners = self.placement in (Placement.CLAIM, Placement.SCOPE)
        return tuple(sorted(self.jobs - self.owners.keys())) if has_owners else ()

    def peer(self, name: str) -> Peer | None:
        return next((it for it in self.peers if it.name == name), None)

    def state_of(self, peer: Peer) -> NodeState:
        return NodeState.DRAINING if peer.name in self.drained else NodeState.ONLINE


class Shift(Value, frozen=True, kw_only=True):
    """A job that shall go from one scheduler to another."""

    job_id: int
    giver: str
    receiver: str


class Rebalance(Value, frozen=True, kw_only=True):
    """X of each scheduler before and after, and the jobs that go from one to another for it."""

    before: Mapping[str, int] = {}
    after: Mapping[str, int] = {}
    shifts: tuple[Shift, ...] = ()


def rebalance(facts: ClusterFacts) -> Rebalance:
    """The fewest moves after which everybody has its share, but nobody more than N. What is on its way already counts
    for its receiver, and stays on its way."""
    going = {job_id: it for job_id, it in facts.going.items() if facts.owners.get(job_id) != it.to}
    free: dict[str, list[int]] = {peer.name: [] for peer in facts.active}
    for job_id in sorted(facts.owners.keys() & facts.jobs - going.keys()):
        if facts.owners[job_id] in free:
            free[facts.owners[job_id]].append(job_id)
    arriving = Counter(it.to for job_id, it in going.items() if job_id in facts.jobs)
    loads = {name: len(jobs) + arriving[name] for name, jobs in free.items()}
    held, limits = facts.held, facts.limits
    shifts: list[Shift] = []
    for move in moves(loads, {peer.name: peer.weight for peer in facts.active}, limits):
        taken, free[move.giver] = free[move.giver][: move.jobs], free[move.giver][move.jobs :]
        shifts += [Shift(job_id=it, giver=move.giver, receiver=move.receiver) for it in taken]
    after = Counter(loads)
    after.update(it.receiver for it in shifts)
    after.subtract(it.giver for it in shifts)
    return Rebalance(before={name: held[name] for name in loads}, after=dict(after), shifts=tuple(shifts))


def drain_objections(facts: ClusterFacts, names: Collection[str]) -> list[str]:
    """Why these schedulers should not be drained now: more would be gone than n says may be, or the others could not
    hold all jobs (S0.43)."""
    new = [peer for peer in facts.active if peer.name in names]
    if not new:
        return []
    rest = [peer for peer in facts.active if peer.name not in names]
    gone, bound, count = len(facts.peers) - len(rest), min(peer.faults for peer in new), len(facts.jobs)
    found = []
    if gone > bound:
        found.append(f"{gone} schedulers would be drained at once, and n says that at most {bound} may be missing")
    could = sum(claim.limit(count, len(rest), peer.faults) for peer in rest)
    if could < count:
        found.append(f"the {len(rest)} that would be left could hold {could} of {count} jobs")
    return found


def claim_objections(facts: ClusterFacts, name: str) -> list[str]:
    if name in facts.drained:
        return [f"{name} is on the offline list"]
    held, limit = facts.held[name], facts.limits[name]
    return [f"{name} has {held} jobs, and its limit N is {limit}"] if held >= limit else []


def idlest(facts: ClusterFacts) -> str | None:
    """The scheduler with the fewest jobs for its weight, those on their way to it included."""
    loads = facts.held + Counter(it.to for it in facts.going.values())
    shares = {it.name: loads[it.name] / it.weight for it in facts.active}
    return min(shares, key=lambda name: (shares[name], name), default=None)


def stale_handovers(facts: ClusterFacts) -> dict[str, tuple[int, ...]]:
    """Hand-overs that nobody will tidy up, because their giver is gone, and that lead nowhere, by giver."""
    active, living = {peer.name for peer in facts.active}, {peer.name for peer in facts.peers}
    found = {}
    for giver, jobs in facts.handovers.items():
        dead = [
            it
            for it, to in jobs.items()
            if it not in facts.jobs or to.to not in active or to.to == facts.owners.get(it)
        ]
        if giver not in living and dead:
            found[giver] = tuple(sorted(dead))
    return found
