"""Say whom an alarm concerns, and what happened, in one line for people. Looks at what was read, decides nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from rota.model.alarm import CLUSTER, Alarm, AlarmKind
from rota.model.job import Definition, Job, JobName
from rota.model.node import UNABLE, Node, NodeState
from rota.model.run import Run
from rota.model.states import RunState
from rota.model.work import OnExhausted, Retry


class AlarmFacts(NamedTuple):
    """What was read about alarms: jobs and runs by id, definitions by job and version, and how items failed, by run."""

    jobs: Mapping[int, Job]
    runs: Mapping[int, Run]
    definitions: Mapping[tuple[int, int], Definition]
    messages: Mapping[int, str]


def described(alarm: Alarm, facts: AlarmFacts) -> Alarm:
    """The same alarm, with its scope and its words."""
    if alarm.scope is not None:
        return alarm
    scope, name = _whose(alarm, facts)
    is_over = alarm.kind is AlarmKind.RECOVERED
    text = _text(alarm, AlarmKind(str(alarm.data["level"])) if is_over else alarm.kind, name, facts)
    return msgspec.structs.replace(alarm, scope=scope, text=f"over: {text}" if is_over else text)


def exhausted(alarm: Alarm, facts: AlarmFacts) -> Alarm | None:
    """What follows from the failure of a run whose job wants more than that."""
    run = facts.runs.get(alarm.run_id or 0)
    if alarm.kind is not AlarmKind.RUN_FAILED or run is None:
        return None
    if all(it.on_exhausted is OnExhausted.FAIL for it in _retries(run, facts)):
        return None
    _, name = _whose(alarm, facts)
    return _following(alarm, AlarmKind.EXHAUSTED, run.id, f"run {run.id} of {name} has used up its attempts")


def failing(alarm: Alarm) -> Alarm | None:
    """The level that the failure of a run begins, unless it was there: its job fails until a run succeeds."""
    if alarm.kind is not AlarmKind.RUN_FAILED or not alarm.job_id or not (alarm.scope or "").startswith("job/"):
        return None
    text = f"job {job_of(alarm.scope or '')} fails, since run {alarm.run_id}"
    return msgspec.structs.replace(_following(alarm, AlarmKind.JOB_FAILING, alarm.job_id, text), is_open=True)


def _following(alarm: Alarm, kind: AlarmKind, subject: int, text: str) -> Alarm:
    """An alarm about the same, that follows from it."""
    return msgspec.structs.replace(alarm, id=0, key=f"{kind}:{subject}", kind=kind, text=text)


def recovered(level: Alarm, last: Run | None) -> bool:
    """Whether a job that was failing works again, as the newest of its runs that have ended says."""
    return (
        last is not None and last.state is RunState.SUCCEEDED and last.ended_at is not None and last.ended_at > level.at
    )


def job_of(scope: str) -> JobName:
    return JobName(*scope.split("/")[1:])


def node_alarms(nodes: Iterable[Node]) -> tuple[list[Alarm], list[str]]:
    """The nodes that are disconnected, and the keys of those that are not any more: they came back, or stopped well."""
    newest: dict[str, Node] = {}
    for node in sorted(nodes, key=lambda it: (it.joined_at, it.id)):
        newest[node.joined.name] = node
    gone = [it for it in newest.values() if it.state is NodeState.DISCONNECTED]
    resting = [it for it in newest.values() if it.state is NodeState.ONLINE and UNABLE in it.joined.digests]
    present = [*map(_disconnected, gone), *map(_unable, resting)]
    keys = {it.key for it in present}
    possible = [key for it in nodes for key in (_node_key(it), _unable_key(it))]
    return present, [key for key in possible if key not in keys]


def unowned_alarm(job_id: int, at: datetime, unowned_s: float) -> Alarm:
    return Alarm(
        key=f"{AlarmKind.UNOWNED_JOB}:{job_id}",
        kind=AlarmKind.UNOWNED_JOB,
        at=at,
        is_open=True,
        job_id=job_id,
        data={"unowned_s": round(unowned_s, 1)},
    )


def _disconnected(node: Node) -> Alarm:
    return _node_alarm(node, _node_key(node), node.left_at or node.joined_at, "is disconnected", {})


def _unable(node: Node) -> Alarm:
    """It lives, but nothing can run there: as good as gone for those who wait."""
    why = node.joined.digests[UNABLE]
    return _node_alarm(node, _unable_key(node), node.joined_at, f"cannot execute anything: {why}", {"why": why})


def _node_alarm(node: Node, key: str, at: datetime, text: str, more: Mapping[str, str]) -> Alarm:
    return Alarm(
        key=key,
        kind=AlarmKind.NODE_DISCONNECTED,
        at=at,
        scope=CLUSTER,
        text=f"node {node.joined.name} {text}",
        is_open=True,
        data={"node": node.joined.name, **more},
    )


def _unable_key(node: Node) -> str:
    return f"{_node_key(node)}:{UNABLE}"


def _node_key(node: Node) -> str:
    return f"{AlarmKind.NODE_DISCONNECTED}:{node.id}"


def _whose(alarm: Alarm, facts: AlarmFacts) -> tuple[str, str]:
    job, run = facts.jobs.get(alarm.job_id or 0), facts.runs.get(alarm.run_id or 0)
    if job is not None:
        return "/".join(("job", *job.definition.full_name)), f"job {job.definition.full_name}"
    if run is not None and run.work is not None:
        return f"tenant/{run.work.tenant}", f"tenant {run.work.tenant}"
    return CLUSTER, f"job {alarm.job_id}"


def _retries(run: Run, facts: AlarmFacts) -> list[Retry]:
    definition = facts.definitions.get((run.job_id, run.version))
    if run.work is not None:
        return [run.work.retry]
    return [] if definition is None else [task.retry for task in definition.tasks]


def _text(alarm: Alarm, kind: AlarmKind, name: str, facts: AlarmFacts) -> str:
    data, why = alarm.data, facts.messages.get(alarm.run_id or 0, "")
    match kind:
        case AlarmKind.RUN_FAILED:
            return f"run {alarm.run_id} of {name} failed" + (f": {why}" if why else "")
        case AlarmKind.MISSED_SLOT:
            return f"{name} missed {_slots(facts.runs.get(alarm.run_id or 0))}"
        case AlarmKind.JOB_PAUSED:
            return f"{name} is paused: too many of its runs failed in a row"
        case AlarmKind.UNOWNED_JOB:
            return f"{name} has had no owner for {data.get('unowned_s')} s"
        case AlarmKind.LONG_RUN:
            return f"run {alarm.run_id} of {name} {data.get('message')}, on node {data.get('node')}"
        case AlarmKind.LATE_START:
            return f"run {alarm.run_id} of {name} started {data.get('late_s')} s too late"
    return f"{kind}: {name}"


def _slots(run: Run | None) -> str:
    if run is None or run.slot_at is None:
        return "a slot"
    if run.slots == 1 or run.last_slot_at is None:
        return f"its slot {run.slot_at:%Y-%m-%d %H:%M:%SZ}"
    return f"{run.slots} slots from {run.slot_at:%Y-%m-%d %H:%M:%SZ} to {run.last_slot_at:%Y-%m-%d %H:%M:%SZ}"
