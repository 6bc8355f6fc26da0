"""Turn a plan into the rows that a store writes: runs, items and a line of history for every change of state.

All stores share this, so that no state changes without its line. Some lines are alarms: the transaction that writes one
raises the alarm too, so that a crash loses neither, and nobody has to look through the history.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import takewhile
from typing import NamedTuple

from rota.errors import InvalidInput, Refused
from rota.model.alarm import Alarm, AlarmKind
from rota.model.dispatch import Ready
from rota.model.job import Definition, Job, lane_of
from rota.model.listener import listener_name
from rota.model.moment import micros
from rota.model.plan import NewItem, NewRun, Plan, RunMove
from rota.model.run import Event, Item, Run, RunOrigin
from rota.model.states import ITEM_MOVES, RUN_MOVES, Cause, ItemState, Outcome, RunState, SkipReason
from rota.model.value import Json, Value
from rota.model.work import Assignment, Lane, Rate, SuspectedOverlap, Work

AVOIDED = frozenset({str(Outcome.FAILED), str(Outcome.TIMED_OUT), str(Outcome.LOST)})
"""After these, an item is rather tried on another node."""

OVERLAP_SUSPECTED = "item.overlap_suspected"

ID_GAP = 1_000_000_000
"""How many ids are left out when the store has lost its latest history: more than can have been given in it."""
LAST = "raised"
"""Where the store says when its generation was raised last, and why."""
RAISED = "store.generation_raised"
LOST = "store.lost"
NAMED_MAX = 100
"""How many records that were lost are named; the rest is counted."""


class QueuePlace(NamedTuple):
    """What the queue must know of an item that becomes ready."""

    item: Item
    job_id: int
    lane: Lane
    hold_s: float

    def ready(self, lane_id: int) -> Ready:
        item = self.item
        return Ready(item.id, item.run_id, self.job_id, lane_id, micros(item.start_by_at), micros(item.not_before_at))


def place_of(item: Item, job_id: int, definition: Definition, late: timedelta) -> QueuePlace:
    """The place of an item whose run has waited until now, and was so late when it was made."""
    task, misfire = definition.task(item.task), definition.misfire
    is_late = late > timedelta(seconds=misfire.grace_s)
    rate = Rate.per_second(misfire.per_s) if is_late and misfire.per_s is not None else None
    return QueuePlace(item, job_id, lane_of(job_id, definition, task, rate), task.hold_s)


class PlanRows(Value, frozen=True, kw_only=True):
    """The rows of a plan, with their ids. `places` are those of new items that are ready."""

    runs: list[Run]
    items: list[Item]
    places: list[QueuePlace]
    events: list[Event]


class NewIds(NamedTuple):
    """The ids of new rows: those of the plan's new jobs, of its runs, and of items and lines of history."""

    jobs: Sequence[int]
    runs: Iterator[int]
    rows: Iterator[int]


def row_ids_needed(plan: Plan, followers: Sequence[Item]) -> int:
    """How many ids `rows` may take for items and lines of history."""
    items = sum(len(run.items) for run in plan.runs)
    moved = len(plan.moves) + len(plan.cancels) + len(followers)
    changed = sum(change.kind is not None for change in plan.jobs)
    return items + len(plan.runs) + len(plan.new_jobs) + changed + moved


def item_state_after(move: RunMove) -> ItemState:
    """Where the items that no node was given go when their run moves."""
    return ItemState.READY if move.now.live else ItemState.CANCELLED


def rows(plan: Plan, now: datetime, actor: str, ids: NewIds, followers: Sequence[Item]) -> PlanRows:
    """Give every new row its id. `followers` are the items that go along with the plan's moves."""
    runs: list[Run] = []
    items: list[Item] = []
    places: list[QueuePlace] = []
    events: list[Event] = []

    def tell(
        kind: str, data: dict[str, Json], job_id: int, run_id: int | None = None, item_id: int | None = None
    ) -> None:
        place = {"job_id": job_id, "run_id": run_id, "item_id": item_id}
        events.append(Event(id=next(ids.rows), at=now, kind=kind, actor=actor, data=data, **place))

    for new_job, job_id in zip(plan.new_jobs, ids.jobs, strict=True):
        tell("job.created", {"version": 1, "digest": new_job.digest}, job_id)
    for change in plan.jobs:
        if change.kind is not None:
            tell(change.kind, {"revision": change.now.revision, "version": change.now.version}, change.was.id)
    for new_run in plan.runs:
        run = _run(new_run, next(ids.runs), now)
        runs.append(run)
        tell(_kind(run.state), run_data(run, len(new_run.items)), run.job_id, run.id)
        made = [_item(new_item, run, next(ids.rows)) for new_item in new_run.items]
        items += made
        if run.state is RunState.RUNNING:
            pairs = zip(made, new_run.items, strict=True)
            places += [QueuePlace(item, run.job_id, new.lane, new.hold_s) for item, new in pairs]
    for move in plan.moves:
        tell(_kind(move.now), {"was": str(_legal(move).was)}, move.job_id, move.run_id)
    moves = {move.run_id: move for move in plan.moves}
    for item in followers:
        move = moves[item.run_id]
        state = item_state_after(move)
        assert state in ITEM_MOVES[item.state], f"item {item.id} cannot move from {item.state} to {state}"
        tell(f"item.{state}", {"was": str(item.state)}, move.job_id, item.run_id, item.id)
    for live in plan.cancels:
        tell("run.cancel_asked", {}, live.job_id, live.id)
    return PlanRows(runs=runs, items=items, places=places, events=events)


def _run(new: NewRun, run_id: int, now: datetime) -> Run:
    assert new.state in RUN_MOVES[None], f"a run cannot begin as {new.state}"
    origin = {name: getattr(new, name) for name in RunOrigin.__struct_fields__}
    return Run(id=run_id, created_at=now, ended_at=None if new.state.live else now, **origin)


def _item(new: NewItem, run: Run, item_id: int) -> Item:
    return Item(
        id=item_id,
        run_id=run.id,
        task=new.task,
        index=new.index,
        state=ItemState.READY if run.state is RunState.RUNNING else ItemState.WAITING,
        not_before_at=new.not_before_at,
        start_by_at=new.start_by_at,
    )


def _legal(move: RunMove) -> RunMove:
    assert move.now in RUN_MOVES[move.was], f"run {move.run_id} cannot move from {move.was} to {move.now}"
    return move


def _kind(state: RunState) -> str:
    return "run.started" if state is RunState.RUNNING else f"run.{state}"


def run_data(run: Run, items: int) -> dict[str, Json]:
    """What the first line of a run says: it also tells of the items that it began with."""
    data: dict[str, Json] = {"cause": str(run.cause), "key": run.key, "items": items}
    if run.reason is not None:
        data["reason"] = str(run.reason)
    if run.slots > 1:
        data["slots"] = run.slots
    return data


def assigned_lane(work: Work) -> Lane:
    """Where the items of an assignment queue. Without a handler of its own, the client's listener is told to begin."""
    return Lane(
        tenant=work.tenant,
        quota=work.quota,
        group=work.group,
        handler=listener_name(work.listening, "on_start") if work.handler is None else work.handler,
        job_id=work.job_id,
        job_cap=work.cap,
        job_rate=work.rate,
        resources=work.resources,
    )


def assigned_run(run_id: int, wanted: Assignment, cause: Cause, now: datetime) -> Run:
    """The run of an assignment. Raises InvalidInput if it should be over before it may begin."""
    start_at = wanted.start_at or now
    if wanted.end_at is not None and wanted.end_at < start_at:
        begin = "now" if wanted.start_at is None else "start_at"
        raise InvalidInput.of("end_at", f"lies before {begin}: {wanted.end_at.isoformat()}, {start_at.isoformat()}")
    return Run(
        id=run_id,
        job_id=0,
        version=0,
        cause=cause,
        key=wanted.full_key,
        overlap_key="",
        state=RunState.RUNNING,
        due_at=start_at,
        created_at=now,
        work=wanted.work,
    )


def numbers_taken(numbers: Sequence[str]) -> InvalidInput:
    first = ", ".join(repr(number) for number in sorted(numbers)[:5])
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return InvalidInput.of(
        "numbers", f"already taken by an item of this tenant: {first}{more}; a number names one item"
    )


def unknown_quota(work: Work) -> Refused:
    return Refused(
        f"the quota {work.quota!r} of tenant {work.tenant!r} was never set, so nothing of it would ever start. "
        f"Set it first: rota tenant set {work.tenant}"
    )


def wanting_streaks(jobs: Iterable[Job], runs: Iterable[Run], items: Iterable[Item]) -> list[Job]:
    """The jobs for which it matters how many runs have failed in a row before: an item of theirs has failed now."""
    failed = {item.run_id for item in items if item.state is ItemState.FAILED}
    job_ids = {run.job_id for run in runs if run.id in failed} if failed else set()
    return [job for job in jobs if job.id in job_ids and job.definition.pause_after is not None]


def streak(newest_first: Iterable[str]) -> int:
    """How many runs have failed in a row, by the states of those that ended by themselves."""
    return sum(1 for _ in takewhile(lambda state: state == RunState.FAILED, newest_first))


def overlap_data(it: SuspectedOverlap) -> dict[str, Json]:
    """What the history says of an attempt that may have run beside a later one."""
    return {"item": it.item_id, "attempt": it.attempt, "node": it.node, "late_s": it.late_s}


STREAK = (str(RunState.FAILED), str(RunState.SUCCEEDED))
"""The ends that count for a streak; a run that was cancelled or skipped says nothing."""


def ended_state(states: Container[str]) -> RunState:
    """How the run of an assignment ended, by the states of its items."""
    if ItemState.FAILED in states:
        return RunState.FAILED
    return RunState.CANCELLED if ItemState.CANCELLED in states else RunState.SUCCEEDED


_ALARMS = {
    "run.failed": AlarmKind.RUN_FAILED,
    "run.skipped": AlarmKind.MISSED_SLOT,
    "job.paused_by_failures": AlarmKind.JOB_PAUSED,
}


def alarms_of(events: Iterable[Event]) -> list[Alarm]:
    """The alarms among lines of history."""
    found = (alarm_of(it.kind, it.data, it.at, it.job_id, it.run_id) for it in events if it.kind in _ALARMS)
    return [alarm for alarm in found if alarm is not None]


def alarm_of(kind: str, data: dict[str, Json], at: datetime, job_id: int | None, run_id: int | None) -> Alarm | None:
    """The alarm that a line of history is, if it is one. Who is concerned is looked up later, where nobody waits."""
    what = _ALARMS.get(kind)
    if what is None or (what is AlarmKind.MISSED_SLOT and data.get("reason") != SkipReason.MISFIRE):
        return None
    subject = f"{job_id}.{data.get('revision')}" if run_id is None else str(run_id)
    return Alarm(key=f"{what}:{subject}", kind=what, at=at, job_id=job_id, run_id=run_id, data=data)
