"""The JSON of jobs, runs, items and history. Every field is always there; instants are ISO 8601 in UTC."""

from __future__ import annotations

import json
from typing import Any

from rota.cli.words import iso, trigger
from rota.model.job import Job, JobName
from rota.model.run import Event, Item, Run
from rota.model.value import encode

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
    }


def definition_shape(job: Job) -> Shape:
    """The definition as it is stored: without the fields that have their default."""
    shape: Shape = json.loads(encode(job.definition))
    return shape


def run_shape(run: Run, job: JobName) -> Shape:
    return {
        "id": run.id,
        "job": str(job),
        "job_id": run.job_id,
        "version": run.version,
        "cause": str(run.cause),
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


def item_shape(item: Item) -> Shape:
    return {
        "id": item.id,
        "task": item.task,
        "index": item.index,
        "state": str(item.state),
        "not_before_at": iso(item.not_before_at),
        "start_by_at": iso(item.start_by_at),
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
