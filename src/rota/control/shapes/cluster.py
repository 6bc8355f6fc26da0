"""The JSON of the cluster: its schedulers, drains and pauses, a rebalance, and what the doctor found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.control.shapes.values import Shape, fields_of, iso
from rota.core.cluster import ClusterFacts, Rebalance
from rota.core.findings import Finding
from rota.model.cluster import Drain, Hold, Peer, Placement
from rota.model.job import JobName

FIRST = 10
"""How many jobs are named where there may be many."""


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
    """What the doctor found and repaired."""
    return {"findings": [finding_shape(it) for it in found], "repaired": list(repaired), "healthy": healthy}


def finding_shape(it: Finding) -> Shape:
    named = {"severity": str(it.severity), "code": it.code, "about": it.about or None}
    return {**named, "what": it.what, "why": it.why, "todo": it.todo or None}
