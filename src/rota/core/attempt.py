"""Build an attempt, all that an executor needs, from the item, its run and the version of its job."""

from __future__ import annotations

from typing import Any

from rota.model.dispatch import Granted
from rota.model.job import Definition, Task, handler_of
from rota.model.listener import advertised, is_listener, listener_name
from rota.model.moment import moment
from rota.model.run import Item, Run
from rota.model.value import Json, decode
from rota.model.work import Attempt, AttemptEnd, Work, token_of

ON_START = "on_start"
_HOW = ("retry", "bounds", "env", "timeout_s", "warn_s", "grace_s", "concurrency")
"""The fields that a task and an assignment hand on to their attempts as they are."""


def may_overlap(end: AttemptEnd, margin_s: float) -> bool:
    """Whether processes of this attempt ran when others could have begun a later one: their deadline is a margin before
    the end of the lease, and a rescue is possible a margin after it."""
    return end.late_s > 2 * margin_s


def job_attempt(granted: Granted, at_us: int, round_: int, item: Item, run: Run, definition: Definition) -> Attempt:
    """An attempt at an item of a job's run."""
    task = definition.task(item.task)
    return Attempt(
        **_given(granted, at_us, round_, item, task),
        job_id=granted.job_id,
        name=str(definition.full_name),
        tenant=definition.tenant,
        runner=task.runner,
        config=_config(definition, task),
        params={**definition.params, **run.params},
        slot_at=run.slot_at,
        start_by_at=None if run.slot_at is None else item.start_by_at,
        idempotency_key=f"{definition.tenant}/{definition.project}/{definition.name}/{run.key}/{item.task}/{item.index}",
        hold_s=task.hold_s,
    )


def assigned_attempt(granted: Granted, at_us: int, round_: int, item: Item, work: Work) -> Attempt:
    """An attempt at an assigned item: its handler does it, or the client is told to."""
    external = work.handler is None
    return Attempt(
        **_given(granted, at_us, round_, item, work),
        name=work.handler if work.call and work.handler else work.tenant,
        tenant=work.tenant,
        runner="python",
        config=_assigned_config(work),
        params=_about(work, item),
        number=None if work.call else item.number,
        info=None if work.call else item.info,
        idempotency_key=f"{work.tenant}/{item.number}",
        hold_s=0.0 if external else work.hold_s,
        external=external,
        notify=work.notify,
    )


def _given(granted: Granted, at_us: int, round_: int, item: Item, how: Task | Work) -> dict[str, Any]:
    """What every attempt has: what the round gave, and how its task or assignment wants it executed."""
    given = {
        "item_id": granted.item_id,
        "attempt": granted.attempt,
        "token": token_of(round_, granted.attempt),
        "run_id": granted.run_id,
        "lane_id": granted.lane_id,
        "round": round_,
        "assigned_at": moment(at_us),
        "failures": granted.failures,
        "losses": granted.losses,
        "task": item.task,
        "index": item.index,
    }
    return given | {name: getattr(how, name) for name in _HOW}


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
