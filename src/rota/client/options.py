"""The keywords of tasks and calendars: the keys of the YAML form. `definitions/spec.py` says what they take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Literal, Required, TypedDict

Weekdays = str | list[str]
Day = str | date


class Window(TypedDict, total=False):
    opens: Required[str]
    closes: Required[str]
    every_s: Required[float]
    weekdays: Weekdays


MisfireName = Literal["skip", "once", "all"]
OverlapName = Literal["forbid", "allow", "queue", "replace"]


class Misfire(TypedDict, total=False):
    policy: MisfireName
    grace_s: float
    count_max: int
    per_s: float


class Overlap(TypedDict, total=False):
    policy: OverlapName
    live_max: int
    queue_max: int
    key: str


class TaskOptions(TypedDict, total=False):
    name: str
    title: str
    cron: str
    every_s: float
    delay_s: float
    once_at: datetime | str
    window: Window
    endless: str
    zone: str
    start_at: datetime | str
    end_at: datetime | str
    jitter_s: float
    calendar: str
    misfire: MisfireName | Misfire
    overlap: OverlapName | Overlap
    backlog_max: int
    params: dict[str, Any]


class CalendarOptions(TypedDict, total=False):
    country: str
    weekdays: Weekdays
    closed: Sequence[Day]
    open: Sequence[Day]
    zone: str
