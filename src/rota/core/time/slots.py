"""The slots of a schedule, before jitter, in whole microseconds from the epoch, so that nothing drifts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import count, takewhile

from rota.core.time import cron, endless
from rota.core.time.zones import DAY_S, END_S, WallClock, wall_clock
from rota.model.moment import micros
from rota.model.trigger import Cron, Delay, Endless, Every, Once, Schedule, Window

MICRO = 1_000_000
END = END_S * MICRO
"""No slot lies at or after this instant."""


def duration(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * MICRO)


def slots_after(schedule: Schedule, after: int, *, seed: str) -> Iterator[int]:
    """The slots later than `after`, in order; none for a trigger that follows ends or is never due by itself."""
    if schedule.start_at is not None:
        after = max(after, micros(schedule.start_at) - 1)
    last = _last(schedule)
    return takewhile(lambda slot: slot <= last, _slots(schedule, max(after, -1), seed))


def slot_after_end(schedule: Schedule, ended: int, *, seed: str) -> int | None:
    """The slot that follows an end; none for other triggers."""
    begin = ended if schedule.start_at is None else max(ended, micros(schedule.start_at))
    match schedule.rule:
        case Delay(delay_s=delay_s):
            slot: int | None = max(ended + duration(delay_s), begin)
        case Endless() as rule:
            slot = endless.due(rule, ended, begin, seed=seed)
        case _:
            slot = None
    return slot if slot is not None and slot <= _last(schedule) else None


def time_of_day(text: str) -> int:
    """A time of day, `HH:MM` or `HH:MM:SS`, in seconds from midnight."""
    hour, minute, second = (*map(int, text.split(":")), 0)[:3]
    return hour * 3600 + minute * 60 + second


def _last(schedule: Schedule) -> int:
    return END - 1 if schedule.end_at is None else min(micros(schedule.end_at), END - 1)


def _slots(schedule: Schedule, after: int, seed: str) -> Iterator[int]:
    match schedule.rule:
        case Cron() as rule:
            return _cron(rule, after, seed)
        case Every(every_s=every_s):
            begin = 0 if schedule.start_at is None else micros(schedule.start_at)
            return _every(begin, duration(every_s), after)
        case Once(once_at=once_at):
            return iter([micros(once_at)] if micros(once_at) > after else [])
        case Window() as rule:
            return _window(rule, after)
        case _:
            return iter(())


def _cron(rule: Cron, after: int, seed: str) -> Iterator[int]:
    expression = cron.parse(rule.expression, seed)
    clock = wall_clock(rule.zone)
    at = after // MICRO + 1
    while (slot := _first(clock, expression, at)) is not None:
        yield slot * MICRO
        at = slot + 1


@lru_cache(maxsize=16_384)
def _first(clock: WallClock, expression: cron.Expression, at: int) -> int | None:
    """The first slot not before an instant. Remembered, because many jobs share the full hour."""
    return clock.first(at, expression.wall_from, fixed=not expression.is_interval)


def _every(begin: int, period: int, after: int) -> Iterator[int]:
    return count(begin + max(0, (after - begin) // period + 1) * period, period)


def _window(rule: Window, after: int) -> Iterator[int]:
    period = duration(rule.every_s)
    for begin, end in _openings(rule, after):
        for slot in _every(begin, period, after):
            if slot > end:
                break
            yield slot
            after = slot


def _openings(rule: Window, after: int) -> Iterator[tuple[int, int]]:
    """When the window opens and closes, from some opening before `after` on."""
    clock = wall_clock(rule.zone)
    opens, closes = time_of_day(rule.opens), time_of_day(rule.closes)
    if closes <= opens:
        closes += DAY_S
    for day in range(after // MICRO // DAY_S - 3, END_S // DAY_S + 1):
        if (day + 3) % 7 in rule.weekdays:  # 1970-01-01 was a Thursday
            yield clock.reach(day * DAY_S + opens) * MICRO, clock.reach(day * DAY_S + closes) * MICRO
