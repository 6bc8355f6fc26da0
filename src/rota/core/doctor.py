"""Examine the cluster: small checks over facts that were read once.

What may pass by itself in a moment is for the caller to look at twice: only what is still there then counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from ipaddress import ip_address

from rota.core.cluster import ClusterFacts, stale_handovers
from rota.core.explain import Why
from rota.core.findings import Finding, Severity, found
from rota.model.cluster import Placement
from rota.model.node import Members, Node
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
WEAK_BOUNDARIES = ("guardian", "group")
_STUCK = {
    Why.NEXT: "not_started",
    Why.ASSIGNED: "not_begun",
    Why.NO_EXECUTOR: "not_runnable",
    Why.NO_HANDLER: "not_runnable",
}


class Stuck(Value, frozen=True, kw_only=True):
    """An item that should have moved on, and what `explain` says of it."""

    item_id: int
    run_id: int
    why: Why
    text: str


class Health(Value, frozen=True, kw_only=True):
    """What is examined."""

    cluster: ClusterFacts
    members: Members
    host_at: datetime
    """The clock of the host that asks, when the store's clock showed `members.now`."""
    weaknesses: tuple[str, ...] = ()
    misplaced: int = 0
    stuck: tuple[Stuck, ...] = ()


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
    """Items that were ready, or given to a node, for too long."""
    ready, given = now - timedelta(seconds=READY_S), now - timedelta(seconds=ASSIGNED_S)
    return [
        it
        for it in queued
        if (it.state is ItemState.READY and it.not_before_at <= ready)
        or (it.state is ItemState.ASSIGNED and it.assigned_at is not None and it.assigned_at <= given)
    ]


def skew_s(node: Node) -> float | None:
    """How far the clock of a node was ahead of the store's when it joined, as far as it told."""
    try:
        wall = datetime.fromisoformat(node.joined.digests.get("wall", ""))
    except ValueError:
        return None
    return (wall - node.joined_at).total_seconds()


def _schedulers(health: Health) -> Iterator[Finding]:
    peers, active = health.cluster.peers, health.cluster.active
    if not peers:
        yield found("no_scheduler", f"no scheduler takes part; {len(health.members.nodes)} nodes are there")
    elif len(active) < SCHEDULERS_MIN:
        yield found("few_schedulers", f"{len(active)} of {SCHEDULERS_MIN} or more schedulers take jobs")
    kinds = _by_value({it.name: str(it.placement or "") for it in peers})
    if len(kinds) > 1:
        yield found("differing_placements", f"schedulers differ in placement: {_listed(kinds)}")


def _faults(health: Health) -> Iterator[Finding]:
    by_faults = _by_value({it.name: str(it.faults) for it in health.cluster.active})
    if len(by_faults) > 1:
        yield found("differing_faults", f"schedulers differ in n: {_listed(by_faults)}")
    for peer in health.cluster.active:
        if peer.faults < 1:
            yield found("no_faults", f"its n is {peer.faults}", peer.name)


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


def _reach(health: Health) -> Iterator[Finding]:
    for peer in health.cluster.peers:
        for other in peer.unreachable:
            yield found("unreachable", f"{peer.name} cannot reach it", other)
    hosts = {node.joined.place.host for node in health.members.nodes}
    for peer in health.cluster.peers if len(hosts) > 1 else ():
        if peer.address and _is_loopback(peer.address):
            yield found("loopback", f"it advertises {peer.address}", peer.name)


def _nodes(health: Health) -> Iterator[Finding]:
    over = health.members.now - timedelta(seconds=LEASE_OVER_S)
    for node in health.members.nodes:
        if node.lease_until is not None and node.lease_until <= over:
            yield found("not_rescued", "its lease is over, and nobody has rescued its items", node.joined.name)
    versions = _by_value({it.joined.name: it.joined.version for it in health.members.nodes})
    if len(versions) > 1:
        yield found("differing_versions", f"nodes differ in version: {_listed(versions)}")
    zones = _by_value({it.joined.name: it.joined.digests.get("tzdata", "") for it in health.members.nodes})
    if len(zones) > 1:
        yield found("differing_tzdata", f"nodes differ in time-zone data: {_listed(zones)}")


def _clocks(health: Health) -> Iterator[Finding]:
    skews = {it.joined.name: skew for it in health.members.nodes if (skew := skew_s(it)) is not None}
    skews["this host"] = (health.host_at - health.members.now).total_seconds()
    for name, skew in skews.items():
        if abs(skew) > SKEW_S:
            side = "ahead of" if skew > 0 else "behind"
            yield found("clock_skew", f"its clock is {abs(skew):.1f} s {side} the store's", name)


def _store(health: Health) -> Iterator[Finding]:
    for weakness in health.weaknesses:
        yield found("store_setting", weakness, "store")
    if health.misplaced:
        yield found("misplaced", f"{health.misplaced} jobs are listed as wanting an owner, or not, wrongly", "store")


def _items(health: Health) -> Iterator[Finding]:
    for it in health.stuck:
        if it.why in _STUCK:
            yield found(_STUCK[it.why], it.text, f"item {it.item_id} of run {it.run_id}")


def _holds(health: Health) -> Iterator[Finding]:
    for hold in health.cluster.holds:
        yield found("paused", f"paused by {hold.actor}", str(hold))


def _boundaries(health: Health) -> Iterator[Finding]:
    executors = [it.joined for it in health.members.nodes if it.joined.seats]
    for kind, names in _by_value({it.name: it.boundary for it in executors}).items():
        code = "weak_boundary" if kind in WEAK_BOUNDARIES else "boundary"
        whys = {it.digests["boundary"] for it in executors if it.boundary == kind and "boundary" in it.digests}
        why = f"; nothing stronger, for {' | '.join(sorted(whys))}" if whys else ""
        yield found(code, f"its processes are held together by boundary {kind}{why}", ", ".join(names))


def _by_value(values: Mapping[str, str]) -> dict[str, list[str]]:
    """Which names have which value, where they have one."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, value in sorted(values.items()):
        if value:
            names[value].append(name)
    return dict(sorted(names.items()))


def _listed(names: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{value} ({', '.join(its)})" for value, its in names.items())


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]") or address
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_CHECKS = (_schedulers, _faults, _capacity, _owners, _reach, _nodes, _clocks, _store, _items, _holds, _boundaries)
