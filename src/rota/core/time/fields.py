"""The fields of a cron expression: read the text of one field into the values it names. Knows no dates and no zones."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NamedTuple

from rota.core.time.zones import YEAR_MAX, YEAR_MIN
from rota.errors import InvalidInput

_MONTHS = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC"
_WEEKDAYS = "SUN MON TUE WED THU FRI SAT"
_DIGITS_MAX = 4


class Field(NamedTuple):
    """What may stand in a field. `size` is the number of different values, `hash_high` the last one that `H` takes."""

    name: str
    low: int
    high: int
    size: int
    hash_high: int
    names: tuple[str, ...] = ()


class Mark(NamedTuple):
    """A day that depends on the month.

    In the day field `L` is the day `number` before the last, `W` the weekday nearest to day `number`, `LW` the last
    weekday. In the weekday field `L` is the last weekday `number` of the month, `#` its `nth`.
    """

    kind: str
    number: int = 0
    nth: int = 0


class Values(NamedTuple):
    """What a field matches; the numbers are in order."""

    numbers: tuple[int, ...]
    marks: frozenset[Mark] = frozenset()


SECOND = Field("second", 0, 59, 60, 59)
MINUTE = Field("minute", 0, 59, 60, 59)
HOUR = Field("hour", 0, 23, 24, 23)
DAY = Field("day of month", 1, 31, 31, 28)
MONTH = Field("month", 1, 12, 12, 12, tuple(_MONTHS.split()))
WEEKDAY = Field("day of week", 0, 7, 7, 6, tuple(_WEEKDAYS.split()))
YEAR = Field("year", YEAR_MIN, YEAR_MAX, YEAR_MAX - YEAR_MIN + 1, 0)

FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY, YEAR)


def _bad(field: Field, reason: str) -> InvalidInput:
    return InvalidInput.of("cron", f"{field.name}: {reason}")


def read(text: str, field: Field, seed: str) -> Values:
    """Read one field, in capitals. Its values are lists of numbers, names, ranges, steps, hashes and marks."""
    return _read(text, field, seed if "H" in text else "")


@lru_cache(maxsize=4096)
def _read(text: str, field: Field, seed: str) -> Values:
    if text == "?":
        if field not in (DAY, WEEKDAY):
            raise _bad(field, "'?' is only for the two day fields")
        text = "*"
    numbers: set[int] = set()
    marks: set[Mark] = set()
    for item in text.split(","):
        mark = _mark(item, field)
        if mark is None:
            numbers |= _numbers(item, field, seed)
        else:
            marks.add(mark)
    return Values(tuple(sorted(numbers)), frozenset(marks))


def _numbers(item: str, field: Field, seed: str) -> frozenset[int]:
    base, slash, step_text = item.partition("/")
    step = _step(step_text, field) if slash else 1
    if base == "*":
        return _span(field, field.low, _last(field), step)
    if base.startswith("H"):
        return _hashed(base, field, seed, step if slash else None)
    low_text, dash, high_text = base.partition("-")
    low = _number(low_text, field)
    if dash:
        return _span(field, low, _range_end(high_text, field, low), step)
    if not slash:
        return _span(field, low, low, 1)
    return _span(field, _day_of_week(low) if field is WEEKDAY else low, _last(field), step)


def _mark(item: str, field: Field) -> Mark | None:
    if field is DAY:
        return _day_mark(item)
    if field is WEEKDAY:
        return _weekday_mark(item)
    return None


def _day_mark(item: str) -> Mark | None:
    if item == "L":
        return Mark("L")
    if item == "LW":
        return Mark("LW")
    if item.startswith("L-"):
        before = _digits(item[2:], DAY)
        if not 1 <= before <= 30:
            raise _bad(DAY, f"{_shown(item)}: L-1 to L-30 are possible")
        return Mark("L", before)
    if item.endswith("W"):
        return Mark("W", _number(item[:-1], DAY))
    return None


def _weekday_mark(item: str) -> Mark | None:
    day, hash_sign, nth_text = item.partition("#")
    if hash_sign:
        nth = _digits(nth_text, WEEKDAY)
        if not 1 <= nth <= 5:
            raise _bad(WEEKDAY, f"{_shown(item)}: a month has a first to a fifth weekday, #1 to #5")
        return Mark("#", _day_of_week(_number(day, WEEKDAY)), nth)
    if item == "L":
        raise _bad(WEEKDAY, "'L' needs a weekday, such as 5L for the last Friday")
    if item.endswith("L"):
        return Mark("L", _day_of_week(_number(item[:-1], WEEKDAY)))
    return None


def _hashed(base: str, field: Field, seed: str, step: int | None) -> frozenset[int]:
    """`H` is one value, `H/n` every n-th from one of the first n; `H(a-b)` keeps to a range."""
    low, high = _hash_range(base, field)
    known = hashlib.blake2b(f"{seed}\0{field.name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
    number = int.from_bytes(known, "big")
    size = high - low + 1
    if step is None:
        return _span(field, low + number % size, low + number % size, 1)
    return _span(field, low + number % min(step, size), high, step)


def _hash_range(base: str, field: Field) -> tuple[int, int]:
    if field is YEAR:
        raise _bad(field, "'H' does not spread years")
    if base == "H":
        return field.low, field.hash_high
    low_text, dash, high_text = base[2:-1].partition("-")
    if not (base.startswith("H(") and base.endswith(")") and dash):
        raise _bad(field, f"{_shown(base)} is not understood; H, H/n, H(a-b) and H(a-b)/n are possible")
    low = _number(low_text, field)
    return low, _range_end(high_text, field, low)


def _range_end(text: str, field: Field, low: int) -> int:
    high = _number(text, field)
    if field is WEEKDAY and text == "SUN" and low > 0:
        high = 7  # MON-SUN
    if high < low:
        raise _bad(field, f"the range ends at {high}, before its begin {low}")
    return high


def _step(text: str, field: Field) -> int:
    step = _digits(text, field)
    if not 1 <= step <= field.size:
        raise _bad(field, f"a step of {step} is not between 1 and {field.size}")
    return step


def _number(text: str, field: Field) -> int:
    if text in field.names:
        return field.low + field.names.index(text)
    number = _digits(text, field)
    if not field.low <= number <= field.high:
        raise _bad(field, f"{number} is not between {field.low} and {field.high}")
    return number


def _digits(text: str, field: Field) -> int:
    if not text:
        raise _bad(field, "a value is missing")
    if not (text.isascii() and text.isdigit()):
        raise _bad(field, f"{_shown(text)} is not understood here")
    if len(text) > _DIGITS_MAX:
        raise _bad(field, f"{_shown(text)} is too large")
    return int(text)


def _span(field: Field, low: int, high: int, step: int) -> frozenset[int]:
    numbers = range(low, high + 1, step)
    return frozenset(map(_day_of_week, numbers)) if field is WEEKDAY else frozenset(numbers)


def _last(field: Field) -> int:
    return 6 if field is WEEKDAY else field.high


def _day_of_week(number: int) -> int:
    """Sunday may be called 0 or 7."""
    return number % 7


def _shown(text: str) -> str:
    return ascii(text if len(text) <= 20 else f"{text[:20]}...")
