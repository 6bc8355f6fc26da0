"""The JSON of runs: their items, attempts, history and output, and why they wait."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

from rota.control.logs import LogPiece
from rota.control.runs import Cancellation, Explained, RunDetail
from rota.control.shapes.values import Shape, cause, fields_of, iso, lateness
from rota.core.explain import Reason
from rota.model.job import JobName
from rota.model.run import Event, Item, Run
from rota.model.work import Queued

LIVE = ("attempt", "assigned_at", "started_at", "expires_at", "cancel_at")
ATTEMPT = "item_id attempt outcome node round assigned_at started_at ended_at code message log_bytes".split()


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
        **fields_of(run, "key", "state", "reason", "slot_at", "last_slot_at", "slots", "due_at", "created_at"),
        "lateness_s": lateness(run),
        **fields_of(run, "ended_at", "cancel_at", "params"),
    }


def run_detail_shape(detail: RunDetail) -> Shape:
    """A run with its items, attempts and history."""
    items = [item_shape(it, detail.live.get(it.id), detail.node_of(it)) for it in detail.items]
    return {
        **run_shape(detail.run, detail.job),
        "items": items,
        "attempts": [fields_of(it, *ATTEMPT) for it in detail.attempts],
        "history": [event_shape(it) for it in detail.history],
    }


def item_shape(item: Item, live: Queued | None = None, node: str | None = None) -> Shape:
    """An item: as it is kept, and what is live of it."""
    return {
        **fields_of(item, "id", "task", "index"),
        **fields_of(item if live is None else live, "state", "not_before_at"),
        **fields_of(item, "start_by_at", "number"),
        "info": None if item.info is None else json.loads(item.info),
        "node": node,
        **(dict.fromkeys(LIVE) if live is None else fields_of(live, *LIVE)),
        "ended_at": iso(item.ended_at),
        "result": item.value,
        **fields_of(item, "message", "traceback"),
    }


def event_shape(event: Event) -> Shape:
    return fields_of(event, "id", "at", "kind", "actor", "item_id", "data")


def cancelled_shape(cancelled: Cancellation, names: Mapping[int, JobName]) -> Shape:
    """The runs that were cancelled, and how many of their items ended at once or were asked to stop."""
    return {
        "runs": [run_shape(run, names.get(run.job_id)) for run in cancelled.runs],
        "items_cancelled": cancelled.done.ended,
        "items_asked_to_stop": cancelled.done.asked,
    }


def explained_shape(told: Explained) -> Shape:
    """Why a run waits or has failed."""
    return {"run": told.run.id, "state": str(told.run.state), "reasons": [reason_shape(it) for it in told.reasons]}


def reason_shape(it: Reason) -> Shape:
    return {
        "item_id": it.item_id,
        "task": it.task or None,
        "index": it.index if it.item_id is not None else None,
        "number": it.number,
        "why": str(it.why),
        "text": it.text,
        "until_at": iso(it.until_at),
    }


def log_shape(piece: LogPiece) -> Shape:
    """A piece of output: as `text`, or as `base64` if it is not valid UTF-8."""
    shape: Shape = {"item_id": piece.item.id, "attempt": piece.attempt, "offset": piece.offset}
    try:
        shape["text"] = piece.data.decode()
    except UnicodeDecodeError:
        shape["base64"] = base64.b64encode(piece.data).decode()
    return {**shape, "note": piece.note or None, "why": piece.why or None}
