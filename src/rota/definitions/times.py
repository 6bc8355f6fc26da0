"""Instants, days and weekdays as people write them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from rota.definitions.report import shown

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
ALL_WEEKDAYS = tuple(range(7))
DAYS_MAX = 10_000

_INSTANT_LIKE = "an instant like 2026-12-24T18:00:00+01:00 or 2026-12-24T17:00:00Z"
_instant = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"([Tt ](?P<clock>[0-9]{2}:[0-9]{2}:(?P<second>[0-9]{2}))(\.(?P<fraction>[0-9]+))?)?"
    r"(?P<offset>[Zz]|[+-](?P<hours>[0-9]{2}):(?P<minutes>[0-9]{2}))?"
)
_day = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def instant(value: object) -> datetime:
    """Read an instant with an offset, as text (RFC 3339) or as a datetime; the result is in UTC."""
    if isinstance(value, datetime):
        return _to_utc(value)
    match = _instant.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"must be {_INSTANT_LIKE}, not {shown(value)}")
    _check_parts(match)
    offset = "+00:00" if match["offset"] in "Zz" else match["offset"]
    fraction = (match["fraction"] or "0").ljust(6, "0")
    try:
        local = datetime.fromisoformat(f"{match['day']}T{match['clock']}.{fraction}{offset}")
    except ValueError:
        raise ValueError(f"there is no such day or time: {shown(value)}") from None
    return _to_utc(local)


def _check_parts(match: re.Match[str]) -> None:
    if match["clock"] is None:
        raise ValueError(f"has no time of day; write {_INSTANT_LIKE}")
    if match["offset"] is None:
        raise ValueError("has no offset from UTC; add Z, or one like +01:00")
    if match["second"] == "60":
        raise ValueError("is a leap second, which clocks do not show; use second 59 or the next minute")
    if len(match["fraction"] or "") > 6:
        raise ValueError("has a fraction finer than microseconds; write at most 6 digits")
    if match["hours"] is not None and (int(match["hours"]) > 23 or int(match["minutes"]) > 59):
        raise ValueError(f"has the offset {match['offset']}; offsets go from -23:59 to +23:59")


def _to_utc(local: datetime) -> datetime:
    if local.utcoffset() is None:
        raise ValueError("has no offset from UTC; give the datetime a tzinfo")
    try:
        return local.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside the years 1 to 9999 in UTC") from None


def day(value: object) -> date:
    """Read a day, as text (ISO 8601) or as a date."""
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if not isinstance(value, str) or not _day.fullmatch(value):
        raise ValueError(f"must be a day like 2026-12-24 or days like 2026-12-24..2026-12-31, not {shown(value)}")
    try:
        return date.fromisoformat(value)
    except ValueError:
        raise ValueError(f"there is no such day: {value}") from None


def days(value: object) -> list[date]:
    """Read a day or a range of days, both ends included."""
    if not isinstance(value, str) or ".." not in value:
        return [day(value)]
    first, last = (day(part) for part in value.split("..", 1))
    count = (last - first).days + 1
    if count < 1:
        raise ValueError(f"the range {value} runs backwards")
    if count > DAYS_MAX:
        raise ValueError(f"the range {value} has {count} days; at most {DAYS_MAX} are allowed")
    return [first + timedelta(days=step) for step in range(count)]


def weekdays(value: object) -> tuple[int, ...]:
    """Read weekdays: all, mon-fri, sat,sun, or a list of these. Monday is 0."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not parts:
        raise ValueError(f"must be weekdays like all, mon-fri, sat,sun or [mon, wed], not {shown(value)}")
    return tuple(sorted({number for part in parts for number in _weekday_part(part)}))


def _weekday_part(part: object) -> tuple[int, ...]:
    if not isinstance(part, str):
        raise ValueError(f"a weekday is one of {', '.join(WEEKDAYS)}, not {shown(part)}")
    if part.strip(" ").lower() == "all":
        return ALL_WEEKDAYS
    first, dash, last = part.partition("-")
    low, high = _weekday(first), _weekday(last if dash else first)
    if low > high:
        raise ValueError(f"the range {part.strip()} runs backwards; the week begins on mon")
    return tuple(range(low, high + 1))


def _weekday(name: str) -> int:
    word = name.strip(" ").lower()
    if word not in WEEKDAYS:
        raise ValueError(f"a weekday is one of {', '.join(WEEKDAYS)}, not {shown(name)}")
    return WEEKDAYS.index(word)
