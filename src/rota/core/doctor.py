"""Examine the cluster: small checks over facts that were read once.

A finding that may pass by itself counts only if the caller finds it twice (`lasting`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from rota.core.cluster import ClusterFacts, stale_handovers
from rota.core.explain import Why
from rota.core.findings import Finding, Severity, found
from rota.core.placement.layout import Wrong
from rota.core.reach import is_loopback
from rota.model.cluster import Placement, Repair
from rota.model.node import UNABLE, Members, NewNode, Node
from rota.model.states import ItemState
from rota.model.value import Value
from rota.model.work import Queued

SCHEDULERS_MIN = 3
SKEW_S = 1.0
LEASE_OVER_S = 10.0
"""How long after the end of its lease a node should have been rescued."""
READY_S = 60.0
ASSIGNED_S = 30.0
"""How long an item may be ready, or given to a node, without a word of it."""
REPAIRS_KEPT = timedelta(hours=1)
WEAK_BOUNDARIES = ("guardian", "group")
RAISED_RECENTLY = timedelta(days=1)

_STUCK = {
    Why.NEXT: "not_started",
    Why.ASSIGNED: "not_begun",
    Why.NO_EXECUTOR: "not_runnable",
    Why.NO_HANDLER: "not_runnable",
    Why.UNREACHABLE: "not_runnable",
}


class Stuck(Value, frozen=True, kw_only=True):
    """An item that should have moved on, and what `explain` says of it."""

    item_id: int
    run_id: int
    why: Why
    text: str


class Health(Value, frozen=True, kw_only=True):
    """The facts that are examined."""

    cluster: ClusterFacts
    members: Members
    asked_at: datetime
    answered_at: datetime
    """The clock of the host that asks, before and after the store's clock showed `members.now`."""
    weaknesses: tuple[str, ...] = ()
    misplaced: int = 0
    raised: tuple[datetime, str] | None = None
    """When the generation of the store was raised last, and why."""
    wrong: tuple[Wrong, ...] = ()
    """Entries of the coordinator that are not what they should be."""
    repairs: Mapping[str, tuple[Repair, ...]] = {}
    """What each scheduler had to put right in the coordinator of late."""
    stuck: tuple[Stuck, ...] = ()
    unread: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """Records that the release that asks cannot read, and why."""


def examine(health: Health) -> tuple[Finding, ...]:
    """All findings, the worst first."""
    order = list(Severity)
    findings = [it for check in _CHECKS for it in check(health)]
    return tuple(sorted(findings, key=lambda it: order.index(it.severity)))


def lasting(before: Iterable[Finding], after: Iterable[Finding]) -> tuple[Finding, ...]:
    """What still counts at a second look: all of it, but of what may pass only what was there before."""
    known = {(it.code, it.about) for it in before}
    return tuple(it for it in after if not it.passes or (it.code, it.about) in known)


def suspects(queued: Iterable[Queued], now: datetime) -> list[Queued]:
    ready, given = now - timedelta(seconds=READY_S), now - timedelta(seconds=ASSIGNED_S)
    return [
        it
        for it in queued
        if (it.state is ItemState.READY and it.not_before_at <= ready)
        or (it.state is ItemState.ASSIGNED and it.assigned_at is not None and it.assigned_at <= given)
    ]


def skew_s(before: datetime, there: datetime, after: datetime) -> float:
    """How far a clock that showed `before` and `after` is ahead of one that showed `there` in between, at the least: a
    slow answer is not skew."""
    return (before - there).total_seconds() if before > there else min((after - there).total_seconds(), 0.0)


def _told_skew_s(node: Node) -> float | None:
    """How far the clock of a node is ahead of the store's, as it has measured itself."""
    try:
        return float(node.joined.digests.get("skew_s", ""))
    except ValueError:
        return None


def _schedulers(health: Health) -> Iterator[Finding]:
    peers, active = health.cluster.peers, health.cluster.active
    if not peers:
        yield found("no_scheduler", f"no scheduler takes part; {len(health.members.nodes)} nodes are there")
    elif len(active) < SCHEDULERS_MIN:
        take = "only 1 scheduler takes" if len(active) == 1 else f"only {len(active)} schedulers take"
        yield found("few_schedulers", f"{take} jobs; {SCHEDULERS_MIN} or more are better")
    kinds = _by_value({it.name: str(it.placement or "") for it in peers})
    if len(kinds) > 1:
        yield found("differing_placements", f"schedulers differ in placement: {_listed(kinds)}")

    by_faults = _by_value({it.name: str(it.faults) for it in active})
    if len(by_faults) > 1:
        yield found("differing_faults", f"schedulers differ in how many of them may die (n): {_listed(by_faults)}")
    for peer in active:
        if peer.faults < 1:
            yield found("no_faults", f"it plans for {peer.faults} deaths (n)", peer.name)


def _capacity(health: Health) -> Iterator[Finding]:
    cluster = health.cluster
    if cluster.placement is not Placement.CLAIM or not cluster.active:
        return
    if cluster.spare < 0:
        yield found(
            "no_spare", f"the limits of all schedulers are {-cluster.spare} too few for {len(cluster.jobs)} jobs"
        )
    elif cluster.margin < 1:
        yield found("no_margin", "no scheduler may die")


def _owners(health: Health) -> Iterator[Finding]:
    cluster, held = health.cluster, health.cluster.held
    if cluster.unowned and cluster.peers:
        yield found("unowned", f"{len(cluster.unowned)} jobs have no owner")
    for peer in cluster.peers if cluster.placement is Placement.CLAIM else ():
        if peer.held != held[peer.name]:
            yield found("wrong_belief", f"it says {peer.held} jobs, the claims say {held[peer.name]}", peer.name)
    for giver, jobs in stale_handovers(cluster).items():
        yield found("stale_handover", f"{len(jobs)} of its hand-overs lead nowhere", giver)


def _entries(health: Health) -> Iterator[Finding]:
    for it in health.wrong:
        yield found("wrong_entry", f"in the coordinator: {it.why}", it.entry.key)
    for name, repairs in health.repairs.items():
        for repair in repairs:
            if repair.at > health.members.now - REPAIRS_KEPT:
                yield found("repaired", f"at {repair.at:%H:%M:%S}: {repair.what}", name)


def _reach(health: Health) -> Iterator[Finding]:
    for peer in health.cluster.peers:
        for other in peer.unreachable:
            yield found("unreachable", f"{peer.name} cannot reach it", other)
    hosts = {node.joined.place.host for node in health.members.nodes}
    for peer in health.cluster.peers if len(hosts) > 1 else ():
        if peer.address and is_loopback(peer.address):
            yield found("loopback", f"it advertises {peer.address}", peer.name)


def _nodes(health: Health) -> Iterator[Finding]:
    over = health.members.now - timedelta(seconds=LEASE_OVER_S)
    for node in health.members.nodes:
        if node.lease_until is not None and node.lease_until <= over:
            yield found("not_rescued", "its lease is over, and nobody has rescued its items", node.joined.name)
        if why := node.joined.digests.get(UNABLE):
            yield found("unable", f"it cannot execute anything: {why}", node.joined.name)
    versions = _by_value({it.joined.name: it.joined.version for it in health.members.nodes})
    if len(versions) > 1:
        yield found("differing_versions", f"nodes differ in version: {_listed(versions)}")
    zones = _by_value({it.joined.name: it.joined.digests.get("tzdata", "") for it in health.members.nodes})
    if len(zones) > 1:
        yield found("differing_tzdata", f"nodes differ in time-zone data: {_listed(zones)}")


def _clocks(health: Health) -> Iterator[Finding]:
    skews = {it.joined.name: skew for it in health.members.nodes if (skew := _told_skew_s(it)) is not None}
    skews["this host"] = skew_s(health.asked_at, health.members.now, health.answered_at)
    for name, skew in skews.items():
        if abs(skew) > SKEW_S:
            side = "ahead of" if skew > 0 else "behind"
            yield found("clock_skew", f"its clock is {abs(skew):.1f} s {side} the store's", name)


def _store(health: Health) -> Iterator[Finding]:
    for weakness in health.weaknesses:
        yield found("store_setting", weakness, "store")
    if health.raised is not None and health.members.now - health.raised[0] < RAISED_RECENTLY:
        at, why = health.raised
        yield found("history_lost", f"its generation was raised at {at:%Y-%m-%d %H:%M:%S} UTC: {why}", "store")
    if health.misplaced:
        yield found("misplaced", f"{health.misplaced} jobs are listed as wanting an owner, or not, wrongly", "store")


def _items(health: Health) -> Iterator[Finding]:
    for it in health.stuck:
        if it.why in _STUCK:
            yield found(_STUCK[it.why], it.text, f"item {it.item_id} of run {it.run_id}")

    for hold in health.cluster.holds:
        yield found("paused", f"paused by {hold.actor}", str(hold))


def _executors(health: Health) -> Iterator[Finding]:
    executors = [it.joined for it in health.members.nodes if it.joined.seats]
    for kind, names in _by_value({it.name: it.boundary for it in executors}).items():
        code = "weak_boundary" if kind in WEAK_BOUNDARIES else "boundary"
        said = _digests("promise", executors, kind)
        whys = _digests("boundary", executors, kind)
        promise = f": {said}" if said else ""
        why = f"; nothing stronger, for {whys}" if whys else ""
        yield found(code, f"processes are held together by boundary {kind}{promise}{why}", ", ".join(names))

    for words, names in _by_value({it.name: it.digests.get("tasks", "") for it in executors}).items():
        yield found("root_tasks", f"tasks run as {words}", ", ".join(sorted(names)))


def _digests(name: str, executors: Sequence[NewNode], boundary: str) -> str:
    return " | ".join(sorted({it.digests[name] for it in executors if it.boundary == boundary and name in it.digests}))


def _by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Which names have which value, where they have one."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in sorted(values.items()):
        if value:
            names[value].append(name)
    return dict(sorted(names.items()))


def _listed(names: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{value} ({', '.join(its)})" for value, its in names.items())


def _unread(health: Health) -> Iterator[Finding]:
    for record, reason in health.unread.items():
        yield found("unreadable", f"{record} cannot be read: {reason}", record)


_CHECKS = (
    _unread,
    _schedulers,
    _capacity,
    _owners,
    _entries,
    _reach,
    _nodes,
    _clocks,
    _store,
    _items,
    _executors,
)
