"""The JSON of jobs: what is stored of them, what apply does, when they are due, who gets them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rota.control.cluster import Released, Transfer
from rota.control.jobs import Action
from rota.control.shapes.runs import event_shape
from rota.control.shapes.values import Shape, fields_of, trigger
from rota.core.preview import Preview
from rota.model.cluster import Hold
from rota.model.job import Job, JobName
from rota.model.run import Event
from rota.model.value import encode


def job_shape(job: Job) -> Shape:
    made = job.definition
    return {
        "id": job.id,
        "name": str(made.full_name),
        **fields_of(made, "tenant", "project", "title"),
        "state": str(job.state),
        "trigger": trigger(made.schedule.rule),
        **fields_of(job, "next_slot_at", "next_fire_at", "settled_at", "version", "revision", "digest"),
        **fields_of(job, "created_at", "changed_at"),
        "source": job.source or None,
    }


def job_detail_shape(job: Job, holds: Sequence[Hold], history: Iterable[Event]) -> Shape:
    """A job with the pauses that hold it, its definition and its history."""
    return {
        **job_shape(job),
        "held_by": list(map(str, holds)),
        "definition": json.loads(encode(job.definition)),  # as it is stored: without fields that have their default
        "history": [event_shape(it) for it in history],
    }


def applied_shape(plan: Iterable[Action], *, applied: bool, dry_run: bool) -> Shape:
    """What apply does or would do."""
    return {"applied": applied, "dry_run": dry_run, "actions": [action_shape(it) for it in plan]}


def action_shape(it: Action) -> Shape:
    return {"job": str(it.name), **fields_of(it, "action", "fields", "never_due", "reason")}


def preview_shape(it: Preview) -> Shape:
    """One coming instant of a job."""
    return {
        **fields_of(it.instant, "slot_at", "due_at"),
        "local_at": it.local_at.isoformat(),
        **fields_of(it, "mark", "skipped"),
    }


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
