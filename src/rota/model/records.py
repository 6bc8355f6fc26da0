"""Translate between values and rows: rows are what stores keep, values are what everybody else works with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, overload

import msgspec

from rota.errors import Unreadable
from rota.logger import log
from rota.model.alarm import Alarm, AlarmRule, Delivery
from rota.model.cluster import Drain, Hold, Role
from rota.model.job import Definition, Job
from rota.model.moment import micros, moment
from rota.model.node import UNREADABLE, NewNode, Place
from rota.model.readable import reads
from rota.model.run import Event, Item, Run
from rota.model.states import Cause, ItemState, JobState, Outcome, RunState, SkipReason
from rota.model.tables import AlarmRow, AttemptRow, DeliveryRow, EventRow, QueueRow
from rota.model.value import Value, decode, encode
from rota.model.work import AttemptRecord, Lane, Limit, Queued, Rate, Work

NOWHERE = Place(host="", boot_id="", pid_namespace="", pid=0, pid_started=0)

_JOB_STATES = {str(state): state for state in JobState}
_ITEM_STATES = {str(state): state for state in ItemState}


@overload
def to_us(instant: datetime) -> int: ...
@overload
def to_us(instant: datetime | None) -> int | None: ...
def to_us(instant: datetime | None) -> int | None:
    return None if instant is None else micros(instant)


@overload
def from_us(us: int) -> datetime: ...
@overload
def from_us(us: int | None) -> datetime | None: ...
def from_us(us: int | None) -> datetime | None:
    return None if us is None else moment(us)


def _by_name(row: Any) -> dict[str, Any]:
    """The columns of a row by their names, and its instants as such."""
    return {name: from_us(it) if name.endswith("_at") or name == "at" else it for name, it in row._asdict().items()}


@lru_cache(maxsize=4096)
def _definition(text: str) -> Definition:
    """Definitions change rarely, and are read whenever their jobs are locked."""
    return decode(text, Definition)


@reads("job", lambda row: f"{row[0]} ({row[1]}/{row[2]}/{row[3]})")
def job_of(row: Sequence[Any]) -> Job:
    """A job from a row with every column, in the order of the table."""
    id_, _, _, _, definition, digest, version, revision, state, slot, fire, settled, created, changed, source = tuple(
        row
    )
    return Job(
        id=id_,
        definition=_definition(definition),
        digest=digest,
        version=version,
        revision=revision,
        state=_JOB_STATES[state],
        next_slot_at=from_us(slot),
        next_fire_at=from_us(fire),
        settled_at=from_us(settled),
        created_at=from_us(created),
        changed_at=from_us(changed),
        source=source or "",
    )


@reads("job", lambda row: f"{row[0]}, version {row[1]}")
def definition_of(row: Any) -> Definition:
    """The definition from a row of a version: job, version, definition."""
    return _definition(row.definition)


def advance_row(job: Job) -> dict[str, Any]:
    """What firing changes of a job."""
    return {
        "next_slot_at": to_us(job.next_slot_at),
        "next_fire_at": to_us(job.next_fire_at),
        "settled_at": to_us(job.settled_at),
    }


def job_row(job: Job) -> dict[str, Any]:
    """Every column, in the order of the table."""
    return {
        "id": job.id,
        "tenant": job.definition.tenant,
        "project": job.definition.project,
        "name": job.definition.name,
        "definition": encode(job.definition),
        "digest": job.digest,
        "version": job.version,
        "revision": job.revision,
        "state": str(job.state),
        **advance_row(job),
        "created_at": to_us(job.created_at),
        "changed_at": to_us(job.changed_at),
        "source": job.source,
    }


@reads("run")
def run_of(row: Sequence[Any]) -> Run:
    """A run from a row that begins with every column, in the order of the table."""
    id_, job_id, version, cause, key, overlap_key, state, reason, slot, last_slot, slots, *rest = tuple(row)
    due, created, ended, cancel, params, work, *_ = rest
    return Run(
        id=id_,
        job_id=job_id,
        version=version,
        cause=Cause(cause),
        key=key,
        overlap_key=overlap_key,
        state=RunState(state),
        reason=None if reason is None else SkipReason(reason),
        slot_at=from_us(slot),
        last_slot_at=from_us(last_slot),
        slots=slots,
        due_at=from_us(due),
        created_at=from_us(created),
        ended_at=from_us(ended),
        cancel_at=from_us(cancel),
        params=decode(params, dict),
        work=None if work is None else decode(work, Work),
    )


def run_rows(runs: Iterable[Run]) -> list[tuple[Any, ...]]:
    """Rows in the order of the table's columns."""
    return [_run_row(run) for run in runs]


def _run_row(run: Run) -> tuple[Any, ...]:
    whose = (run.id, run.job_id, run.version, str(run.cause), run.key, run.overlap_key, str(run.state))
    reason = None if run.reason is None else str(run.reason)
    slots = (to_us(run.slot_at), to_us(run.last_slot_at), run.slots)
    instants = (to_us(run.due_at), to_us(run.created_at), to_us(run.ended_at), to_us(run.cancel_at))
    return *whose, reason, *slots, *instants, encode(run.params), None if run.work is None else encode(run.work)


@reads("item")
def item_of(row: Sequence[Any]) -> Item:
    """An item from a row with every column, in the order of the table, and its live state, if it has one."""
    (id_, run_id, task, index, state, not_before, start_by, *rest, live) = tuple(row)
    tenant, number, info, ended, result, message = rest
    return Item(
        id=id_,
        run_id=run_id,
        task=task,
        index=index,
        state=_ITEM_STATES[live or state],
        not_before_at=from_us(not_before),
        start_by_at=from_us(start_by),
        tenant=tenant,
        number=number,
        info=info,
        ended_at=from_us(ended),
        result=result,
        message=message,
    )


ITEM = ("id", "run_id", "task", "index", "state", "not_before_at", "start_by_at")


def item_rows(items: Iterable[Item]) -> list[tuple[Any, ...]]:
    """Rows of new items, in the order of `ITEM`."""
    return [
        (it.id, it.run_id, it.task, it.index, str(it.state), to_us(it.not_before_at), to_us(it.start_by_at))
        for it in items
    ]


@reads("line of history")
def event_of(row: EventRow) -> Event:
    return Event(**_by_name(row) | {"data": decode(row.data, dict)})


def event_rows(events: Iterable[Event]) -> list[tuple[Any, ...]]:
    """Rows in the order of the table's columns."""
    return [
        (it.id, to_us(it.at), it.kind, it.actor, it.job_id, it.run_id, it.item_id, encode(it.data)) for it in events
    ]


@reads("attempt", lambda row: f"{row[0]}.{row[1]}")
def attempt_of(row: AttemptRow) -> AttemptRecord:
    return AttemptRecord(**_by_name(row) | {"outcome": Outcome(row.outcome), "message": row.message or ""})


@reads("lane")
def lane_of(row: Any) -> Lane:
    """A lane from a row with its id and its spec."""
    return decode(row.spec, Lane)


def lane_as_known(row: Any) -> Lane | None:
    """The same. What is understood of a lane of a newer release is enough to count its items, which rounds of this one
    give to nobody; none if nothing is."""
    try:
        return lane_of(row)
    except Unreadable:
        return _lane_in_part(row.spec)


def _lane_in_part(spec: str) -> Lane | None:
    try:
        known = decode(spec, _KnownLane)
    except msgspec.MsgspecError:
        return None
    fields = {name: getattr(known, name) for name in _KnownLane.__struct_fields__}
    return Lane(**fields, handler=UNREADABLE)


class _KnownLane(Value, frozen=True, kw_only=True):
    """What names the limits that a lane counts against, and whom it is for."""

    tenant: str
    quota: str = "default"
    group: str = "default"
    job_id: int = 0
    resources: tuple[str, ...] = ()


@reads("limit")
def limit_of(row: Any) -> Limit:
    rate = None if row.rate_max is None else Rate(max=row.rate_max, period_s=(row.rate_us or 0) / 1_000_000)
    recent = decode(row.recent, tuple[tuple[int, int], ...])
    return Limit(name=row.name, cap=row.cap, weight=row.weight, rate=rate, recent=recent)


def limit_row(limit: Limit) -> tuple[Any, ...]:
    """What is set of a limit: cap, weight, and how many starts in how many microseconds."""
    rate = (None, None) if limit.rate is None else (limit.rate.max, round(limit.rate.period_s * 1_000_000))
    return limit.cap, limit.weight, *rate


@reads("item of the queue")
def queued_of(row: QueueRow) -> Queued:
    fields = _by_name(row) | {"state": ItemState(row.state), "hold_s": row.hold_us / 1_000_000}
    del fields["hold_us"]
    return Queued(**fields)


def drain_of(row: Any) -> Drain:
    words = row.roles.split(",") if row.roles else list(Role)
    roles = tuple(role for role in Role if role in words)  # what else a newer release drains is its own affair
    return Drain(name=row.name, roles=roles, keep=row.keep, deadline_at=from_us(row.deadline_at))


def hold_of(row: Any) -> Hold:
    return Hold(tenant=row.tenant, project=row.project, held_at=from_us(row.at), actor=row.actor)


@lru_cache(maxsize=1000)
def joined_of(name: str, text: str) -> NewNode:
    """What a node says of itself; that changes rarely, and is asked for in every round. Of one that is not to be
    understood, its name is known: it is there and may be rescued, but nothing is given to it from here."""
    try:
        return decode(text, NewNode)
    except msgspec.MsgspecError as fault:
        log.error("store.unreadable", record=f"node {name}", reason=str(fault))  # noqa: TRY400 - no traceback
        return NewNode(name=name, incarnation="", place=NOWHERE, version=UNREADABLE)


def clean(text: str) -> str | None:
    """Text of unknown origin as every database takes it: no NUL, no half of a character; nothing for an empty one."""
    if not text or (text.isascii() and "\0" not in text):
        return text or None
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


@reads("alarm rule")
def alarm_rule_of(row: Any) -> AlarmRule:
    return decode(row.data, AlarmRule)


@reads("alarm", lambda row: row.id)
def alarm_in(row: Any) -> Alarm:
    """The alarm in a row that has its data."""
    return decode(row.data, Alarm)


def delivery_of(both: tuple[DeliveryRow, AlarmRow]) -> Delivery:
    row, alarm = both
    fields = _by_name(row) | {"alarm": alarm_in(alarm), "arrived": bool(row.arrived)}
    del fields["alarm_id"]
    return Delivery(**fields)
