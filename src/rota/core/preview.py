"""Show what a job will do: its next instants as the wall clock shows them, with the marks of a clock that jumps."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from rota.core import cron
from rota.core.instants import after_end, upcoming
from rota.core.owed import seed_of
from rota.core.slots import MICRO, time_of_day
from rota.core.zones import DAY_S, Stretch, WallClock, wall_clock, zone
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


def preview(definition: Definition, after: datetime, count: int) -> tuple[Preview, ...]:
    """The next instants of a job. Where they follow the end of a run, every run is taken to end as it starts."""
    if not 1 <= count <= COUNT_MAX:
        raise InvalidInput.of("count", f"must be from 1 to {COUNT_MAX}")
    schedule, seed = definition.schedule, seed_of(definition)
    coming = _ends(schedule, after, seed) if definition.follows_ends else upcoming(schedule, after, seed=seed)
    return tuple(_shown(schedule, instant, seed) for instant in islice(coming, count))


def _ends(schedule: Schedule, ended_at: datetime, seed: str) -> Iterator[Instant]:
    while (instant := after_end(schedule, ended_at, seed=seed)) is not None:
        yield instant
        ended_at = instant.due_at


def _shown(schedule: Schedule, instant: Instant, seed: str) -> Preview:
    name = _zone_of(schedule.rule)
    return Preview(
        instant=instant,
        local_at=instant.slot_at.astimezone(zone(name)),
        mark=_mark(schedule.rule, wall_clock(name), micros(instant.slot_at) // MICRO, seed),
        skipped=_skipped(schedule, instant),
    )


def _zone_of(rule: Rule) -> str:
    return rule.zone if isinstance(rule, Cron | Window | Endless) else "UTC"


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
