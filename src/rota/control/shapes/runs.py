"""The JSON of runs: their items, attempts, history and output, and why they wait."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from rota.control.logs import LogPiece
from rota.control.runs import Cancellation, Explained, RunDetail
from rota.control.shapes.values import Shape, cause, iso, lateness
from rota.core.explain import Reason
from rota.model.job import JobName
from rota.model.run import Event, Item, Run
from rota.model.work import AttemptRecord, Queued


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


def run_detail_shape(detail: RunDetail) -> Shape:
    """A run with its items, attempts and history."""
    items = [item_shape(it, detail.live.get(it.id), detail.node_of(it)) for it in detail.items]
    return {
        **run_shape(detail.run, detail.job),
        "items": items,
        "attempts": [attempt_shape(it) for it in detail.attempts],
        "history": [event_shape(it) for it in detail.history],
    }


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


def event_shape(event: Event) -> Shape:
    return {
        "id": event.id,
        "at": iso(event.at),
        "kind": event.kind,
        "actor": event.actor,
        "item_id": event.item_id,
        "data": event.data,
    }


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
