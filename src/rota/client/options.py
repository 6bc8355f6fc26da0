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


class Backoff(TypedDict, total=False):
    kind: Literal["fixed", "list", "exponential"]
    seconds: Required[float | Sequence[float]]
    factor: float
    max_s: float
    jitter: float


class Retries(TypedDict, total=False):
    max: Required[int]
    backoff: float | Sequence[float] | Backoff
    only: Sequence[int | str]
    never: Sequence[int | str]


class Rate(TypedDict):
    max: int
    period_s: float


class AlarmOptions(TypedDict, total=False):
    """Who is told: one of `mail`, `webhook`, `command`, `job`; of what: `failure`, `lateness`, `recovery`, or kinds."""

    mail: str
    webhook: str
    command: list[str]
    job: str
    kinds: Sequence[str]
    merge_s: float
    late_s: float
    secret: str


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
    pause_after: int
    params: dict[str, Any]
    retries: int | Retries
    lost_max: int
    on_exhausted: Literal["fail", "alarm", "pause"]
    timeout_s: float
    timeout: float
    """Another word for `timeout_s`, in Python only."""
    warn_s: float
    grace_s: float
    start_within_s: float
    hold_s: float
    cap: int
    rate: Rate
    group: str
    quota: str
    resources: Sequence[str]
    concurrency: int
    memory_mb: int
    cpu_s: float
    processes_max: int
    directory: str
    user: str
    env: dict[str, str]
    alarms: Sequence[AlarmOptions]


class CallOptions(TypedDict, total=False):
    """What may differ for one call of a task from what the task says."""

    key: str
    """The same key sends once, however often it is sent."""
    start_at: datetime | str
    start_in_s: float
    start_within_s: float
    retries: int | Retries
    lost_max: int
    timeout_s: float
    timeout: float
    """Another word for `timeout_s`."""
    warn_s: float
    grace_s: float
    hold_s: float
    group: str
    quota: str
    resources: Sequence[str]
    concurrency: int
    memory_mb: int
    cpu_s: float
    processes_max: int
    directory: str
    user: str
    env: dict[str, str]


class AssignOptions(TypedDict, total=False):
    start_at: datetime | str
    end_at: datetime | str
    key: str
    quota: str
    group: str
    retries: int | Retries
    timeout_s: float
    lost_max: int
    hold_s: float
    concurrency: int
    resources: Sequence[str]


class CalendarOptions(TypedDict, total=False):
    country: str
    weekdays: Weekdays
    closed: Sequence[Day]
    open: Sequence[Day]
    zone: str


def same_words(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Put `timeout` under the one key that all else knows. Says what is wrong with it, by field."""
    if "timeout" not in data:
        return []
    timeout = data.pop("timeout")
    if "timeout_s" in data:
        return [("timeout", "timeout_s is given too, and means the same")]
    data["timeout_s"] = timeout
    return []
