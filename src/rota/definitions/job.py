"""One job as a person wrote it becomes a `Definition`."""

from __future__ import annotations

from typing import Any, NamedTuple

from rota.definitions import execution, policies
from rota.definitions.calendars import Calendars
from rota.definitions.report import Report
from rota.definitions.runners import BODILESS
from rota.definitions.spec import HttpShape, JobShape, read
from rota.definitions.triggers import schedule
from rota.definitions.words import listed
from rota.model.alarm import JobAlarm
from rota.model.job import Definition, JobName, Task
from rota.model.value import Json, canonical

TASK = "main"
"""The name of the one task of a job."""

RUNNERS = ("shell", "python", "http")


def define(
    name: JobName,
    data: object,
    *,
    calendars: Calendars,
    report: Report,
    handler: str | None = None,
    alarms: tuple[JobAlarm, ...] = (),
) -> Definition | None:
    """Read a job. All that is wrong goes into the report, and then there is no definition.

    With a handler, a function of an app is what runs, and the data names no runner. `alarms` are for a job that says
    nothing about them itself.
    """
    before = report.count
    shape = read(JobShape, data, report)
    if shape is None or not isinstance(data, dict):
        return None
    when = schedule(name, shape, data, calendars, report)
    misfire = policies.misfire(shape.misfire, report.within("misfire"))
    params = shape.params or {}
    params_known = "params" not in data or shape.params is not None
    overlap = policies.overlap(shape.overlap, params if params_known else None, report.within("overlap"))
    how = execution.settings(shape, report)
    what = _runner(shape, data, report) if handler is None else _handled(handler, data, report)
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
    """What runs."""

    runner: str
    config: dict[str, Json]


def _handled(handler: str, data: dict[str, Any], report: Report) -> _What:
    for key in RUNNERS:
        if key in data:
            report.add((key,), "goes only with jobs in YAML; here the function itself is what runs")
    return _What("python", {"handler": handler})


def _runner(shape: JobShape, data: dict[str, Any], report: Report) -> _What | None:
    given = [key for key in data if key in RUNNERS]
    if not given:
        report.add((), f"says nothing to run; give it one of {listed(RUNNERS)}")
    for key in given[1:]:
        report.add((key,), f"{given[0]} is given too; only one of {listed(RUNNERS)} is allowed")
    if shape.shell is not None:
        return _What("shell", {"argv": list(shape.shell)})
    if shape.python is not None:
        return _What("python", {"function": shape.python})
    if shape.http is not None:
        return _What("http", _request(shape.http, report.within("http")))
    return None


def _request(shape: HttpShape, report: Report) -> dict[str, Json]:
    if shape.body is not None and shape.method in BODILESS:
        report.add(("body",), f"does not go with the method {shape.method}; use POST, PUT, PATCH or DELETE")
    config: dict[str, Json] = {"url": shape.url, "method": str(shape.method)}
    if shape.headers:
        config["headers"] = dict(shape.headers)
    if shape.body is not None:
        config["body"] = shape.body
    return config
