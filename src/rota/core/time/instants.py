"""When a schedule is due: its slots, each with its share of the jitter.

Pure: the same arguments give the same instants on every machine that has the same zone data. `check` says what is
wrong with a schedule, `parse_endless` reads the text form of an endless trigger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial

from rota.core.time import cron, endless
from rota.core.time.endless import parse_endless
from rota.core.time.slots import END, duration, slot_after_end, slots_after
from rota.core.time.zones import YEAR_MAX, YEAR_MIN, zone
from rota.errors import InvalidInput, Problem
from rota.model.moment import micros, moment
from rota.model.trigger import Calendar, Cron, Delay, Endless, Every, Instant, Manual, Once, Rule, Schedule, Window

__all__ = ["after_end", "check", "parse_endless", "upcoming"]

PERIOD_S_MIN = 0.1
PERIOD_S_MAX = 366 * 86_400.0
PAUSE_S_MAX = 7 * 86_400.0
JITTER_S_MAX = 86_400.0

_FIELD: dict[type[Rule], str] = {
    Cron: "cron",
    Every: "every_s",
    Delay: "delay_s",
    Once: "once_at",
    Window: "window",
    Endless: "endless",
}

_Problems = Iterator[Problem]


def upcoming(schedule: Schedule, after: datetime, *, seed: str) -> Iterator[Instant]:
    """Every instant whose slot is later than `after`, in order.

    Nothing for triggers that follow the end of a run (see `after_end`) and for those that are never due by themselves.
    """
    slots = slots_after(schedule, micros(after), seed=seed)
    return _spread(slots, duration(schedule.jitter_s), seed) if schedule.jitter_s else map(_on_time, slots)


def after_end(schedule: Schedule, ended_at: datetime, *, seed: str) -> Instant | None:
    """When a job whose trigger follows ends is due again after a run that ended at `ended_at`."""
    slot = slot_after_end(schedule, micros(ended_at), seed=seed)
    if slot is None:
        return None
    if isinstance(schedule.rule, Endless):
        return _on_time(slot)  # jitter could carry it out of its hours
    return _late(slot, _share(seed, slot, duration(schedule.jitter_s)))


def _spread(slots: Iterator[int], jitter: int, seed: str) -> Iterator[Instant]:
    """Delay each slot by its share of the jitter, but never as far as the next slot."""
    slot = next(slots, None)
    while slot is not None:
        following = next(slots, None)
        room = jitter if following is None else min(jitter, following - slot)
        yield _late(slot, _share(seed, slot, room))
        slot = following


def _share(seed: str, slot: int, room: int) -> int:
    """A part of the room, less than the whole; the same for the same seed and slot everywhere."""
    known = hashlib.blake2b(f"{seed}\0{slot}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return (int.from_bytes(known, "big") * room) >> 64


def _on_time(slot: int) -> Instant:
    at = moment(slot)
    return Instant(slot_at=at, due_at=at)


def _late(slot: int, by: int) -> Instant:
    return Instant(slot_at=moment(slot), due_at=moment(slot + by))


def check(schedule: Schedule, *, seed: str) -> None:
    """Raise `InvalidInput` with all the problems of a schedule, if it has any."""
    problems = [*_bounds(schedule), *_jitter(schedule), *_rule(schedule.rule, seed), *_calendar(schedule.calendar)]
    if not problems:
        problems = [*_never(schedule, seed)]
    if problems:
        raise InvalidInput(problems)


def _rule(rule: Rule, seed: str) -> _Problems:
    match rule:
        case Cron():
            yield from _refused("cron", lambda: cron.parse(rule.expression, seed))
            yield from _refused("zone", lambda: zone(rule.zone))
        case Every():
            yield from _number("every_s", rule.every_s, PERIOD_S_MIN, PERIOD_S_MAX)
        case Delay():
            yield from _number("delay_s", rule.delay_s, PERIOD_S_MIN, PERIOD_S_MAX)
        case Once():
            yield from _instant("once_at", rule.once_at)
        case Window():
            yield from _window(rule)
        case Endless():
            yield from _endless(rule, seed)


def _window(rule: Window) -> _Problems:
    yield from _time_of_day("window.opens", rule.opens)
    yield from _time_of_day("window.closes", rule.closes)
    yield from _number("window.every_s", rule.every_s, PERIOD_S_MIN, PERIOD_S_MAX)
    yield from _weekdays("window.weekdays", rule.weekdays)
    if not rule.weekdays:
        yield Problem("window.weekdays", "names no weekday, so it never fires")
    yield from _refused("zone", lambda: zone(rule.zone))


def _endless(rule: Endless, seed: str) -> _Problems:
    yield from _refused("zone", lambda: zone(rule.zone))
    if not 1 <= len(rule.paces) <= endless.PACES_MAX:
        yield Problem("endless", f"has {len(rule.paces)} parts; 1 to {endless.PACES_MAX} are possible")
        return
    for pace in rule.paces:
        yield from _number("endless", pace.pause_s, PERIOD_S_MIN, PAUSE_S_MAX)
        if pace.fields is not None:
            yield from _refused("endless", partial(endless.expression, pace.fields, seed))
    if sum(pace.fields is None for pace in rule.paces) > 1:
        yield Problem("endless", "more than one part has no fields")


def _bounds(schedule: Schedule) -> _Problems:
    problems: list[Problem] = []
    if schedule.start_at is not None:
        problems += _instant("start_at", schedule.start_at)
    if schedule.end_at is not None:
        problems += _instant("end_at", schedule.end_at)
    yield from problems
    if not problems and schedule.start_at and schedule.end_at and schedule.start_at > schedule.end_at:
        yield Problem("end_at", "is before start_at")


def _jitter(schedule: Schedule) -> _Problems:
    yield from _number("jitter_s", schedule.jitter_s, 0, JITTER_S_MAX)
    if isinstance(schedule.rule, Endless) and schedule.jitter_s != 0:
        yield Problem("jitter_s", "an endless trigger takes none: it could carry a run out of its hours")


def _calendar(calendar: Calendar | None) -> _Problems:
    if calendar is None:
        return
    yield from _weekdays("calendar.weekdays", calendar.weekdays)
    yield from _refused("calendar.zone", lambda: zone(calendar.zone))
    if not calendar.weekdays and not calendar.open:
        yield Problem("calendar", "has no open day, so nothing ever runs")


def _never(schedule: Schedule, seed: str) -> _Problems:
    if isinstance(schedule.rule, Manual):
        return
    first = slot_after_end(schedule, 0, seed=seed)
    if first is None:
        first = next(slots_after(schedule, -1, seed=seed), None)
    if first is None:
        bounded = schedule.start_at is not None or schedule.end_at is not None
        between = "between start_at and end_at" if bounded else f"from {YEAR_MIN} to {YEAR_MAX}"
        yield Problem(_FIELD[type(schedule.rule)], f"never fires {between}")


def _refused(field: str, read: Callable[[], object]) -> _Problems:
    try:
        read()
    except InvalidInput as bad:
        yield from (Problem(field, problem.reason) for problem in bad.problems)


def _number(field: str, value: object, low: float, high: float) -> _Problems:
    """Comparing refuses NaN, infinities and integers beyond any float alike."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield Problem(field, "must be a number of seconds")
    elif not low <= value <= high:
        yield Problem(field, f"must be from {low:g} to {high:.0f} seconds")


def _instant(field: str, value: object) -> _Problems:
    if not isinstance(value, datetime):
        yield Problem(field, "must be a date and time")
    elif value.utcoffset() is None:
        yield Problem(field, "has no offset from UTC; write it like 2026-03-08T09:00:00Z")
    elif not _is_within_years(value):
        yield Problem(field, f"must be from {YEAR_MIN} to {YEAR_MAX}")


def _is_within_years(value: datetime) -> bool:
    try:
        return 0 <= micros(value.astimezone(UTC)) < END
    except OverflowError:
        return False


def _time_of_day(field: str, value: object) -> _Problems:
    parts = value.split(":") if isinstance(value, str) else []
    numbers = [int(part) for part in parts if len(part) == 2 and part.isascii() and part.isdigit()]
    limits = (24, 60, 60)
    if not len(parts) == len(numbers) in (2, 3) or not all(map(int.__lt__, numbers, limits)):
        yield Problem(field, "must be a time of day from 00:00 to 23:59, as HH:MM or HH:MM:SS")


def _weekdays(field: str, value: tuple[int, ...]) -> _Problems:
    if not all(type(day) is int and 0 <= day <= 6 for day in value):
        yield Problem(field, "weekdays are numbers from 0 (Monday) to 6 (Sunday)")
