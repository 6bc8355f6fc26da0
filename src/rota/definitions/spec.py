"""The schema of jobs, calendars and files: their keys, types and defaults.

YAML and the SDK fill the same shapes. Reading one reports all that is wrong in it, and gives back what is right, so
that the checks of the whole can go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from rota.definitions import alarm, fields, params, times
from rota.definitions.fields import validator, wrong
from rota.definitions.report import PROBLEMS_MAX, Report, listed, shown, suggestion
from rota.execution.kinds.kind import EMPTY
from rota.model import work
from rota.model.alarm import JobAlarm
from rota.model.job import BACKLOG_MAX, GRACE_S, MisfirePolicy, OverlapPolicy
from rota.model.work import LOST_MAX, BackoffKind, OnExhausted

TITLE_MAX = 200
CRON_MAX = 1000
ENDLESS_MAX = 1000
KEY_MAX = 200
ZONE_MAX = 100
DAY_S = 24 * 3600
TIME_S_MAX = 366 * DAY_S
PAUSE_S_MAX = 31 * DAY_S
RESOURCES_MAX = 20

Name = Annotated[str, validator(fields.name)]
ZoneName = Annotated[str | None, validator(fields.text(ZONE_MAX))]
ShortText = Annotated[str, validator(fields.text(100))]
Params = Annotated[dict[str, Any] | None, validator(params.params)]  # at the field, `params` would be the field
Seconds = Annotated[float | None, validator(fields.seconds)]
Moment = Annotated[datetime | None, validator(times.instant)]
Alarms = Annotated[tuple[JobAlarm, ...] | None, validator(alarm.job_alarms)]
Weekdays = Annotated[tuple[int, ...] | None, validator(times.weekdays)]


def _mapping(value: object) -> object:
    """Let only mappings through; pydantic looks at what is inside."""
    if value is None:
        raise wrong(EMPTY)
    if not isinstance(value, dict):
        raise wrong(f"must be a mapping, not {shown(value)}")
    return value


def _policy(value: object) -> object:
    """`misfire: skip` is short for `misfire: {policy: skip}`."""
    return {"policy": value} if isinstance(value, str) else _mapping(value)


def _retries(value: object) -> object:
    """`retries: 3` is short for `retries: {max: 3}`."""
    return _mapping(value) if value is None or isinstance(value, dict | list | tuple) else {"max": value}


def _backoff(value: object) -> object:
    """`backoff: 5` is short for `{seconds: 5}`, and `backoff: [1, 5]` for `{kind: list, seconds: [1, 5]}`."""
    if isinstance(value, list | tuple):
        return {"kind": "list", "seconds": value}
    return _mapping(value) if value is None or isinstance(value, dict) else {"seconds": value}


def _days(value: object) -> list[date]:
    if not isinstance(value, list | tuple):
        raise ValueError(f"must be a list of days like [2026-12-24, 2026-12-27..2026-12-31], not {shown(value)}")
    found = sorted({day for part in value for day in times.days(part)})
    if len(found) > times.DAYS_MAX:
        raise ValueError(f"has {len(found)} days; at most {times.DAYS_MAX} are allowed")
    return found


class Shape(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class WindowShape(Shape):
    opens: ShortText
    closes: ShortText
    every_s: Annotated[float, validator(fields.seconds)]
    weekdays: Annotated[tuple[int, ...], validator(times.weekdays)] = times.ALL_WEEKDAYS


class MisfireShape(Shape):
    policy: Annotated[MisfirePolicy, validator(fields.choice(MisfirePolicy))] = MisfirePolicy.ONCE
    grace_s: Annotated[float, validator(fields.number(0, 31 * DAY_S, "number of seconds"))] = GRACE_S
    count_max: Annotated[int, validator(fields.whole(1, 1000))] = 100
    per_s: Annotated[float | None, validator(fields.number(0.01, 1000))] = None


class OverlapShape(Shape):
    policy: Annotated[OverlapPolicy, validator(fields.choice(OverlapPolicy))] = OverlapPolicy.FORBID
    live_max: Annotated[int, validator(fields.whole(1, 10_000))] = 1
    queue_max: Annotated[int, validator(fields.whole(1, 10_000))] = 1
    key: Annotated[str | None, validator(fields.text(KEY_MAX))] = None


class BackoffShape(Shape):
    kind: Annotated[BackoffKind, validator(fields.choice(BackoffKind))] = BackoffKind.FIXED
    seconds: Annotated[float | tuple[float, ...], validator(fields.pauses(PAUSE_S_MAX))]
    factor: Annotated[float, validator(fields.number(1, 100))] = 2.0
    max_s: Annotated[float, validator(fields.number(0, PAUSE_S_MAX, "number of seconds"))] = 3600.0
    jitter: Annotated[float, validator(fields.number(0, 1))] = 0.0


class RetriesShape(Shape):
    max: Annotated[int, validator(fields.whole(0, 100))]
    backoff: Annotated[BackoffShape, BeforeValidator(_backoff)] = BackoffShape(seconds=0.0)
    only: Annotated[tuple[str, ...], validator(fields.causes)] = ()
    never: Annotated[tuple[str, ...], validator(fields.causes)] = ()


class RateShape(Shape):
    max: Annotated[int, validator(fields.whole(1, 100_000))]
    period_s: Annotated[float, validator(fields.number(0.1, PAUSE_S_MAX, "number of seconds"))]


class ExecutionShape(Shape):
    """How a job is executed. Keys that the model knows by the same word are handed on as they are."""

    retries: Annotated[RetriesShape, BeforeValidator(_retries)] = RetriesShape(max=0)
    lost_max: Annotated[int, validator(fields.whole(1, 100))] = LOST_MAX
    on_exhausted: Annotated[OnExhausted, validator(fields.choice(OnExhausted))] = OnExhausted.FAIL
    timeout_s: Annotated[float | None, validator(fields.number(0.1, TIME_S_MAX, "number of seconds"))] = None
    warn_s: Annotated[float | None, validator(fields.number(0.1, TIME_S_MAX, "number of seconds"))] = None
    grace_s: Annotated[float, validator(fields.number(0, 3600, "number of seconds"))] = work.GRACE_S
    start_within_s: Annotated[float, validator(fields.number(0, PAUSE_S_MAX, "number of seconds"))] = 0.0
    hold_s: Annotated[float, validator(fields.number(0, DAY_S, "number of seconds"))] = 0.0
    cap: Annotated[int | None, validator(fields.whole(1, 100_000))] = None
    rate: Annotated[RateShape | None, BeforeValidator(_mapping)] = None
    group: Name = "default"
    quota: Name = "default"
    resources: Annotated[tuple[str, ...], validator(fields.names(RESOURCES_MAX))] = ()
    concurrency: Annotated[int, validator(fields.whole(1, 1000))] = 1
    memory_mb: Annotated[int | None, validator(fields.whole(1, 1024 * 1024))] = None
    cpu_s: Annotated[float | None, validator(fields.number(1, TIME_S_MAX, "number of seconds"))] = None
    processes_max: Annotated[int | None, validator(fields.whole(1, 100_000))] = None
    directory: Annotated[str | None, validator(fields.directory)] = None
    user: Annotated[str | None, validator(fields.user)] = None
    env: Annotated[dict[str, str], validator(fields.environment)] = {}


class JobShape(ExecutionShape):
    """All keys of a job but the one that says what runs, which is the name of a kind of task."""

    title: Annotated[str, validator(fields.title(TITLE_MAX))] = ""
    cron: Annotated[str | None, validator(fields.text(CRON_MAX))] = None
    every_s: Seconds = None
    delay_s: Seconds = None
    once_at: Moment = None
    window: Annotated[WindowShape | None, BeforeValidator(_mapping)] = None
    endless: Annotated[str | None, validator(fields.text(ENDLESS_MAX))] = None
    zone: ZoneName = None
    start_at: Moment = None
    end_at: Moment = None
    jitter_s: Seconds = None
    calendar: Annotated[str | None, validator(fields.name)] = None
    misfire: Annotated[MisfireShape, BeforeValidator(_policy)] = MisfireShape()
    overlap: Annotated[OverlapShape, BeforeValidator(_policy)] = OverlapShape()
    backlog_max: Annotated[int, validator(fields.whole(0, 1000))] = BACKLOG_MAX
    pause_after: Annotated[int | None, validator(fields.whole(1, 1000))] = None
    params: Params = None
    alarms: Alarms = None


class CalendarShape(Shape):
    country: Annotated[str | None, validator(fields.text(100))] = None
    weekdays: Weekdays = None
    closed: Annotated[list[date] | None, validator(_days)] = None
    open: Annotated[list[date] | None, validator(_days)] = None
    zone: ZoneName = None


class FileShape(Shape):
    tenant: Name = "default"
    project: Name = "default"
    calendars: Annotated[dict[str, Any] | None, BeforeValidator(_mapping)] = None
    alarms: Alarms = None
    jobs: Annotated[dict[str, Any], BeforeValidator(_mapping)]


S = TypeVar("S", bound=Shape)


Others = Mapping[str, tuple[str, ...]]
"""Keys that somebody else reads beside a shape, each with the keys inside it: they belong into hints."""


def read(shape: type[S], data: object, report: Report, others: Others | None = None) -> S | None:
    """Fill a shape. What is wrong goes into the report and is left out; without a key that must be there: nothing."""
    if not isinstance(data, dict):
        report.add((), f"must be a mapping, not {shown(data)}")
        return None
    try:
        return shape.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    for detail in details[:PROBLEMS_MAX]:
        report.add(detail["loc"], _reason(shape, detail, others or {}))
    wrong = {detail["loc"][0] for detail in details}
    try:
        return shape.model_validate({key: value for key, value in data.items() if key not in wrong})
    except ValidationError:
        return None


def _reason(shape: type[Shape], detail: ErrorDetails, others: Others) -> str:
    match detail["type"]:
        case "rota":
            return str(detail["ctx"]["reason"])
        case "missing":
            return "is missing"
        case "extra_forbidden":
            *path, key = detail["loc"]
            return f"is not a known key{_hint(_shape_at(shape, tuple(path)), key, {} if path else others)}"
        case "invalid_key":
            return "a key must be text"
        case _:
            return detail["msg"]


def _hint(shape: type[Shape], key: str | int, others: Others) -> str:
    """What may have been meant by a key that the shape does not have."""
    homes = [name for name in shape.model_fields if (inner := _shape_of(shape, name)) and key in inner.model_fields]
    homes += [name for name, keys in others.items() if key in keys]
    if homes:
        return f" here; it goes inside {' or '.join(homes)}"
    known = [*shape.model_fields, *others]
    return suggestion(key, known) or f"; known are {listed(known)}"


def _shape_at(shape: type[Shape], path: tuple[str | int, ...]) -> type[Shape]:
    for step in path:
        inner = _shape_of(shape, str(step))
        assert inner is not None, "only shapes have keys that are not known"
        shape = inner
    return shape


def _shape_of(shape: type[Shape], key: str) -> type[Shape] | None:
    annotation = shape.model_fields[key].annotation
    kinds = (annotation, *get_args(annotation))
    return next((kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Shape)), None)
