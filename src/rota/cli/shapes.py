"""The JSON of jobs, runs, items and history. Every field is always there; instants are ISO 8601 in UTC."""

from __future__ import annotations

import json
from typing import Any

from rota.cli.words import cause, iso, trigger
from rota.model.cluster import Peer
from rota.model.job import Job, JobName
from rota.model.node import Node
from rota.model.run import Event, Item, Run
from rota.model.value import encode
from rota.model.work import AttemptRecord, Limit, Queued

Shape = dict[str, Any]


def job_shape(job: Job) -> Shape:
    made = job.definition
    return {
        "id": job.id,
        "name": str(made.full_name),
        "tenant": made.tenant,
        "project": made.project,
        "title": made.title,
        "state": str(job.state),
        "trigger": trigger(made.schedule.rule),
        "next_slot_at": iso(job.next_slot_at),
        "next_fire_at": iso(job.next_fire_at),
        "settled_at": iso(job.settled_at),
        "version": job.version,
        "revision": job.revision,
        "digest": job.digest,
        "created_at": iso(job.created_at),
        "changed_at": iso(job.changed_at),
        "source": job.source or None,
    }


def definition_shape(job: Job) -> Shape:
    """The definition as it is stored: without the fields that have their default."""
    shape: Shape = json.loads(encode(job.definition))
    return shape


def run_shape(run: Run, job: JobName | None) -> Shape:
    """A run; that of a call has the name of the task, that of an assignment none."""
    tenant = job.tenant if job is not None else None if run.work is None else run.work.tenant
    return {
        "id": run.id,
        "job": run.called or None if job is None else str(job),
        "job_id": run.job_id,
        "tenant": tenant,
        "version": run.version,
        "cause": cause(run),
        "key": run.key,
        "state": str(run.state),
        "reason": None if run.reason is None else str(run.reason),
        "slot_at": iso(run.slot_at),
        "last_slot_at": iso(run.last_slot_at),
        "slots": run.slots,
        "due_at": iso(run.due_at),
        "created_at": iso(run.created_at),
        "lateness_s": lateness(run),
        "ended_at": iso(run.ended_at),
        "cancel_at": iso(run.cancel_at),
        "params": run.params,
    }


def lateness(run: Run) -> float:
    """How long after its instant a run was recorded."""
    return round((run.created_at - run.due_at).total_seconds(), 6)


def item_shape(item: Item, live: Queued | None = None, node: str | None = None) -> Shape:
    """An item: as it is kept, and what is live of it."""
    return {
        "id": item.id,
        "task": item.task,
        "index": item.index,
        "state": str(item.state if live is None else live.state),
        "not_before_at": iso(item.not_before_at if live is None else live.not_before_at),
        "start_by_at": iso(item.start_by_at),
        "number": item.number,
        "info": _json(item.info),
        "node": node,
        "attempt": None if live is None else live.attempt,
        "assigned_at": None if live is None else iso(live.assigned_at),
        "started_at": None if live is None else iso(live.started_at),
        "expires_at": None if live is None else iso(live.expires_at),
        "cancel_at": None if live is None else iso(live.cancel_at),
        "ended_at": iso(item.ended_at),
        "result": item.value,
        "message": item.message,
        "traceback": item.traceback,
    }


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)


def attempt_shape(attempt: AttemptRecord) -> Shape:
    return {
        "item_id": attempt.item_id,
        "attempt": attempt.attempt,
        "outcome": str(attempt.outcome),
        "node": attempt.node,
        "round": attempt.round,
        "assigned_at": iso(attempt.assigned_at),
        "started_at": iso(attempt.started_at),
        "ended_at": iso(attempt.ended_at),
        "code": attempt.code,
        "message": attempt.message,
        "log_bytes": attempt.log_bytes,
    }


def limit_shape(limit: Limit) -> Shape:
    return {
        "name": limit.name,
        "cap": limit.cap,
        "weight": limit.weight,
        "rate": None if limit.rate is None else {"max": limit.rate.max, "period_s": limit.rate.period_s},
    }


def node_shape(node: Node) -> Shape:
    joined = node.joined
    return {
        "id": node.id,
        "name": joined.name,
        "state": str(node.state),
        "roles": joined.digests.get("roles", "all"),
        "group": joined.group,
        "number": joined.number or None,
        "seats": joined.seats,
        "busy": node.busy,
        "host": joined.place.host,
        "pid": joined.place.pid,
        "boundary": joined.boundary,
        "version": joined.version,
        "handlers": list(joined.handlers),
        "joined_at": iso(node.joined_at),
        "left_at": iso(node.left_at),
        "lease_until": iso(node.lease_until),
    }


def former_shape(peer: Peer) -> Shape:
    """A scheduler of which nothing is left but what the coordinator remembers."""
    unknown = (
        "id",
        "roles",
        "group",
        "number",
        "seats",
        "seats_taken",
        "busy",
        "pid",
        "boundary",
        "handlers",
        "joined_at",
        "left_at",
        "lease_until",
    )
    told = {"name": peer.name, "state": "offline", "host": peer.address or None, "version": peer.version}
    return {**told, **dict.fromkeys(unknown)}


def event_shape(event: Event) -> Shape:
    return {
        "id": event.id,
        "at": iso(event.at),
        "kind": event.kind,
        "actor": event.actor,
        "item_id": event.item_id,
        "data": event.data,
    }
