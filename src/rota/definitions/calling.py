"""Check the options of a call. Where the caller gives none, those of the job count."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from rota.definitions import execution, fields, times
from rota.definitions.display import listed, suggestion
from rota.definitions.report import Report
from rota.definitions.spec import TIME_S_MAX, ExecutionShape, read
from rota.model.job import Definition, handler_of
from rota.model.work import Work

OF_JOB = ("cap", "rate", "on_exhausted")
"""What a call cannot change: it belongs to the job."""
OWN = ("start_at", "start_in_s", "key")
OPTIONS = (*(key for key in ExecutionShape.model_fields if key not in OF_JOB), *OWN)


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
    start_at, start_in_s = options.get("start_at"), options.get("start_in_s")
    if start_at is not None:
        start_at = report.read(("start_at",), times.instant, start_at)
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
