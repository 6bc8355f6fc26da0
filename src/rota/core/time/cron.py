"""Cron expressions: what they mean on a wall clock. Where a clock jumps is no matter of this module: see `zones`.

Day of month and day of week: a day counts if it matches either field when both restrict the days, and otherwise if it
matches the one that does. A field restricts if there is a day that it does not match, however it is written: `*/2`
restricts, `1-31` and `1-30,L` do not.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Sequence
from datetime import date
from functools import lru_cache

from rota.core.time.fields import (
    DAY,
    FIELDS,
    HOUR,
    MINUTE,
    MONTH,
    SECOND,
    WEEKDAY,
    YEAR,
    Field,
    Mark,
    Values,
    read,
)
from rota.core.time.zones import DAY_S, YEAR_MAX, YEAR_MIN
from rota.errors import InvalidInput

LENGTH_MAX = 1000

_MACROS = {
    "@HOURLY": "0 * * * *",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@WEEKLY": "0 0 * * 0",
    "@MONTHLY": "0 0 1 * *",
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
}
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MONTHS_KEPT = 64


def parse(expression: str, seed: str) -> Expression:
    """Read a cron expression; `seed` decides what its `H` stand for."""
    if not _is_text(expression):
        raise InvalidInput.of("cron", "must be a text")
    text = _fields_text(expression)
    return _parse(text, seed if "H" in text.replace("THU", "") else "")


@lru_cache(maxsize=16_384)
def _parse(text: str, seed: str) -> Expression:
    parts = text.split()
    if not 5 <= len(parts) <= 7:
        raise InvalidInput.of("cron", f"has {len(parts)} fields; 5, 6 (seconds first) or 7 (year last) are possible")
    if len(parts) == 5:
        parts.insert(0, "0")
    if len(parts) == 6:
        parts.append("*")
    if parts[3] == parts[5] == "?":
        raise InvalidInput.of("cron", "'?' may stand in one of the two day fields, not in both")
    parsed = Expression({field: read(part, field, seed) for field, part in zip(FIELDS, parts, strict=True)})
    if parsed.wall_from(0) is None:
        raise InvalidInput.of("cron", f"never fires: no such day exists from {YEAR_MIN} to {YEAR_MAX}")
    return parsed


def _is_text(expression: object) -> bool:
    return isinstance(expression, str)


@lru_cache(maxsize=16_384)
def _fields_text(expression: str) -> str:
    if len(expression) > LENGTH_MAX:
        raise InvalidInput.of("cron", f"is longer than {LENGTH_MAX} characters")
    if not expression.isascii() or not expression.replace("\t", " ").isprintable():
        raise InvalidInput.of("cron", "only letters, digits and signs of ASCII are possible")
    text = expression.upper().strip()
    if not text:
        raise InvalidInput.of("cron", "is empty")
    if text.startswith("@") and text not in _MACROS:
        possible = " ".join(_MACROS).lower()
        raise InvalidInput.of("cron", f"{expression[:20]!a} is not one of {possible}")
    return _MACROS.get(text, text)


class Expression:
    """A parsed expression: a set of wall times."""

    __slots__ = (
        "_any_day",
        "_any_weekday",
        "_days",
        "_hours",
        "_known",
        "_minutes",
        "_months",
        "_pages",
        "_seconds",
        "_weekdays",
        "_years",
        "every_day",
    )

    def __init__(self, values: dict[Field, Values]) -> None:
        self._seconds = values[SECOND].numbers
        self._minutes = values[MINUTE].numbers
        self._hours = values[HOUR].numbers
        self._months = values[MONTH].numbers
        self._years = values[YEAR].numbers
        self._days = values[DAY]
        self._weekdays = values[WEEKDAY]
        self._pages: dict[tuple[int, int], list[int]] = {}
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}
        self._any_day = all(page.days(self._days) == page.whole for page in _pages(self._days))
        self._any_weekday = all(page.weekdays(self._weekdays) == page.whole for page in _pages(self._weekdays))
        any_month = all(len(values[field].numbers) == field.size for field in (MONTH, YEAR))
        self.every_day = self._any_day and self._any_weekday and any_month

    @property
    def is_interval(self) -> bool:
        """Whether it fires in every hour of its days: then it follows elapsed time where the clock jumps."""
        return len(self._hours) == 24

    def wall_from(self, wall: int) -> int | None:
        """The first wall time of the expression that is not before the given one."""
        day, second = divmod(wall, DAY_S)
        found = self.day_from(day)
        if found == day:
            time = self._time_from(second)
            if time is not None:
                return day * DAY_S + time
            found = self.day_from(day + 1)
        return None if found is None else found * DAY_S + self._time(0, 0, 0)

    def day_from(self, day: int) -> int | None:
        """The first matching day, not before the given one, in days from the epoch."""
        when = date.fromordinal(_EPOCH_DAY + max(day, 0))
        if self.every_day:
            return day if when.year <= YEAR_MAX else None
        month = self._month_from(when.year, when.month)
        while month is not None:
            days = self._days_in(*month)
            place = bisect_left(days, day)
            if place < len(days):
                return days[place]
            month = self._month_from(month[0], month[1] + 1)
        return None

    def minutes_of_day(self) -> int:
        """The minutes of a matching day, as bits: bit 0 is 00:00."""
        return sum(1 << (hour * 60 + minute) for hour in self._hours for minute in self._minutes)

    def _time_from(self, second: int) -> int | None:
        """The first time of day, in seconds, that is not before the given one."""
        minute, second = divmod(second, 60)
        hour, minute = divmod(minute, 60)
        hours, minutes, seconds = self._hours, self._minutes, self._seconds
        at_hour = bisect_left(hours, hour)
        if at_hour == len(hours):
            return None
        if hours[at_hour] > hour:
            return self._time(at_hour, 0, 0)
        at_minute = bisect_left(minutes, minute)
        if at_minute < len(minutes):
            if minutes[at_minute] > minute:
                return self._time(at_hour, at_minute, 0)
            at_second = bisect_left(seconds, second)
            if at_second < len(seconds):
                return self._time(at_hour, at_minute, at_second)
            if at_minute + 1 < len(minutes):
                return self._time(at_hour, at_minute + 1, 0)
        return self._time(at_hour + 1, 0, 0) if at_hour + 1 < len(hours) else None

    def _time(self, hour: int, minute: int, second: int) -> int:
        return self._hours[hour] * 3600 + self._minutes[minute] * 60 + self._seconds[second]

    def _month_from(self, year: int, month: int) -> tuple[int, int] | None:
        """The first matching month that is not before the given one; month 13 is the next year's first."""
        place = bisect_left(self._months, month)
        if place == len(self._months):
            year, place = year + 1, 0
        at_year = bisect_left(self._years, year)
        if at_year == len(self._years):
            return None
        found = self._years[at_year]
        return found, self._months[place if found == year else 0]

    def _days_in(self, year: int, month: int) -> tuple[int, ...]:
        """The matching days of a month, in days from the epoch."""
        days = self._known.get((year, month))
        if days is None:
            if len(self._known) >= _MONTHS_KEPT:
                self._known.clear()
            first = date(year, month, 1).toordinal()
            days = tuple(first - _EPOCH_DAY + day - 1 for day in self._matching(*monthrange(year, month)))
            self._known[year, month] = days
        return days

    def _matching(self, first_weekday: int, length: int) -> list[int]:
        """The matching days of a month; there are only 28 kinds of months."""
        days = self._pages.get((first_weekday, length))
        if days is None:
            page = _Page((first_weekday + 1) % 7, length)
            days = self._pages[first_weekday, length] = sorted(self._either(page))
        return days

    def _either(self, page: _Page) -> set[int]:
        if self._any_day:
            return page.weekdays(self._weekdays)
        if self._any_weekday:
            return page.days(self._days)
        return page.days(self._days) | page.weekdays(self._weekdays)


def _pages(values: Values) -> Sequence[_Page]:
    """The months that show whether a day field restricts: all kinds if it has marks, else one that has every day."""
    return _KINDS if values.marks else _KINDS[-1:]


class _Page:
    """One month of a calendar. Weekdays count from Sunday = 0."""

    def __init__(self, first_weekday: int, length: int) -> None:
        self._first_weekday = first_weekday
        self._length = length
        self.whole = set(range(1, length + 1))

    def days(self, wanted: Values) -> set[int]:
        marked = {self._day(mark) for mark in wanted.marks}
        return {day for day in {*wanted.numbers, *marked} if 1 <= day <= self._length}

    def weekdays(self, wanted: Values) -> set[int]:
        plain = {day for day in range(1, self._length + 1) if self._weekday(day) in wanted.numbers}
        marked = {self._nth(mark) for mark in wanted.marks}
        return plain | {day for day in marked if day <= self._length}

    def _weekday(self, day: int) -> int:
        return (self._first_weekday + day - 1) % 7

    def _day(self, mark: Mark) -> int:
        """The day that a mark of the day field means; 0 if this month has none."""
        if mark.kind == "L":
            return self._length - mark.number
        if mark.kind == "LW":
            return self._nearest_workday(self._length)
        return self._nearest_workday(mark.number) if mark.number <= self._length else 0

    def _nearest_workday(self, day: int) -> int:
        """The day from Monday to Friday of this month that is nearest."""
        if self._weekday(day) == 6:
            return day - 1 if day > 1 else 3
        if self._weekday(day) == 0:
            return day + 1 if day < self._length else day - 2
        return day

    def _nth(self, mark: Mark) -> int:
        """The day that a mark of the weekday field means; beyond the month if it has no such day."""
        first = 1 + (mark.number - self._first_weekday) % 7
        if mark.kind == "#":
            return first + 7 * (mark.nth - 1)
        return first + 7 * ((self._length - first) // 7)


_KINDS = [_Page(first_weekday, length) for length in (28, 29, 30, 31) for first_weekday in range(7)]
