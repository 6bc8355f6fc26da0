"""Triggers: when a job is due. A rule says the instants, a schedule bounds and spreads them.

The rules are only data here; `core/instants.py` knows what they mean.
"""

from __future__ import annotations

from datetime import date, datetime

from rota.model.value import Value


class Cron(Value, frozen=True, kw_only=True, tag="cron"):
    """A cron expression of 5 fields, 6 (seconds first) or 7 (year last), read in a time zone."""

    expression: str
    zone: str = "UTC"


class Every(Value, frozen=True, kw_only=True, tag="every"):
    """A fixed rate: the schedule's start (or the epoch) plus whole periods."""

    every_s: float


class Delay(Value, frozen=True, kw_only=True, tag="delay"):
    """A fixed pause after the end of the last run."""

    delay_s: float


class Once(Value, frozen=True, kw_only=True, tag="once"):
    """One instant."""

    once_at: datetime


class Window(Value, frozen=True, kw_only=True, tag="window"):
    """A fixed rate inside a time of day: from `opens`, while it is not later than `closes`, on the given weekdays.

    `closes` earlier than or equal to `opens` means the next day. Weekdays count from Monday = 0.
    """

    opens: str
    closes: str
    every_s: float
    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    zone: str = "UTC"


class Pace(Value, frozen=True, kw_only=True):
    """One part of an endless trigger: the pause that is in force while `fields` (minute hour day month weekday,
    trailing ones may be left out) match the wall clock; without fields it is in force whenever no other part is."""

    pause_s: float
    fields: str | None = None


class Endless(Value, frozen=True, kw_only=True, tag="endless"):
    """Again and again, with a pause after each end that depends on the time of day."""

    paces: tuple[Pace, ...]
    zone: str = "UTC"


class Manual(Value, frozen=True, kw_only=True, tag="manual"):
    """Never by itself."""


Rule = Cron | Every | Delay | Once | Window | Endless | Manual


class Calendar(Value, frozen=True, kw_only=True):
    """Which days count. A day is open if it is listed as open, or if it is an open weekday and not listed as closed."""

    name: str
    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    closed: tuple[date, ...] = ()
    open: tuple[date, ...] = ()
    zone: str = "UTC"
    known_until: date | None = None
    """The last day for which the lists are complete, where they come from a country's calendar."""

    def is_open(self, day: date) -> bool:
        return day in self.open or (day.weekday() in self.weekdays and day not in self.closed)


class Schedule(Value, frozen=True, kw_only=True):
    """A rule with its bounds (both inclusive), spread and calendar."""

    rule: Rule
    start_at: datetime | None = None
    end_at: datetime | None = None
    jitter_s: float = 0.0
    calendar: Calendar | None = None


class Instant(Value, frozen=True, kw_only=True):
    """One slot of a schedule, and when it falls due: the slot itself plus its share of the jitter."""

    slot_at: datetime
    due_at: datetime
