"""Show what a job will do: its next instants as the wall clock shows them, with the marks of a clock that jumps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import chain, islice

from rota.core.owed import seed_of
from rota.core.time import cron
from rota.core.time.instants import after_end, upcoming
from rota.core.time.slots import MICRO, time_of_day
from rota.core.time.zones import DAY_S, Stretch, WallClock, wall_clock, zone
from rota.errors import InvalidInput
from rota.model.job import Definition
from rota.model.moment import micros, moment
from rota.model.trigger import Cron, Endless, Instant, Rule, Schedule, Window
from rota.model.value import Value

COUNT_MAX = 1000


class Preview(Value, frozen=True, kw_only=True):
    """One coming instant. `mark` says what the clock does there, `skipped` why the slot will not run."""

    instant: Instant
    local_at: datetime
    mark: str = ""
    skipped: str = ""


def preview(
    definition: Definition, after: datetime, count: int, *, pending: Instant | None = None
) -> tuple[Preview, ...]:
    """The instants of a job that are due after `after`; `pending` is the one that it waits for, if it is stored.

    Where they follow the end of a run, every run is taken to end as it starts.
    """
    if not 1 <= count <= COUNT_MAX:
        raise InvalidInput.of("count", f"must be from 1 to {COUNT_MAX}")
    coming = _coming(definition, after) if pending is None else _going_on(definition, pending, after)
    seed = seed_of(definition)
    return tuple(_shown(definition.schedule, instant, seed) for instant in islice(coming, count))


def _coming(definition: Definition, after: datetime) -> Iterator[Instant]:
    """Return the instants of a job that is created at `after`."""
    schedule, seed = definition.schedule, seed_of(definition)
    return _ends(schedule, after, seed) if definition.follows_ends else upcoming(schedule, after, seed=seed)


def _going_on(definition: Definition, pending: Instant, after: datetime) -> Iterator[Instant]:
    """Return the instants from the pending slot on. With jitter, a slot before `after` can be due after it."""
    if pending.due_at > after:
        rest = _coming(definition, pending.due_at if definition.follows_ends else pending.slot_at)
        return chain((pending,), rest)
    if definition.follows_ends:
        return _coming(definition, after)
    before = after - timedelta(seconds=definition.schedule.jitter_s)
    return (it for it in _coming(definition, max(pending.slot_at, before)) if it.due_at > after)


def _ends(schedule: Schedule, ended_at: datetime, seed: str) -> Iterator[Instant]:
    while (instant := after_end(schedule, ended_at, seed=seed)) is not None:
        yield instant
        ended_at = instant.due_at


def _shown(schedule: Schedule, instant: Instant, seed: str) -> Preview:
    rule = schedule.rule
    name = rule.zone if isinstance(rule, Cron | Window | Endless) else "UTC"
    return Preview(
        instant=instant,
        local_at=instant.slot_at.astimezone(zone(name)),
        mark=_mark(rule, wall_clock(name), micros(instant.slot_at) // MICRO, seed),
        skipped=_skipped(schedule, instant),
    )


def _skipped(schedule: Schedule, instant: Instant) -> str:
    calendar = schedule.calendar
    if calendar is None or calendar.is_open(instant.slot_at.astimezone(zone(calendar.zone)).date()):
        return ""
    return f"calendar {calendar.name}: closed"


def _mark(rule: Rule, clock: WallClock, at: int, seed: str) -> str:
    here = clock.stretch(at)
    wall = at + here.offset
    missing = _missing(rule, here, seed) if at == here.since else None
    if missing is not None:
        return f"gap: {_time(missing)} does not exist, moved to {_time(wall)}"
    if wall < here.seen:
        return f"fold: second of two {_time(wall)}"
    if clock.first(at + 1, lambda shown: wall if shown <= wall else None, fixed=False) is not None:
        return f"fold: first of two {_time(wall)}"
    return ""


def _missing(rule: Rule, here: Stretch, seed: str) -> int | None:
    """The first wall time of the rule in the gap at the begin of a stretch."""
    wanted: int | None = None
    match rule:
        case Cron(expression=expression):
            parsed = cron.parse(expression, seed)
            wanted = None if parsed.is_interval else parsed.wall_from(here.seen)
        case Window(opens=opens):
            wanted = here.seen + (time_of_day(opens) - here.seen) % DAY_S
    return wanted if wanted is not None and wanted < here.opening else None


def _time(wall: int) -> str:
    return moment(wall * MICRO).strftime("%H:%M:%S" if wall % 60 else "%H:%M")
