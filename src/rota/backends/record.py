"""Turn a plan into the rows that a store writes: runs, items and a line of history for every change of state.

All stores share this, so that no state changes without its line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from rota.model.plan import JobChange, NewRun, Plan, RunMove
from rota.model.run import Event, Item, Run
from rota.model.states import ITEM_MOVES, RUN_MOVES, ItemState, RunState
from rota.model.value import Json, Value


class Rows(Value, frozen=True, kw_only=True):
    """The rows of a plan, with their ids."""

    runs: list[Run]
    items: list[Item]
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
    return items + len(plan.runs) + len(plan.new_jobs) + len(plan.jobs) + moved


def item_state_after(move: RunMove) -> ItemState:
    """Where the items that no node was given go when their run moves."""
    return ItemState.READY if move.now.live else ItemState.CANCELLED


def rows(plan: Plan, now: datetime, actor: str, ids: NewIds, followers: Sequence[Item]) -> Rows:
    """Give every new row its id. `followers` are the items that go along with the plan's moves."""
    runs: list[Run] = []
    items: list[Item] = []
    events: list[Event] = []

    def tell(
        kind: str, data: dict[str, Json], job_id: int, run_id: int | None = None, item_id: int | None = None
    ) -> None:
        place = {"job_id": job_id, "run_id": run_id, "item_id": item_id}
        events.append(Event(id=next(ids.rows), at=now, kind=kind, actor=actor, data=data, **place))

    for new, job_id in zip(plan.new_jobs, ids.jobs, strict=True):
        tell("job.created", {"version": 1, "digest": new.digest}, job_id)
    for change in plan.jobs:
        if change.kind is not None:
            tell(change.kind, _change_data(change), change.was.id)
    for new_run in plan.runs:
        run = _run(new_run, next(ids.runs), now)
        runs.append(run)
        tell(_kind(run.state), _run_data(run, len(new_run.items)), run.job_id, run.id)
        for new_item in new_run.items:
            state = ItemState.READY if run.state is RunState.RUNNING else ItemState.WAITING
            item = Item(
                id=next(ids.rows),
                run_id=run.id,
                task=new_item.task,
                index=new_item.index,
                state=state,
                not_before_at=new_item.not_before_at,
                start_by_at=new_item.start_by_at,
            )
            items.append(item)
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
    return Rows(runs=runs, items=items, events=events)


def _run(new: NewRun, run_id: int, now: datetime) -> Run:
    assert new.state in RUN_MOVES[None], f"a run cannot begin as {new.state}"
    return Run(
        id=run_id,
        job_id=new.job_id,
        version=new.version,
        cause=new.cause,
        key=new.key,
        overlap_key=new.overlap_key,
        state=new.state,
        reason=new.reason,
        slot_at=new.slot_at,
        last_slot_at=new.last_slot_at,
        slots=new.slots,
        due_at=new.due_at,
        created_at=now,
        ended_at=None if new.state.live else now,
        params=new.params,
    )


def _legal(move: RunMove) -> RunMove:
    assert move.now in RUN_MOVES[move.was], f"run {move.run_id} cannot move from {move.was} to {move.now}"
    return move


def _kind(state: RunState) -> str:
    return "run.started" if state is RunState.RUNNING else f"run.{state}"


def _change_data(change: JobChange) -> dict[str, Json]:
    return {"revision": change.now.revision, "version": change.now.version}


def _run_data(run: Run, items: int) -> dict[str, Json]:
    """The first line of a run also tells of the items that it began with."""
    data: dict[str, Json] = {"cause": str(run.cause), "key": run.key, "items": items}
    if run.reason is not None:
        data["reason"] = str(run.reason)
    if run.slots > 1:
        data["slots"] = run.slots
    return data
