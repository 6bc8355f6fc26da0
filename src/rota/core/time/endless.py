"""Endless triggers: again after each end, with a pause that depends on the wall clock.

A run is due at the first instant at which at least the pause in force at that instant has passed since the end. In
force is the first listed pace whose fields match the minute on the wall, else the pace without fields, else none: then
no run is due at that instant.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial

from rota.core.time import cron
from rota.core.time.zones import DAY_S, END_S, wall_clock
from rota.errors import InvalidInput
from rota.model.trigger import Endless, Pace

PACES_MAX = 50
_DAY_MINUTES = 1440
_ALL_DAY = (1 << _DAY_MINUTES) - 1
_MICRO = 1_000_000


def parse_endless(text: str) -> tuple[Pace, ...]:
    """Read the text form: `SECONDS[@MINUTE HOUR [DAY MONTH WEEKDAY]]`, parts separated by semicolons."""
    if not text.isascii() or len(text) > cron.LENGTH_MAX:
        raise InvalidInput.of("endless", f"must be ASCII and not longer than {cron.LENGTH_MAX} characters")
    return tuple(_pace(part.strip(" \t")) for part in text.split(";"))


def _pace(part: str) -> Pace:
    seconds, at, fields = part.partition("@")
    whole, dot, fraction = seconds.strip(" \t").partition(".")
    digits = whole + fraction
    if not (digits.isdigit() and whole and bool(fraction) == bool(dot) and len(digits) <= 16):
        raise InvalidInput.of("endless", f"{part[:40]!a} does not begin with a pause in seconds, such as 60 or 0.5")
    if at and not fields.strip(" \t"):
        raise InvalidInput.of("endless", f"{part[:40]!a} has no fields after '@'")
    return Pace(pause_s=float(f"{whole}.{fraction or 0}"), fields=fields.strip(" \t") if at else None)


def expression(fields: str, seed: str) -> cron.Expression:
    """Read the fields of a pace: those of a cron expression, of which day, month and weekday may be left out."""
    try:
        parts = fields.split()
        if not 2 <= len(parts) <= 5:
            raise InvalidInput.of("", "minute and hour must be there, then at most day, month and weekday")
        return cron.parse(" ".join(["0", *parts, *"*****"[len(parts) :]]), seed)
    except InvalidInput as bad:
        raise InvalidInput.of("endless", f"{fields[:40]!a}: {bad.problems[0].reason}") from None


def due(rule: Endless, ended: int, begin: int, *, seed: str) -> int | None:
    """The first instant, not before `begin`, that is due after an end; both are microseconds from the epoch."""
    clock = wall_clock(rule.zone)
    best: int | None = None
    for tempo in _tempos(rule, seed):
        ready = max(ended + tempo.pause, begin)
        if best is not None and ready >= best:
            continue
        latest = END_S if best is None else best // _MICRO + 1
        found = clock.first(ready // _MICRO, partial(tempo.first_from, latest // DAY_S + 2), fixed=False)
        if found is not None:
            at = max(found * _MICRO, ready)
            best = at if best is None else min(best, at)
    return best


class _Tempo:
    """A pace, and the paces that come before it."""

    def __init__(self, pace: Pace, own: cron.Expression | None, before: list[cron.Expression]) -> None:
        self.pause = round(pace.pause_s * _MICRO)
        self._own = own
        self._minutes = _ALL_DAY if own is None else own.minutes_of_day()
        self._before = [(it, it.minutes_of_day()) for it in before]

    def first_from(self, last_day: int, wall: int) -> int | None:
        """The first wall time from `wall` on at which it is in force, up to the last day that matters."""
        today, second = divmod(wall, DAY_S)
        for day in self.days_from(today):
            if day > last_day:
                return None
            passed = second // 60 if day == today else 0
            left = self.in_force(day) >> passed
            if left:
                minute = passed + (left & -left).bit_length() - 1
                return max(day * DAY_S + minute * 60, wall)
        return None

    def days_from(self, day: int) -> Iterator[int]:
        """The days on which it may be in force."""
        while (next_day := day if self._own is None else self._own.day_from(day)) is not None:
            yield next_day
            day = next_day + 1

    def in_force(self, day: int) -> int:
        """The minutes of a day at which it is in force, as bits."""
        minutes = self._minutes
        for other, taken in self._before:
            if minutes & taken and other.day_from(day) == day:
                minutes &= ~taken
        return minutes


@lru_cache(maxsize=4096)
def _tempos(rule: Endless, seed: str) -> tuple[_Tempo, ...]:
    """The paces in the order of the rule, the one without fields last."""
    listed: list[_Tempo] = []
    before: list[cron.Expression] = []
    for pace in rule.paces:
        if pace.fields is not None:
            own = expression(pace.fields, seed)
            listed.append(_Tempo(pace, own, list(before)))
            before.append(own)
    return (*listed, *(_Tempo(pace, None, before) for pace in rule.paces if pace.fields is None))
