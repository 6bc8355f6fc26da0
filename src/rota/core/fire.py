"""Decide what a job owes at an instant: which slots run, which are skipped and why, and when it is due next.

The window of a decision is [next_fire_at, now], both by the store's clock, so nothing is decided early. Every slot in
it is recorded exactly once: as a run, as a skipped run, or within one row that stands for a long line of missed ones.
`Fire` decides for due jobs; apply, pause and delete settle their job with the same `settle` first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

import msgspec

from rota.core.instants import after_end, upcoming
from rota.core.overlap import Floor
from rota.core.zones import zone
from rota.model.job import Definition, Job, MisfirePolicy, OverlapPolicy, overlap_key
from rota.model.plan import Facts, JobChange, NewItem, NewRun, Plan
from rota.model.states import Cause, RunState, SkipReason
from rota.model.trigger import Instant
from rota.model.value import Value

SLOTS_MAX = 2000
"""How many slots of one job one decision looks at; a longer backlog takes several rounds."""


class Owed(Value, frozen=True, kw_only=True):
    """What a job owes: `starts` shall run (unless an overlap forbids it), the others are recorded as skipped."""

    starts: tuple[Instant, ...]
    closed: tuple[Instant, ...]
    missed: tuple[Instant, ...]
    next: Instant | None
    settled_at: datetime
    catching_up: int = 0
    """How many of the starts are later than the grace."""


def seed_of(definition: Definition) -> str:
    """What spreads a job's jitter and `H` fields: its full name, so that it survives a new version."""
    return f"{definition.tenant}/{definition.project}/{definition.name}"


def owed(job: Job, now: datetime) -> Owed:
    """Say which slots of a due job are due and what becomes of each."""
    assert job.pending is not None, f"job {job.id} is not due"
    due: list[Instant] = []
    following: Instant | None = None
    for following in _line(job.definition, job.pending):
        if following.due_at > now:
            break
        if len(due) == SLOTS_MAX:
            return _long_backlog(job.definition, due, following, now)
        due.append(following)
    else:
        following = None
    return _split(job.definition, due, now, following)


def first_instant(
    definition: Definition, now: datetime, settled_at: datetime | None, *, live: int = 0
) -> Instant | None:
    """Say when a job that was just defined or resumed is due first: after now, and after every slot ever decided.

    A trigger that follows ends takes now for an end, unless a live run will bring a real one.
    """
    seed = seed_of(definition)
    if definition.follows_ends:
        return None if live else after_end(definition.schedule, now, seed=seed)
    after = _before_last_slot(definition, now)
    if settled_at is not None:
        after = max(after, settled_at)
    return next((it for it in upcoming(definition.schedule, after, seed=seed) if it.due_at > now), None)


def settle(job: Job, facts: Facts, floor: Floor) -> tuple[Job, list[NewRun]]:
    """Record everything the job owes until now; the job comes back with its next instant."""
    runs: list[NewRun] = []
    while job.is_due(facts.now):
        job, more = settle_round(job, facts, floor)
        runs += more
    return job, runs


def settle_round(job: Job, facts: Facts, floor: Floor) -> tuple[Job, list[NewRun]]:
    """Record what a due job owes, at most `SLOTS_MAX` slots of it."""
    due = owed(job, facts.now)
    runs = _record(job, due, facts.now, floor)
    settled_at = due.settled_at if job.settled_at is None else max(job.settled_at, due.settled_at)
    job = msgspec.structs.replace(job.armed(due.next), settled_at=settled_at)
    return (_rearm(job, facts, runs) if job.definition.follows_ends else job), runs


class Fire(Value, frozen=True, kw_only=True):
    """Fire every job of the batch that is due."""

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {own_key(job) for job in jobs}

    def decide(self, facts: Facts) -> Plan:
        floor = Floor(facts.crowds)
        changes: list[JobChange] = []
        runs: list[NewRun] = []
        taken: set[str] = set()
        for job in facts.jobs:
            if not job.is_due(facts.now):
                continue
            key = own_key(job)
            if job.definition.overlap.policy is OverlapPolicy.REPLACE and key in taken:
                continue  # it would replace a run that this very plan starts: the next round does that
            taken.add(key)
            after, more = settle_round(job, facts, floor)
            changes.append(JobChange(was=job, now=after))
            runs += more
        return Plan(jobs=tuple(changes), runs=tuple(runs), moves=tuple(floor.moves), cancels=tuple(floor.cancels))


def own_key(job: Job) -> str:
    """The overlap key of a job's own slots."""
    return overlap_key(job.id, job.definition, job.definition.params)


def new_items(definition: Definition, not_before_at: datetime, start_by_at: datetime) -> tuple[NewItem, ...]:
    """The items of a job's first tasks."""
    return tuple(
        NewItem(task=task.name, not_before_at=not_before_at, start_by_at=start_by_at) for task in definition.tasks
    )


def _before_last_slot(definition: Definition, now: datetime) -> datetime:
    """An instant not far before the last slot up to now, which jitter may make due only after now.

    Jitter never carries a slot past the next one, so no earlier slot matters.
    """
    jitter_s = definition.schedule.jitter_s
    back_s = min(1.0, jitter_s)
    while back_s < jitter_s:
        after = now - timedelta(seconds=back_s)
        first = next(upcoming(definition.schedule, after, seed=seed_of(definition)), None)
        if first is None or first.slot_at <= now:
            return after
        back_s = min(back_s * 8, jitter_s)
    return now - timedelta(seconds=jitter_s)


def _line(definition: Definition, pending: Instant) -> Iterator[Instant]:
    yield pending
    if not definition.follows_ends:
        yield from upcoming(definition.schedule, pending.slot_at, seed=seed_of(definition))


def _split(definition: Definition, due: Sequence[Instant], now: datetime, following: Instant | None) -> Owed:
    """Sort due slots into those that start and those that are skipped, by calendar and misfire policy."""
    open_, closed = _by_calendar(definition, due)
    late_before = now - timedelta(seconds=definition.misfire.grace_s)
    if open_ and open_[0].due_at >= late_before:  # nothing is late: by far the most frequent case
        settled_at = due[-1].slot_at
        return Owed(starts=tuple(open_), closed=tuple(closed), missed=(), next=following, settled_at=settled_at)
    missed = [it for it in open_ if it.due_at < late_before]
    on_time = [it for it in open_ if it.due_at >= late_before]
    caught: list[Instant] = []
    match definition.misfire.policy:
        case MisfirePolicy.ONCE if missed and not on_time:
            caught = missed[-1:]
        case MisfirePolicy.ALL:
            caught = missed[-definition.misfire.count_max :]
    skipped = missed[: len(missed) - len(caught)]
    return Owed(
        starts=(*caught, *on_time),
        closed=tuple(closed),
        missed=tuple(skipped),
        next=following,
        settled_at=due[-1].slot_at,
        catching_up=len(caught),
    )


def _long_backlog(definition: Definition, head: Sequence[Instant], rest: Instant, now: datetime) -> Owed:
    """Decide on the older part of a backlog that is too long for one round; `rest` is the first slot after it.

    If all of it is later than the grace, only its newest part could still run; that part is left for a later round.
    """
    late_before = now - timedelta(seconds=definition.misfire.grace_s)
    if head[-1].due_at >= late_before:
        return _split(definition, head, now, rest)
    if definition.misfire.policy is MisfirePolicy.ALL:
        keep = definition.misfire.count_max
        head, rest = head[:-keep], head[-keep]
    open_, closed = _by_calendar(definition, head)
    return Owed(starts=(), closed=tuple(closed), missed=tuple(open_), next=rest, settled_at=head[-1].slot_at)


def _by_calendar(definition: Definition, due: Sequence[Instant]) -> tuple[Sequence[Instant], Sequence[Instant]]:
    calendar = definition.schedule.calendar
    if calendar is None:
        return due, ()
    local = zone(calendar.zone)
    open_: list[Instant] = []
    closed: list[Instant] = []
    for instant in due:
        (open_ if calendar.is_open(instant.slot_at.astimezone(local).date()) else closed).append(instant)
    return open_, closed


def _record(job: Job, due: Owed, now: datetime, floor: Floor) -> list[NewRun]:
    key = own_key(job)
    runs = [*_skipped(job, key, due.missed, SkipReason.MISFIRE), *_skipped(job, key, due.closed, SkipReason.CALENDAR)]
    starts = due.starts
    if job.definition.overlap.policy is OverlapPolicy.REPLACE and len(starts) > 1:
        runs += _skipped(job, key, starts[:-1], SkipReason.OVERLAP)
        starts = starts[-1:]
    runs += [_start(job, key, instant, rank, due, now, floor) for rank, instant in enumerate(starts)]
    return runs


def _start(job: Job, key: str, instant: Instant, rank: int, due: Owed, now: datetime, floor: Floor) -> NewRun:
    state, reason = floor.admit(key, job.definition.overlap)
    not_before = now
    if rank < due.catching_up and job.definition.misfire.per_s is not None:
        not_before = now + timedelta(seconds=rank / job.definition.misfire.per_s)
    items = () if state is RunState.SKIPPED else new_items(job.definition, not_before, instant.slot_at)
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


def _rearm(job: Job, facts: Facts, runs: Sequence[NewRun]) -> Job:
    """A trigger that follows ends waits for the end of a live run; if there is none, now counts as an end."""
    live = facts.live.get(job.id, 0) + sum(run.state.live for run in runs)
    return arm_after_end(job, facts.now) if live == 0 else job


def arm_after_end(job: Job, ended_at: datetime) -> Job:
    """Set the next instant of a job whose trigger follows ends."""
    return job.armed(after_end(job.definition.schedule, ended_at, seed=seed_of(job.definition)))
