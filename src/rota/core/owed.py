"""Decide what a job owes at an instant: which slots start, which are skipped and why, and when it is due next.

The window of a decision is [next_fire_at, now], both by the store's clock, so nothing is decided early. Every slot in
it is decided on exactly once. Whether a slot that starts may really run beside others is `core/overlap.py`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, time, timedelta

from rota.core.time.instants import after_end, upcoming
from rota.core.time.zones import zone
from rota.model.job import Definition, Job, MisfirePolicy
from rota.model.trigger import Calendar, Instant
from rota.model.value import Value

SLOTS_MAX = 2000
"""How many slots of one job one decision looks at; a longer backlog takes several rounds."""

_TICK = timedelta(microseconds=1)


class Owed(Value, frozen=True, kw_only=True):
    """What a job owes: `starts` run unless the overlap policy forbids it; the others are recorded as skipped."""

    starts: tuple[Instant, ...]
    closed: tuple[Instant, ...]
    missed: tuple[Instant, ...]
    next: Instant | None
    settled_at: datetime
    catching_up: int = 0
    """How many of the starts are later than the grace."""


def seed_of(definition: Definition) -> str:
    """Return the seed of a job's jitter and `H` fields: its full name, which a new version keeps."""
    return f"{definition.tenant}/{definition.project}/{definition.name}"


def owed(job: Job, now: datetime) -> Owed:
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


def first_instant(definition: Definition, now: datetime, settled_at: datetime | None = None) -> Instant | None:
    """Say when a job that was just defined or resumed is due first: at a slot after now and after every one decided on.

    A slot that lies before now does not count, even if jitter would make it due only later: the job was not there.
    """
    if definition.follows_ends:
        return instant_after_end(definition, now, settled_at)
    after = now if settled_at is None else max(now, settled_at)
    return next(upcoming(definition.schedule, after, seed=seed_of(definition)), None)


def instant_after_end(definition: Definition, ended_at: datetime, settled_at: datetime | None) -> Instant | None:
    """Say when a job whose trigger follows ends is due again; never at a slot that was decided on before."""
    ended_at = ended_at if settled_at is None else max(ended_at, settled_at)
    return after_end(definition.schedule, ended_at, seed=seed_of(definition))


def kept_slot(pending: Instant | None, definition: Definition, now: datetime) -> Instant | None:
    """The slot that this job has begun, but that jitter has not made due yet. A new version that has it too still owes
    it: otherwise a change between midnight and its jitter would lose the run of that night."""
    if pending is None or pending.slot_at > now or definition.follows_ends:
        return None
    same = next(upcoming(definition.schedule, pending.slot_at - _TICK, seed=seed_of(definition)), None)
    return same if same is not None and same.slot_at == pending.slot_at else None


def _line(definition: Definition, pending: Instant) -> Iterator[Instant]:
    yield pending
    if not definition.follows_ends:
        yield from upcoming(definition.schedule, pending.slot_at, seed=seed_of(definition))


def _split(definition: Definition, due: Sequence[Instant], now: datetime, following: Instant | None) -> Owed:
    """Sort due slots into those that start and those that are skipped, by calendar and misfire policy."""
    open_, closed = _by_calendar(definition, due)
    settled_at = due[-1].slot_at
    late_before = now - timedelta(seconds=definition.misfire.grace_s)
    if open_ and open_[0].due_at >= late_before:  # nothing is late: by far the most frequent case
        return Owed(starts=tuple(open_), closed=tuple(closed), missed=(), next=following, settled_at=settled_at)
    missed = [it for it in open_ if it.due_at < late_before]
    on_time = open_[len(missed) :]
    room = 0 if definition.misfire.policy is MisfirePolicy.ONCE and on_time else _room(definition)
    skipped, caught = _newest(missed, room)
    return Owed(
        starts=(*caught, *on_time),
        closed=tuple(closed),
        missed=skipped,
        next=following,
        settled_at=settled_at,
        catching_up=len(caught),
    )


def _long_backlog(definition: Definition, head: Sequence[Instant], rest: Instant, now: datetime) -> Owed:
    """Decide on the older part of a backlog that is too long for one round; `rest` is the first slot after it.

    What runs of a late part depends on how many newer slots there are that could run instead.
    """
    late_before = now - timedelta(seconds=definition.misfire.grace_s)
    if head[-1].due_at >= late_before:
        return _split(definition, head, now, rest)
    until = now if definition.misfire.policy is MisfirePolicy.ONCE else late_before - _TICK
    room = _room(definition)
    room -= _open_slots(definition, rest, until, room)
    open_, closed = _by_calendar(definition, head)
    skipped, caught = _newest(open_, room)
    return Owed(
        starts=caught,
        closed=tuple(closed),
        missed=skipped,
        next=rest,
        settled_at=head[-1].slot_at,
        catching_up=len(caught),
    )


def _room(definition: Definition) -> int:
    match definition.misfire.policy:
        case MisfirePolicy.SKIP:
            return 0
        case MisfirePolicy.ONCE:
            return 1
        case MisfirePolicy.ALL:
            return definition.misfire.count_max


def _newest(slots: Sequence[Instant], count: int) -> tuple[tuple[Instant, ...], tuple[Instant, ...]]:
    """Split slots into the older ones and the newest few."""
    cut = len(slots) - min(count, len(slots))
    return tuple(slots[:cut]), tuple(slots[cut:])


def _open_slots(definition: Definition, first: Instant, until: datetime, enough: int) -> int:
    """Count the slots on open days from `first` until an instant, up to `enough`. Closed days are jumped over."""
    calendar, count, after = definition.schedule.calendar, 0, first.slot_at - _TICK
    while count < enough:
        for instant in upcoming(definition.schedule, after, seed=seed_of(definition)):
            if instant.due_at > until:
                return count
            if calendar is not None and not _is_open(calendar, instant):
                after = max(instant.slot_at, _end_of_day(calendar, instant))
                break
            count += 1
            if count == enough:
                return count
        else:
            return count
    return count


def _by_calendar(definition: Definition, due: Sequence[Instant]) -> tuple[Sequence[Instant], Sequence[Instant]]:
    calendar = definition.schedule.calendar
    if calendar is None:
        return due, ()
    open_: list[Instant] = []
    closed: list[Instant] = []
    for instant in due:
        (open_ if _is_open(calendar, instant) else closed).append(instant)
    return open_, closed


def _is_open(calendar: Calendar, instant: Instant) -> bool:
    return calendar.is_open(instant.slot_at.astimezone(zone(calendar.zone)).date())


def _end_of_day(calendar: Calendar, instant: Instant) -> datetime:
    """Return the last microsecond of the day of an instant."""
    local = zone(calendar.zone)
    tomorrow = instant.slot_at.astimezone(local).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time(), tzinfo=local).astimezone(instant.slot_at.tzinfo) - _TICK
