"""Make a `Definition` of one job as a person wrote it."""

from __future__ import annotations

from typing import Any, NamedTuple

from rota.definitions import execution, policies
from rota.definitions.calendars import Calendars
from rota.definitions.display import listed
from rota.definitions.report import Report
from rota.definitions.spec import JobShape, read
from rota.definitions.triggers import schedule
from rota.errors import InvalidInput
from rota.execution.kinds.kind import EMPTY
from rota.execution.kinds.registry import KINDS
from rota.model.alarm import JobAlarm
from rota.model.job import Definition, JobName, Task
from rota.model.value import Json, canonical

TASK = "main"
"""The name of the one task of a job."""


def define(
    name: JobName,
    data: object,
    *,
    calendars: Calendars,
    report: Report,
    handler: str | None = None,
    alarms: tuple[JobAlarm, ...] = (),
) -> Definition | None:
    """Read a job. Adds every problem to the report; if there is one, returns None.

    With a handler, a function of an app is what runs, and the data names no kind of task. `alarms` are for a job that
    says nothing about them itself.
    """
    before = report.count
    names = _kinds(data)
    rest = {key: value for key, value in data.items() if key not in names} if isinstance(data, dict) else data
    shape = read(JobShape, rest, report, {kind: _keys_of(kind) for kind in names})
    if shape is None or not isinstance(data, dict):
        return None
    when = schedule(name, shape, data, calendars, report)
    misfire = policies.misfire(shape.misfire, report.within("misfire"))
    params = shape.params or {}
    params_known = "params" not in data or shape.params is not None
    overlap = policies.overlap(shape.overlap, params if params_known else None, report.within("overlap"))
    how = execution.settings(shape, report)
    what = _what(names, data, report) if handler is None else _handled(handler, names, data, report)
    if what is not None:
        execution.refuse_beside(what.runner, shape, report)
    if when is None or what is None or report.count > before:
        return None
    definition = Definition(
        tenant=name.tenant,
        project=name.project,
        name=name.name,
        title=shape.title,
        schedule=when,
        misfire=misfire,
        overlap=overlap,
        backlog_max=shape.backlog_max,
        params=params,
        cap=shape.cap,
        rate=execution.rate(shape),
        pause_after=shape.pause_after,
        tasks=(Task(name=TASK, runner=what.runner, config=what.config, **how),),
        alarms=alarms if shape.alarms is None else shape.alarms,
    )
    return canonical(definition)  # so that what was not written is not stored


class _What(NamedTuple):
    """What runs: a kind of task, and what it is told."""

    runner: str
    config: dict[str, Json]


def _kinds(data: object) -> tuple[str, ...]:
    """The kinds of task that a job may name. Plugins are looked for only if there is a key that we do not know."""
    if isinstance(data, dict) and not data.keys() <= {*JobShape.model_fields, *KINDS.own_names}:
        return KINDS.names
    return KINDS.own_names


def _keys_of(kind: str) -> tuple[str, ...]:
    """The keys inside a kind, for hints: a plugin that cannot be loaded is reported only by jobs that name it."""
    try:
        return KINDS.find(kind).keys
    except InvalidInput:
        return ()


def _handled(handler: str, names: tuple[str, ...], data: dict[str, Any], report: Report) -> _What:
    for key in names:
        if key in data:
            report.add((key,), "goes only with jobs in YAML; here the function itself is what runs")
    return _What("python", {"handler": handler})


def _what(names: tuple[str, ...], data: dict[str, Any], report: Report) -> _What | None:
    given = [key for key in data if key in names]
    if not given:
        report.add((), f"says nothing to run; give it one of {listed(names)}")
        return None
    for key in given[1:]:
        report.add((key,), f"{given[0]} is given too; only one of {listed(names)} is allowed")
    found = [_What(key, config) for key in given if (config := _config(key, data[key], report.within(key))) is not None]
    return found[0] if found else None


def _config(kind: str, value: object, report: Report) -> dict[str, Json] | None:
    if value is None:
        report.add((), EMPTY)
        return None
    try:
        found = KINDS.find(kind)
    except InvalidInput as error:
        report.add((), error.problems[0].reason)
        return None
    return found.config(value, report)
