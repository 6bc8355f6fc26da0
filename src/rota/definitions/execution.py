"""Translate the execution keys of a definition to the model and back, and check which keys go together."""

from __future__ import annotations

from typing import Any

from rota.definitions.fields import CODE_MAX
from rota.definitions.report import Report, listed
from rota.definitions.spec import BackoffShape, ExecutionShape, read
from rota.execution.kinds.registry import KINDS
from rota.model.job import Definition, Task
from rota.model.work import Backoff, BackoffKind, Bounds, Rate, Retry

SAME = "timeout_s warn_s grace_s start_within_s hold_s group quota resources concurrency env".split()
"""The keys of a job that are fields of its task."""

BOUNDS = Bounds.__struct_fields__
OF_PROCESSES = (*BOUNDS, "env")
BACKOFF_ONLY = ("factor", "max_s")


def settings(shape: ExecutionShape, report: Report) -> dict[str, Any]:
    """Return the fields of a task besides its runner. Reports keys that do not fit together."""
    if shape.warn_s is not None and shape.timeout_s is not None and shape.warn_s >= shape.timeout_s:
        report.add(
            ("warn_s",), f"must be less than timeout_s, and {shape.warn_s:g} is not less than {shape.timeout_s:g}"
        )
    bounds = Bounds(**{key: getattr(shape, key) for key in BOUNDS})
    same = {key: getattr(shape, key) for key in SAME}
    return {**same, "bounds": bounds, "retry": _retry(shape, report.within("retries"))}


def rate(shape: ExecutionShape) -> Rate | None:
    return None if shape.rate is None else Rate(max=shape.rate.max, period_s=shape.rate.period_s)


def refuse_beside(runner: str, shape: ExecutionShape, report: Report) -> None:
    """Refuse keys that mean nothing for this kind of task."""
    kind = KINDS.find(runner)
    if kind.no_process:
        others = " and ".join(name for name in KINDS.own_names if not KINDS.find(name).no_process)
        for key in (key for key in OF_PROCESSES if key in shape.model_fields_set):
            report.add((key,), f"goes only with {others}; {kind.no_process}")
    if shape.concurrency > 1 and not kind.several_at_a_time:
        others = " and ".join(name for name in KINDS.own_names if KINDS.find(name).several_at_a_time)
        report.add(("concurrency",), f"more than 1 goes only with {others}, not with {runner}")


def check(definition: Definition, report: Report) -> None:
    """Check the execution of a definition by writing it as YAML keys and reading it again."""
    for task in definition.tasks:
        shape = read(ExecutionShape, written(definition, task), report)
        if shape is not None:
            settings(shape, report)
            refuse_beside(task.runner, shape, report)


def _retry(shape: ExecutionShape, report: Report) -> Retry:
    found = shape.retries
    both = sorted(set(found.only) & set(found.never))
    if both:
        report.add(("never",), f"names {listed(both)}, which only names too")
    return Retry(
        max=found.max,
        backoff=_backoff(found.backoff, report.within("backoff")),
        only=found.only,
        never=found.never,
        lost_max=shape.lost_max,
        on_exhausted=shape.on_exhausted,
    )


def _backoff(shape: BackoffShape, report: Report) -> Backoff:
    reason = _pause_refusal(shape)
    if reason is not None:
        report.add(("seconds",), reason)
    if shape.kind is not BackoffKind.EXPONENTIAL:
        for key in (key for key in BACKOFF_ONLY if key in shape.model_fields_set):
            report.add((key,), f"goes only with the kind exponential, not with {shape.kind}")
    pauses = shape.seconds if isinstance(shape.seconds, tuple) else (shape.seconds,)
    return Backoff(kind=shape.kind, seconds=pauses, factor=shape.factor, max_s=shape.max_s, jitter=shape.jitter)


def _pause_refusal(shape: BackoffShape) -> str | None:
    if isinstance(shape.seconds, tuple):
        return None if shape.kind is BackoffKind.LIST else f"must be one number with the kind {shape.kind}, not a list"
    if shape.kind is BackoffKind.LIST:
        return "must be a list of numbers with the kind list"
    if shape.kind is BackoffKind.EXPONENTIAL and not 0 < shape.seconds <= shape.max_s:
        return f"must be more than 0 and at most max_s ({shape.max_s:g}) with the kind exponential"
    return None


def written(definition: Definition, task: Task) -> dict[str, Any]:
    retry = task.retry
    found: dict[str, Any] = {key: getattr(task, key) for key in SAME}
    if not task.env:
        del found["env"]
    found |= {key: getattr(task.bounds, key) for key in BOUNDS}
    found |= {"lost_max": retry.lost_max, "on_exhausted": str(retry.on_exhausted), "cap": definition.cap}
    found["retries"] = _written_retries(retry)
    if definition.rate is not None:
        found["rate"] = {"max": definition.rate.max, "period_s": definition.rate.period_s}
    return {key: value for key, value in found.items() if value is not None}


def _written_retries(retry: Retry) -> dict[str, Any]:
    backoff = retry.backoff
    pauses: Any = backoff.seconds if backoff.kind is BackoffKind.LIST else (*backoff.seconds, None)[0]
    written: dict[str, Any] = {"kind": str(backoff.kind), "seconds": pauses, "jitter": backoff.jitter}
    if backoff.kind is BackoffKind.EXPONENTIAL:
        written |= {"factor": backoff.factor, "max_s": backoff.max_s}
    lists = {"only": retry.only, "never": retry.never}
    return {"max": retry.max, "backoff": written, **{key: _codes(found) for key, found in lists.items() if found}}


def _codes(causes: tuple[str, ...]) -> list[int | str]:
    codes = {str(code): code for code in range(1, CODE_MAX + 1)}
    return [codes.get(cause, cause) for cause in causes]
