"""Fire: record what due jobs owe. Apply, pause and delete settle their jobs with the same `settle` first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.core.conclude import conclude
from rota.core.overlap import Floor
from rota.core.owed import SLOTS_MAX, Owed, owed
from rota.model.job import Definition, Job, lane_of, overlap_key
from rota.model.plan import Facts, JobChange, NewItem, NewRun, Plan
from rota.model.states import Cause, RunState, SkipReason
from rota.model.trigger import Instant
from rota.model.value import Value
from rota.model.work import Rate

ROUND_MAX = 10 * SLOTS_MAX
"""How many slots one transaction decides on; the jobs that are left are due still, and come next."""


class Fire(Value, frozen=True, kw_only=True):
    """Fire every job of the batch that is due."""

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {own_key(job) for job in jobs}

    def decide(self, facts: Facts) -> Plan:
        floor = Floor(facts.crowds)
        changes: list[JobChange] = []
        runs: list[NewRun] = []
        slots = 0
        for job in facts.jobs:
            if job.is_due(facts.now) and slots < ROUND_MAX:
                after, more = settle_round(job, facts.now, floor)
                changes.append(JobChange(was=job, now=after))
                runs += more
                slots += sum(run.slots for run in more)
        return conclude(facts, floor, changes, runs)


def settle(job: Job, now: datetime, floor: Floor) -> tuple[Job, list[NewRun]]:
    """Record everything the job owes until now; the job comes back with its next instant."""
    runs: list[NewRun] = []
    while job.is_due(now):
        job, more = settle_round(job, now, floor)
        runs += more
    return job, runs


def settle_round(job: Job, now: datetime, floor: Floor) -> tuple[Job, list[NewRun]]:
    """Record what a due job owes, at most `SLOTS_MAX` slots of it."""
    due = owed(job, now)
    key = own_key(job)
    runs = [
        *_skipped(job, key, due.missed, SkipReason.MISFIRE),
        *_skipped(job, key, due.closed, SkipReason.CALENDAR),
        *(_start(job, key, instant, rank, due, now, floor) for rank, instant in enumerate(due.starts)),
    ]
    settled_at = due.settled_at if job.settled_at is None else max(job.settled_at, due.settled_at)
    return msgspec.structs.replace(job.armed(due.next), settled_at=settled_at), runs


def own_key(job: Job) -> str:
    return overlap_key(job.id, job.definition, job.definition.params)


def new_items(
    job_id: int, definition: Definition, not_before_at: datetime, due_at: datetime, late_rate: Rate | None = None
) -> tuple[NewItem, ...]:
    """The items of a job's first tasks. They should start within so long of the instant they were due at."""
    return tuple(
        NewItem(
            task=task.name,
            lane=lane_of(job_id, definition, task, late_rate),
            hold_s=task.hold_s,
            not_before_at=not_before_at,
            start_by_at=due_at + timedelta(seconds=task.start_within_s),
        )
        for task in definition.tasks
    )


def _start(job: Job, key: str, instant: Instant, rank: int, due: Owed, now: datetime, floor: Floor) -> NewRun:
    state, reason = floor.admit(key, job.definition.overlap)
    if state is RunState.SKIPPED:
        return _slot_run(job, (instant,), key, state, reason, ())
    not_before, rate, per_s = now, None, job.definition.misfire.per_s
    if rank < due.catching_up and per_s is not None:  # spread, and held to the rate however late they can begin
        not_before, rate = now + timedelta(seconds=rank / per_s), Rate.per_second(per_s)
    items = new_items(job.id, job.definition, not_before, instant.slot_at, rate)
    return _slot_run(job, (instant,), key, state, reason, items)


def _skipped(job: Job, key: str, slots: Sequence[Instant], reason: SkipReason) -> list[NewRun]:
    """One row for each slot; those beyond `backlog_max`, the oldest, share one."""
    if not slots:
        return []
    many = max(len(slots) - job.definition.backlog_max, 0)
    lines = [slots[:many], *((slot,) for slot in slots[many:])]
    return [_slot_run(job, line, key, RunState.SKIPPED, reason, ()) for line in lines if line]


def _slot_run(
    job: Job,
    slots: Sequence[Instant],
    key: str,
    state: RunState,
    reason: SkipReason | None,
    items: tuple[NewItem, ...],
) -> NewRun:
    first, last = slots[0], slots[-1]
    return NewRun(
        job_id=job.id,
        version=job.version,
        cause=Cause.SLOT,
        key=_key(first) if len(slots) == 1 else f"{_key(first)}..{_key(last)}",
        overlap_key=key,
        state=state,
        reason=reason,
        slot_at=first.slot_at,
        last_slot_at=last.slot_at if len(slots) > 1 else None,
        slots=len(slots),
        due_at=last.due_at,
        items=items,
    )


def _key(instant: Instant) -> str:
    return instant.slot_at.isoformat(timespec="microseconds")
