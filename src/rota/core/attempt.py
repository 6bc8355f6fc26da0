"""Build an attempt, all that an executor needs, from the item, its run and the version of its job."""

from __future__ import annotations

from rota.model.dispatch import Grant, Granted
from rota.model.job import Definition, Task, handler_of
from rota.model.listener import advertised, is_listener, listener_name
from rota.model.run import Item, Run
from rota.model.value import Json, decode
from rota.model.work import Attempt, AttemptEnd, ExecutionSpec, Work, token_of

ON_START = "on_start"


def may_overlap(end: AttemptEnd, margin_s: float) -> bool:
    """Whether processes of this attempt ran when others could have begun a later one: their deadline is a margin before
    the end of the lease, and a rescue is possible a margin after it."""
    return end.late_s > 2 * margin_s


def job_spec(definition: Definition, task_name: str) -> ExecutionSpec:
    task = definition.task(task_name)
    return ExecutionSpec(
        name=str(definition.full_name),
        tenant=definition.tenant,
        task=task_name,
        runner=task.runner,
        config=_config(definition, task),
        retry=task.retry,
        bounds=task.bounds,
        env=task.env,
        timeout_s=task.timeout_s,
        warn_s=task.warn_s,
        grace_s=task.grace_s,
        hold_s=task.hold_s,
        concurrency=task.concurrency,
    )


def assigned_spec(work: Work, task_name: str) -> ExecutionSpec:
    """How assigned items are executed: their handler does it, or the client is told to."""
    external = work.handler is None
    return ExecutionSpec(
        name=work.handler if work.call and work.handler else work.tenant,
        tenant=work.tenant,
        task=task_name,
        runner="python",
        config=_assigned_config(work),
        retry=work.retry,
        bounds=work.bounds,
        env=work.env,
        timeout_s=work.timeout_s,
        warn_s=work.warn_s,
        grace_s=work.grace_s,
        hold_s=0.0 if external else work.hold_s,
        concurrency=work.concurrency,
        external=external,
        notify=work.notify,
    )


def job_attempt(
    granted: Granted, grant: Grant, item: Item, spec: ExecutionSpec, run: Run, definition: Definition
) -> Attempt:
    full_name = f"{definition.tenant}/{definition.project}/{definition.name}"
    return Attempt(
        granted.item_id,
        granted.attempt,
        token_of(grant.round, granted.attempt),
        granted.run_id,
        granted.job_id,
        granted.lane_id,
        grant.round,
        grant.at_us,
        granted.failures,
        granted.losses,
        item.index,
        f"{full_name}/{run.key}/{item.task}/{item.index}",
        spec,
        {**definition.params, **run.params},
        slot_at=run.slot_at,
        start_by_at=None if run.slot_at is None else item.start_by_at,
    )


def assigned_attempt(granted: Granted, grant: Grant, item: Item, spec: ExecutionSpec, work: Work) -> Attempt:
    return Attempt(
        granted.item_id,
        granted.attempt,
        token_of(grant.round, granted.attempt),
        granted.run_id,
        0,
        granted.lane_id,
        grant.round,
        grant.at_us,
        granted.failures,
        granted.losses,
        item.index,
        f"{work.tenant}/{item.number}",
        spec,
        _about(work, item),
        None if work.call else item.number,
        None if work.call else item.info,
    )


def _assigned_config(work: Work) -> dict[str, Json]:
    if work.handler is None:
        return {"listener": listener_name(work.listening, ON_START)}
    if is_listener(work.handler):
        return {"listener": advertised(work.handler, work.tenant)}
    return {"handler": work.handler}


def _about(work: Work, item: Item) -> dict[str, Json]:
    """What the handler of a call is called with; a notice tells its listener about another item."""
    if work.handler is None or item.info is None or not (work.call or is_listener(work.handler)):
        return {}
    return decode(item.info, dict)


def _config(definition: Definition, task: Task) -> dict[str, Json]:
    """A function of an app is named in full, as nodes name what they have."""
    return {"handler": handler_of(definition, task)} if "handler" in task.config else task.config
