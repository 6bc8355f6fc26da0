"""Make a `Definition` of one job as a person wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from rota.core.time import instants
from rota.definitions import execution
from rota.definitions.calendars import Calendars
from rota.definitions.report import Report, listed, shown, suggestion
from rota.definitions.spec import KEY_MAX, JobShape, MisfireShape, OverlapShape, read
from rota.errors import InvalidInput
from rota.execution.kinds.kind import EMPTY
from rota.execution.kinds.registry import KINDS
from rota.model.alarm import JobAlarm
from rota.model.job import Definition, JobName, Misfire, MisfirePolicy, Overlap, OverlapPolicy, Task
from rota.model.trigger import Cron, Delay, Endless, Every, Manual, Once, Rule, Schedule, Window
from rota.model.value import Json, canonical

TASK = "main"
"""The name of the one task of a job."""
TRIGGERS = ("cron", "every_s", "delay_s", "once_at", "window", "endless")
ZONED = ("cron", "window", "endless")
BESIDE = ("start_at", "end_at", "jitter_s", "calendar")

_dollar = re.compile(r"\$(?:\{(?P<name>[^{}]*)\}|(?P<literal>\$))?")


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
    when = _schedule(name, shape, data, calendars, report)
    misfire = _misfire(shape.misfire, report.within("misfire"))
    params = shape.params or {}
    params_known = "params" not in data or shape.params is not None
    overlap = _overlap(shape.overlap, params if params_known else None, report.within("overlap"))
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
    _refuse_several(given, names, report)
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


def _misfire(shape: MisfireShape, report: Report) -> Misfire:
    if shape.policy is not MisfirePolicy.ALL:
        for key in sorted(shape.model_fields_set & {"count_max", "per_s"}):
            report.add((key,), f"goes only with the policy all, not with {shape.policy}")
    return Misfire(policy=shape.policy, grace_s=shape.grace_s, count_max=shape.count_max, per_s=shape.per_s)


def _overlap(shape: OverlapShape, params: dict[str, Json] | None, report: Report) -> Overlap:
    """Without `params` (they are wrong themselves) the names in the key are not checked."""
    _only_with(shape, "live_max", OverlapPolicy.ALLOW, report)
    _only_with(shape, "queue_max", OverlapPolicy.QUEUE, report)
    if shape.policy is OverlapPolicy.ALLOW and "live_max" not in shape.model_fields_set:
        report.add(("live_max",), "is missing; say how many runs may be live at a time, from 1 to 10000")
    if shape.key is not None:
        _check_key(shape.key, params, report.within("key"))
    return Overlap(policy=shape.policy, live_max=shape.live_max, queue_max=shape.queue_max, key=shape.key)


def _only_with(shape: OverlapShape, key: str, policy: OverlapPolicy, report: Report) -> None:
    if key in shape.model_fields_set and shape.policy is not policy:
        report.add((key,), f"goes only with the policy {policy}, not with {shape.policy}")


def _check_key(key: str, params: dict[str, Json] | None, report: Report) -> None:
    if not key.isprintable():
        report.add((), f"must be printable text, not {shown(key)}")
    filled = key
    for match in _dollar.finditer(key):
        reason = _refusal(match, params)
        if reason is not None:
            report.add((), reason)
        elif match["name"] is not None and params is not None:
            filled = filled.replace(match[0], str(params[match["name"]]))
    if len(filled) > KEY_MAX or not filled.isprintable():
        report.add((), f"must be printable and have at most {KEY_MAX} characters when its parameters are filled in")


def _refusal(match: re.Match[str], params: dict[str, Json] | None) -> str | None:
    name = match["name"]
    if match["literal"]:
        return None
    if name is None:
        return "a $ must begin ${name}, a parameter, or be written $$"
    if params is None:
        return None
    if name not in params:
        known = f"; known are {listed(params)}" if params else "; params is empty"
        return f"there is no parameter {shown(name)}{suggestion(name, params) or known}"
    if not isinstance(params[name], str | int | float):
        return f"the parameter {name} is {shown(params[name])}; in a key it must be text, a number or true/false"
    return None


def _schedule(
    name: JobName, shape: JobShape, data: dict[str, Any], calendars: Calendars, report: Report
) -> Schedule | None:
    """Read when a job is due; `shape` holds what is right in `data`."""
    given = [key for key in data if key in TRIGGERS]
    _refuse_several(given, TRIGGERS, report)
    _refuse_without(given, data, report)
    calendar = None
    if shape.calendar is not None:
        calendar = calendars.find(shape.calendar, shape.zone, report.within("calendar"))
    if len(given) > 1:
        return None
    try:
        rule = _rule(shape, shape.zone or "UTC") if given else Manual()
        if rule is None:
            return None
        found = Schedule(
            rule=rule,
            start_at=shape.start_at,
            end_at=shape.end_at,
            jitter_s=shape.jitter_s or 0.0,
            calendar=calendar,
        )
        instants.check(found, seed="/".join(name))
    except InvalidInput as error:
        report.adopt(error)
        return None
    return found


def _refuse_several(given: list[str], kinds: Iterable[str], report: Report) -> None:
    for key in given[1:]:
        report.add((key,), f"{given[0]} is given too; only one of {listed(kinds)} is allowed")


def _refuse_without(given: list[str], data: dict[str, Any], report: Report) -> None:
    """Refuse keys that mean nothing without a trigger, or with this one."""
    if "zone" in data and not set(given) & set(ZONED):
        report.add(("zone",), f"goes only with {listed(ZONED)}, and there is {listed(given) or 'none of them'}")
    if not given:
        for key in BESIDE:
            if key in data:
                report.add((key,), f"goes only with a trigger ({listed(TRIGGERS)}), and there is none")


def _rule(shape: JobShape, zone: str) -> Rule | None:
    """The rule of the one trigger that is given; nothing if its value is wrong."""
    if shape.cron is not None:
        return Cron(expression=shape.cron, zone=zone)
    if shape.every_s is not None:
        return Every(every_s=shape.every_s)
    if shape.delay_s is not None:
        return Delay(delay_s=shape.delay_s)
    if shape.once_at is not None:
        return Once(once_at=shape.once_at)
    if shape.endless is not None:
        return Endless(paces=instants.parse_endless(shape.endless), zone=zone)
    return None if shape.window is None else Window(**shape.window.model_dump(), zone=zone)
