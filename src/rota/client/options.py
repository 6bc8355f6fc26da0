"""The keywords of tasks and calendars: the keys of the YAML form. `definitions/spec.py` says what they take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, Literal, Required, TypedDict

Weekdays = str | list[str]
Day = str | date


class WindowOptions(TypedDict, total=False):
    opens: Required[str]
    closes: Required[str]
    every_s: Required[float]
    weekdays: Weekdays


MisfireName = Literal["skip", "once", "all"]
OverlapName = Literal["forbid", "allow", "queue", "replace"]


class MisfireOptions(TypedDict, total=False):
    policy: MisfireName
    grace_s: float
    count_max: int
    per_s: float


class OverlapOptions(TypedDict, total=False):
    policy: OverlapName
    live_max: int
    queue_max: int
    key: str


class BackoffOptions(TypedDict, total=False):
    kind: Literal["fixed", "list", "exponential"]
    seconds: Required[float | Sequence[float]]
    factor: float
    max_s: float
    jitter: float


class RetriesOptions(TypedDict, total=False):
    max: Required[int]
    backoff: float | Sequence[float] | BackoffOptions
    only: Sequence[int | str]
    never: Sequence[int | str]


class RateOptions(TypedDict):
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


class ItemOptions(TypedDict, total=False):
    """What holds for every item, whoever makes it: a task, a call or an assignment."""

    retries: int | RetriesOptions
    lost_max: int
    timeout_s: float
    hold_s: float
    group: str
    quota: str
    resources: Sequence[str]
    concurrency: int


class ExecutionOptions(ItemOptions, total=False):
    """How an item of a task is executed: what the task says, and what one call may say otherwise."""

    start_within_s: float
    timeout: float
    """Another word for `timeout_s`, in Python only."""
    warn_s: float
    grace_s: float
    memory_mb: int
    cpu_s: float
    processes_max: int
    directory: str
    user: str
    env: dict[str, str]


class TaskOptions(ExecutionOptions, total=False):
    name: str
    title: str
    cron: str
    every_s: float
    delay_s: float
    once_at: datetime | str
    window: WindowOptions
    endless: str
    zone: str
    start_at: datetime | str
    end_at: datetime | str
    jitter_s: float
    calendar: str
    misfire: MisfireName | MisfireOptions
    overlap: OverlapName | OverlapOptions
    backlog_max: int
    pause_after: int
    params: dict[str, Any]
    on_exhausted: Literal["fail", "alarm", "pause"]
    cap: int
    rate: RateOptions
    alarms: Sequence[AlarmOptions]


class CallOptions(ExecutionOptions, total=False):
    """What may differ for one call of a task from what the task says."""

    key: str
    """The same key sends once, however often it is sent."""
    start_at: datetime | str
    start_in_s: float


class AssignOptions(ItemOptions, total=False):
    start_at: datetime | str
    end_at: datetime | str
    key: str


class CalendarOptions(TypedDict, total=False):
    country: str
    weekdays: Weekdays
    closed: Sequence[Day]
    open: Sequence[Day]
    zone: str


def same_words(data: dict[str, Any]) -> list[tuple[str, str]]:
    """Move `timeout` to `timeout_s`, its only name elsewhere. Returns problems as pairs of field and reason."""
    if "timeout" not in data:
        return []
    timeout = data.pop("timeout")
    if "timeout_s" in data:
        return [("timeout", "timeout_s is given too, and means the same")]
    data["timeout_s"] = timeout
    return []
