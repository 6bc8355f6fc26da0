"""Check the work that a client hands over to be executed: assignments, and calls of a task (S2.19, S2.22, S2.32); and
limits: cap, weight and rate.

Reports every problem at once, by the name of the argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from rota.definitions import execution, fields, times
from rota.definitions.params import json
from rota.definitions.report import Report, listed, shown, suggestion
from rota.definitions.spec import PAUSE_S_MAX, TIME_S_MAX, ExecutionShape, read
from rota.errors import InvalidInput
from rota.execution.kinds.python import function
from rota.model.job import Definition, handler_name, handler_of
from rota.model.listener import app_name
from rota.model.value import Json
from rota.model.work import ASSIGN_MAX, NUMBER_MAX, TIMEOUT_S, Assignment, NewTask, Rate, Work

NOTICES = ("on_fail", "on_timeout")
"""The listeners that can be told what became of an item."""

TIMEOUT_S_MAX = 10 * 86400.0
SHARED = ("retries", "lost_max", "timeout_s", "hold_s", "group", "quota", "resources", "concurrency")
"""The keys of a job that an assignment takes too."""

EXTEND_S_MAX = TIMEOUT_S_MAX

_number = fields.text(NUMBER_MAX)
_timeout = fields.number(0.1, TIMEOUT_S_MAX, "number of seconds")
OF_JOB = ("cap", "rate", "on_exhausted")
"""What a call cannot change: it belongs to the job."""
OWN = ("start_at", "start_in_s", "key")
OPTIONS = (*(key for key in ExecutionShape.model_fields if key not in OF_JOB), *OWN)


def assignment(
    key: str,
    tenant: str,
    numbers: Sequence[str],
    infos: Sequence[Any] | None = None,
    *,
    start_at: datetime | str | None = None,
    end_at: datetime | str | None = None,
    handler: str | None = None,
    notify: Sequence[str] = (),
    app: str | None = None,
    **options: Any,
) -> Assignment:
    """Read one call of `assign`. Raises InvalidInput."""
    if unknown := sorted(set(options) - set(SHARED)):
        raise InvalidInput.of(unknown[0], f"is not known; known are {listed(SHARED)}")
    report = Report()
    start, end = _instant("start_at", start_at, report), _instant("end_at", end_at, report)
    if start is not None and end is not None and end < start:
        report.add(("end_at",), f"lies before start_at: {end.isoformat()} is before {start.isoformat()}")
    tasks = _tasks(numbers, infos, report)
    told = report.read(("notify",), _listeners, notify)
    listening = "" if app is None else report.read(("app",), _app, app)
    work = _work(tenant, handler, options, report)
    report.raise_if_any()
    assert work is not None
    work = msgspec.structs.replace(work, notify=told, app="" if listening == app_name(work.tenant) else listening)
    return Assignment(key=key, work=work, tasks=tasks, start_at=start, end_at=end)


def handler_text(value: object) -> str:
    """Read a handler: a function (`package.module:function`), or a task of an app by its job's name."""
    from rota.definitions.requests import job_name

    if isinstance(value, str) and ":" in value:
        return function(value)
    if not isinstance(value, str):
        raise ValueError(f"must be the name of a task, or a function like package.module:function, not {shown(value)}")
    try:
        return handler_name(job_name(value))
    except InvalidInput as error:
        raise ValueError(error.problems[0].reason) from None


def _tasks(numbers: object, infos: object, report: Report) -> tuple[NewTask, ...]:
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        report.add(("numbers",), f"must be a list of texts, not {shown(numbers)}")
        return ()
    found = list(numbers)
    if not 1 <= len(found) <= ASSIGN_MAX:
        report.add(("numbers",), f"must be 1 to {ASSIGN_MAX} in one call, not {len(found)}")
        return ()
    given = _infos(infos, len(found), report)
    _check_numbers(found, report)
    return tuple(NewTask(number=number, info=info) for number, info in zip(found, given, strict=True))


def _check_numbers(found: Sequence[object], report: Report) -> None:
    seen: set[object] = set()
    for place, number in enumerate(found):
        word = report.read(("numbers", place), _number, number)
        if word is not None and word in seen:
            report.add(("numbers", place), f"{shown(word)} is given twice; a number names one item")
        seen.add(word)


def _infos(infos: object, count: int, report: Report) -> Sequence[Json]:
    if infos is None:
        return [None] * count
    if isinstance(infos, str) or not isinstance(infos, Iterable):
        report.add(("infos",), f"must be a list with one value for each number, not {shown(infos)}")
        return [None] * count
    found = list(infos)
    if len(found) != count:
        report.add(
            ("infos",), f"there are {len(found)} for {count} numbers; there must be one for each, or none at all"
        )
        return [None] * count
    return [report.read(("infos", place), json, info) for place, info in enumerate(found)]


def _work(tenant: object, handler: object, options: Mapping[str, Any], report: Report) -> Work | None:
    name = report.read(("tenant",), fields.name, tenant)
    does = None if handler is None else report.read(("handler",), handler_text, handler)
    timeout = report.read(("timeout_s",), _timeout, options.get("timeout_s", TIMEOUT_S))
    before = report.count
    shape = read(ExecutionShape, {key: value for key, value in options.items() if key != "timeout_s"}, report)
    if shape is None or name is None or timeout is None:
        return None
    how = execution.settings(shape, report)
    if report.count > before:
        return None
    if does is None and shape.concurrency > 1:
        report.add(("concurrency",), "more than 1 goes only with a handler")
    return Work(
        tenant=name,
        quota=shape.quota,
        group=shape.group,
        handler=does,
        timeout_s=timeout,
        retry=how["retry"],
        hold_s=shape.hold_s,
        concurrency=shape.concurrency,
        resources=shape.resources,
    )


def _listeners(value: object) -> tuple[str, ...]:
    if isinstance(value, list | tuple) and all(each in NOTICES for each in value):
        return fields.once(value)
    raise ValueError(f"must be a list of {' and '.join(NOTICES)}, not {shown(value)}")


def _app(value: object) -> str:
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 2:
        raise ValueError(f"must be tenant/project, not {shown(value)}")
    return app_name(*map(fields.name, parts))


def _instant(field: str, value: object, report: Report) -> datetime | None:
    return None if value is None else report.read((field,), times.instant, value)


class Call(NamedTuple):
    """The checked options of a call."""

    work: Work
    start_at: datetime | None = None
    start_in_s: float = 0.0
    start_within_s: float = 0.0
    key: str | None = None


def call(definition: Definition, options: Mapping[str, Any]) -> Call:
    """What a call of a job's task means. Raises InvalidInput with all that is wrong with the options."""
    report = Report()
    (task,) = definition.tasks
    for key in options:
        if key not in OPTIONS:
            hint = suggestion(key, OPTIONS) or f"; known are {listed(OPTIONS)}"
            report.add((key,), "belongs to the job, not to one call" if key in OF_JOB else f"is not known{hint}")
    given = {key: value for key, value in options.items() if key in OPTIONS and key not in OWN}
    shape = read(ExecutionShape, execution.written(definition, task) | given, report)
    start_at, start_in_s = _instant("start_at", options.get("start_at"), report), options.get("start_in_s")
    if start_in_s is not None:
        start_in_s = report.read(("start_in_s",), fields.number(0, TIME_S_MAX, "number of seconds"), start_in_s)
    if start_at is not None and start_in_s is not None:
        report.add(("start_in_s",), "start_at is given too; only one of them is allowed")
    how = {} if shape is None else execution.settings(shape, report)
    report.raise_if_any()
    start_within_s = how.pop("start_within_s")
    work = Work(
        tenant=definition.tenant,
        handler=handler_of(definition, task),
        call=True,
        cap=definition.cap,
        rate=definition.rate,
        **how | {"timeout_s": how["timeout_s"] or TIME_S_MAX},
    )
    return Call(work, start_at, start_in_s or 0.0, start_within_s, options.get("key"))


CAP_MAX = 1_000_000
WEIGHT_MAX = 1000
STARTS_MAX = 100_000

_cap = fields.whole(0, CAP_MAX)
_weight = fields.whole(1, WEIGHT_MAX)
_starts = fields.whole(1, STARTS_MAX)
_period = fields.number(0.1, PAUSE_S_MAX, "number of seconds")


def checked(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the checked fields of a limit; None means no cap or no rate. Raises InvalidInput."""
    return fields.checked(given, _READERS)


def check_names(given: Mapping[str, str]) -> None:
    """Check names of tenants, quotas and resources. Raises InvalidInput."""
    fields.checked(given, dict.fromkeys(given, fields.name))


def rate_of(value: object) -> Rate | None:
    """Read a rate: a `Rate`, a pair (starts, seconds), a mapping, or a text like `10/60`; nothing for none."""
    match value:
        case None:
            return None
        case Rate():
            starts, period = value.max, value.period_s
        case {"max": starts, "period_s": period, **rest} if not rest:
            pass
        case (starts, period):
            pass
        case str():
            starts, period = _split(value)
        case _:
            raise ValueError(f"must be a number of starts and a number of seconds, not {shown(value)}")
    return Rate(max=_starts(starts), period_s=_period(period))


def _split(text: str) -> tuple[int, float]:
    starts, slash, period = text.partition("/")
    try:
        return int(starts), float(period) if slash else 1.0
    except ValueError:
        raise ValueError(f"must be starts and seconds like 10/60, not {shown(text)}") from None


_READERS = {"cap": lambda value: None if value is None else _cap(value), "weight": _weight, "rate": rate_of}
