"""What cron must do, worked out the slow way. Shares no code and no method with the product.

The product jumps from match to match on a wall clock made of stretches. Here every minute of real time around a change
of the clock is written down with what the wall shows, and the rule of docs/time.md is applied to that list:

- an expression whose hour field matches all 24 hours fires at every minute whose wall time matches;
- any other fires only when the wall shows that minute for the first time; if minutes that match were never shown, it
  fires once at the first minute that is shown after them.

The parser asks of each value "is it meant by this text?" instead of building sets from the text.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cache, cached_property, lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

NAMES = {
    name: number
    for names, first in (("jan feb mar apr may jun jul aug sep oct nov dec", 1), ("sun mon tue wed thu fri sat", 0))
    for number, name in enumerate(names.split(), first)
}
MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
HOUR = 3600


@cache
def zone_info(name: str) -> ZoneInfo:
    """The zone as the `tzdata` package has it."""
    with (resources.files("tzdata.zoneinfo") / name).open("rb") as file:
        return ZoneInfo.from_file(file, name)


DAY = timedelta(days=1)


def _kinds_of_days() -> list[date]:
    """The days of one month of each kind: 28 to 31 days long, beginning on each weekday."""
    firsts = [date(year, month, 1) for year in range(2000, 2028) for month in range(1, 13)]
    kinds = {(first.weekday(), len(_month(first))): first for first in firsts}
    return [day for first in kinds.values() for day in _month(first)]


@dataclass(frozen=True)
class Change:
    """The clock of a zone jumps at an instant (seconds from the epoch) by so many seconds."""

    at: int
    jump: int
    offset: int


@dataclass(frozen=True)
class Wanted:
    """An expression, field by field, as text."""

    second: str
    minute: str
    hour: str
    day: str
    month: str
    weekday: str
    year: str
    seed: str

    @classmethod
    def of(cls, expression: str, seed: str) -> Wanted:
        text = MACROS.get(expression.lower(), expression).lower()
        text = re.sub(r"-sun\b", "-7", text)
        text = re.sub(r"[a-z]{3}", lambda found: str(NAMES[found[0]]), text)
        parts = text.split()
        assert 5 <= len(parts) <= 7, expression
        while len(parts) < 7:
            parts = ["0", *parts] if len(parts) == 5 else [*parts, "*"]
        second, minute, hour, day, month, weekday, year = parts
        return cls(second, minute, hour, day, month, weekday, year, seed)

    @cached_property
    def seconds(self) -> list[int]:
        return [value for value in range(60) if self._means(self.second, value, "second", 0, 59)]

    @cached_property
    def minutes(self) -> frozenset[int]:
        return frozenset(value for value in range(60) if self._means(self.minute, value, "minute", 0, 59))

    @cached_property
    def hours(self) -> frozenset[int]:
        return frozenset(value for value in range(24) if self._means(self.hour, value, "hour", 0, 23))

    @cached_property
    def is_interval(self) -> bool:
        return self.hours == frozenset(range(24))

    @cached_property
    def restricts_day(self) -> bool:
        return any(not self.by_month(day) for day in EVERY_KIND_OF_DAY)

    @cached_property
    def restricts_weekday(self) -> bool:
        return any(not self.by_week(day) for day in EVERY_KIND_OF_DAY)

    def _means_day(self, value: int) -> bool:
        return self.day == "?" or self._means(self.day, value, "day of month", 1, 31)

    def _means_weekday(self, value: int) -> bool:
        if self.weekday == "?":
            return True
        sundays = (0, 7) if value == 0 else (value,)
        return any(self._means(self.weekday, it, "day of week", 0, 6 if "*" in self.weekday else 7) for it in sundays)

    def _means(self, field: str, value: int, name: str, low: int, high: int) -> bool:
        return any(self._item_means(item, value, name, low, high) for item in field.split(","))

    def _item_means(self, item: str, value: int, name: str, low: int, high: int) -> bool:
        if item.startswith("h"):
            return self._hash_means(item, value, name, low, high)
        found = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", item)
        if found is None:
            return False  # a mark: see is_day
        begin = low if found[1] is None else int(found[1])
        end = int(found[2] or (begin if found[1] and not found[3] else high))
        if name == "day of week" and found[1] and found[3] and not found[2]:
            begin, end = begin % 7, 6
        return begin <= value <= end and (value - begin) % int(found[3] or 1) == 0

    def _hash_means(self, item: str, value: int, name: str, low: int, high: int) -> bool:
        found = re.fullmatch(r"h(?:\((\d+)-(\d+)\))?(?:/(\d+))?", item)
        assert found, item
        high = {"day of month": 28, "day of week": 6}.get(name, high)
        begin, end = int(found[1] or low), int(found[2] or high)
        number = int(hashlib.blake2b(f"{self.seed}\0{name}".encode(), digest_size=8).hexdigest(), 16)
        if found[3] is None:
            return value == begin + number % (end - begin + 1)
        step = int(found[3])
        start = begin + number % min(step, end - begin + 1)
        return start <= value <= end and (value - start) % step == 0

    def is_day(self, day: date) -> bool:
        return _is_day(self, day)

    def by_month(self, day: date) -> bool:
        return self._means_day(day.day) or any(_is_marked_day(item, day) for item in self.day.split(","))

    def by_week(self, day: date) -> bool:
        marked = any(_is_marked_weekday(item, day) for item in self.weekday.split(","))
        return marked or self._means_weekday(day.isoweekday() % 7)


@lru_cache(maxsize=200_000)
def _is_day(wanted: Wanted, day: date) -> bool:
    if not wanted._means(wanted.month, day.month, "month", 1, 12):
        return False
    if not wanted._means(wanted.year, day.year, "year", 1970, 2200):
        return False
    if wanted.restricts_day and wanted.restricts_weekday:
        return wanted.by_month(day) or wanted.by_week(day)
    return wanted.by_month(day) and wanted.by_week(day)


def _month(day: date) -> list[date]:
    first = day.replace(day=1)
    return [first + n * DAY for n in range(31) if (first + n * DAY).month == day.month]


EVERY_KIND_OF_DAY = _kinds_of_days()


def _is_marked_day(item: str, day: date) -> bool:
    month = _month(day)
    workdays = [it for it in month if it.isoweekday() <= 5]
    if item == "lw":
        return day == workdays[-1]
    if item == "l" or item.startswith("l-"):
        back = int(item[2:] or 0)
        return back < len(month) and day == month[-1 - back]
    if item.endswith("w"):
        target = int(item[:-1])
        return target <= len(month) and day == min(workdays, key=lambda it: abs(it.day - target))
    return False


def _is_marked_weekday(item: str, day: date) -> bool:
    same = [it for it in _month(day) if it.weekday() == day.weekday()]
    number = str(day.isoweekday() % 7)
    name, sign, nth = item.partition("#")
    if sign:
        return name.replace("7", "0") == number and same.index(day) + 1 == int(nth)
    return item.endswith("l") and item[:-1].replace("7", "0") == number and day == same[-1]


def changes(name: str, first_year: int, last_year: int) -> Iterator[Change]:
    """Every change of a zone's offset in these years: looked for by six hours, then minute by minute."""
    info = zone_info(name)
    at = int(datetime(first_year, 1, 1, tzinfo=UTC).timestamp())
    end = int(datetime(last_year + 1, 1, 1, tzinfo=UTC).timestamp())
    while at < end:
        if _offset(info, at) != _offset(info, at + 6 * HOUR):
            minutes = range(at + 60, at + 6 * HOUR + 60, 60)
            change = next(it for it in minutes if _offset(info, it) != _offset(info, it - 60))
            yield Change(change, _offset(info, change) - _offset(info, change - 60), _offset(info, change))
        at += 6 * HOUR


def _offset(info: ZoneInfo, at: int) -> int:
    offset = datetime.fromtimestamp(at, info).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


Shown = tuple[int, int, bool]  # the instant, the minute on the wall, whether the wall shows it for the first time


class Diary:
    """What the wall of a zone shows at every minute around an instant, and what it never shows."""

    def __init__(self, name: str, around: int, *, before_h: int = 30, after_h: int = 30) -> None:
        info = zone_info(name)
        self.shown: dict[tuple[date, int], list[Shown]] = defaultdict(list)
        self.never: dict[tuple[date, int], list[tuple[int, int]]] = defaultdict(list)
        known: set[datetime] = set()
        last: datetime | None = None
        begin = around - around % 60 - before_h * HOUR
        for at in range(begin, begin + (before_h + after_h) * HOUR, 60):
            wall = datetime.fromtimestamp(at, info).replace(tzinfo=None, fold=0)
            assert wall.second == 0, "the clocks of this century are whole minutes apart"
            while last is not None and last + timedelta(minutes=1) < wall:
                last += timedelta(minutes=1)
                self.never[last.date(), last.hour].append((at, last.minute))
            self.shown[wall.date(), wall.hour].append((at, wall.minute, wall not in known))
            known.add(wall)
            last = wall

    def fires(self, wanted: Wanted, begin: int, end: int) -> list[int]:
        """The instants in (begin, end] at which an expression must fire."""
        times = set(self._at_shown(wanted))
        if not wanted.is_interval:
            times.update(self._after_gaps(wanted))
        return sorted(at for at in times if begin < at <= end)

    def _at_shown(self, wanted: Wanted) -> Iterator[int]:
        for (day, hour), minutes in self.shown.items():
            if hour in wanted.hours and wanted.is_day(day):
                for at, minute, is_first in minutes:
                    if minute in wanted.minutes and (is_first or wanted.is_interval):
                        yield from (at + second for second in wanted.seconds)

    def _after_gaps(self, wanted: Wanted) -> Iterator[int]:
        for (day, hour), minutes in self.never.items():
            if hour in wanted.hours and wanted.is_day(day):
                yield from (at for at, minute in minutes if minute in wanted.minutes)


def spans(wanted: Wanted, at: int) -> tuple[int, int]:
    """How far around an instant to compare: less far where there are many seconds."""
    return (at - 4 * HOUR, at + 5 * HOUR) if len(wanted.seconds) > 2 else (at - 4 * HOUR, at + 27 * HOUR)


def ordinary(found: Sequence[Change], year: int, number: int) -> list[int]:
    """Some instants of a year that are far from every change."""
    begin = int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
    days = [begin + (37 * n + 11) % 365 * 24 * HOUR for n in range(200)]
    return [at for at in days if all(abs(at - change.at) > 80 * HOUR for change in found)][:number]


def endless(paces: Sequence[tuple[int, str | None]], zone: str, ended: int, days: int) -> int | None:
    """The first second at which an endless trigger is due: try every minute, and every end of a pause."""
    info = zone_info(zone)
    fields = [(pause, Wanted.of(text + " *" * (4 - text.count(" ")), "") if text else None) for pause, text in paces]
    minutes = range(ended - ended % 60 + 60, ended + days * 24 * HOUR, 60)
    moments: set[int] = {*minutes, *(ended + pause for pause, _ in paces)}
    for at in sorted(moments):
        wall = datetime.fromtimestamp(at, info)
        pauses = [pause for pause, wanted in fields if wanted and _shows(wanted, wall)]
        pauses += [pause for pause, wanted in fields if not wanted]
        if pauses and at - ended >= pauses[0]:
            return at
    return None


def _shows(wanted: Wanted, wall: datetime) -> bool:
    return wall.minute in wanted.minutes and wall.hour in wanted.hours and wanted.is_day(wall.date())
