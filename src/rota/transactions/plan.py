"""Write a plan: jobs, runs, items and history, each update fenced by what was read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from rota.model import tables
from rota.model.job import Job
from rota.model.plan import JobChange, NewJob, Plan, RunMove
from rota.model.records import ITEM, advance_row, event_rows, item_of, item_rows, job_row, run_rows, to_us
from rota.model.run import Item, Run
from rota.model.states import UNSTARTED, ItemState
from rota.model.tables import Change
from rota.model.value import encode
from rota.transactions.decide import Decision, ReleasedRuns
from rota.transactions.queue import ask_to_stop, cancel_items, enqueue, withdraw
from rota.transactions.record import NewIds, QueuePlace, alarms_of, item_state_after, place_of, row_ids_needed, rows
from rota.transactions.tx import Tx

ADVANCE = ("next_slot_at", "next_fire_at", "settled_at")
REVISION = (*ADVANCE, "definition", "digest", "version", "revision", "state", "changed_at", "source")
PLACED = "placed"
"""The counter that rises whenever the set of placed jobs changes."""

_FENCE = ("id", "revision", "next_fire_at")
_ADVANCE = Change(tables.JOB, _FENCE, ADVANCE)
_REVISE = Change(tables.JOB, _FENCE, REVISION)
_MOVE = Change(tables.RUN, ("id", "state"), ("state", "ended_at"))
_ASK = Change(tables.RUN, ("id",), ("cancel_at",), where=(("cancel_at", None),))
_BEGIN = Change(tables.ITEM, ("id",), fixed=(("state", str(ItemState.READY)),))


def write_plan(tx: Tx, decision: Decision) -> list[Run]:
    """Write what was decided. Returns the runs as written."""
    plan, now = decision.plan, decision.facts.now
    if plan.is_empty:
        return []
    followers = _followers(tx, decision)
    items = _to_stop(tx, plan)
    tx.rows.disjoint(tables.JOB, tables.RUN, tables.ITEM, tables.QUEUE, tables.JOB_VERSION, tables.PLACED)
    started = _started(followers, decision.released, plan.moves)
    new_lanes = {item.lane for run in plan.runs if run.state.live for item in run.items}
    lanes = tx.lane_ids(new_lanes | {place.lane for place in started})
    new_jobs = _create(tx, plan.new_jobs)
    _place(tx, new_jobs, plan.jobs)
    tx.jobs_changed = tx.jobs_changed or bool(new_jobs) or any(map(_is_news, plan.jobs))
    _change(tx, [change for change in plan.jobs if change.kind is None], _ADVANCE)
    _change(tx, [change for change in plan.jobs if change.kind is not None], _REVISE)
    changed = [change.now for change in plan.jobs if change.now.version != change.was.version]
    tx.rows.insert(tables.JOB_VERSION, [_version_row(tx, job) for job in (*new_jobs, *changed)])
    run_ids, row_ids = tx.ids("run", len(plan.runs)), tx.ids("row", row_ids_needed(plan, followers))
    ids = NewIds([job.id for job in new_jobs], run_ids, row_ids)
    written = rows(plan, now, tx.actor, ids, followers)
    tx.rows.insert(tables.RUN, run_rows(written.runs))
    tx.rows.insert(tables.ITEM, item_rows(written.items), ITEM)
    _move(tx, plan.moves, followers)
    places = written.places + started
    enqueue(tx, [(place.ready(lanes[place.lane]), round(place.hold_s * 1_000_000)) for place in places])
    tx.rows.change(_ASK, [(live.id, tx.now_us) for live in plan.cancels])
    ask_to_stop(tx, items)
    tx.rows.insert(tables.EVENT, event_rows(written.events))
    tx.happened += alarms_of(written.events)
    return written.runs


def _is_news(change: JobChange) -> bool:
    """Whether other schedulers do not know of it: firing moves a job on, everything else may make it due earlier."""
    return change.kind is not None or change.was.next_fire_at is None


def _to_stop(tx: Tx, plan: Plan) -> list[int]:
    """Lock the live items of runs that are asked to stop."""
    if not plan.cancels:
        return []
    found = tx.ask.live_items([live.id for live in plan.cancels])
    ids = [it.item.id for it in found if it.live is not None]
    tx.lock_queue(ids)
    return ids


def _create(tx: Tx, new: Sequence[NewJob]) -> list[Job]:
    if not new:
        return []
    start = tx.reserve("job", len(new))
    jobs = [Job.created(start + n, it.definition, it.digest, it.next, tx.now, it.source) for n, it in enumerate(new)]
    tx.rows.insert(tables.JOB, [tuple(job_row(job).values()) for job in jobs])
    return jobs


def _place(tx: Tx, new: Sequence[Job], changes: Sequence[JobChange]) -> None:
    """Keep the set of placed jobs as the jobs are written."""
    come = [it.id for it in new if it.is_placed] + [it.now.id for it in changes if it.now.is_placed > it.was.is_placed]
    gone = [it.now.id for it in changes if it.now.is_placed < it.was.is_placed]
    if come or gone:
        tx.reserve(PLACED, 1)
        tx.rows.insert(tables.PLACED, [(job_id,) for job_id in come])
        tx.rows.remove(tables.PLACED, gone)


def _change(tx: Tx, changes: Sequence[JobChange], change: Change) -> None:
    """Update jobs, unless one of them is no longer as it was read."""
    lines = []
    for it in changes:
        was, now = it.was, job_row(it.now) if change is _REVISE else advance_row(it.now)
        lines.append((was.id, was.revision, to_us(was.next_fire_at), *(now[name] for name in change.fields)))
    tx.rows.change(change, lines, exact=True)


def _version_row(tx: Tx, job: Job) -> tuple[object, ...]:
    return job.id, job.version, job.digest, encode(job.definition), tx.now_us, tx.actor


def _followers(tx: Tx, decision: Decision) -> list[Item]:
    """The items of runs that move which no node was given."""
    known = {run.id for run in decision.facts.runs} | decision.released.fired.keys()
    moved = {move.run_id for move in decision.plan.moves}
    items = [*decision.facts.items, *decision.released.items]
    if moved - known:
        items += [item_of((*row, live)) for row, live in tx.ask.live_items(sorted(moved - known))]
    return sorted((it for it in items if it.run_id in moved and it.state in UNSTARTED), key=lambda it: it.id)


def _move(tx: Tx, moves: Sequence[RunMove], followers: Sequence[Item]) -> None:
    """Move runs, and the items that go along."""
    lines = [(it.run_id, str(it.was), str(it.now), None if it.now.live else tx.now_us) for it in moves]
    tx.rows.change(_MOVE, lines, exact=True)
    states = {move.run_id: item_state_after(move) for move in moves}
    cancelled = [item for item in followers if states[item.run_id] is ItemState.CANCELLED]
    withdraw(tx, [item.id for item in cancelled if item.state is ItemState.READY])
    cancel_items(tx, [item.id for item in cancelled])
    tx.rows.change(_BEGIN, [(item.id,) for item in followers if states[item.run_id] is ItemState.READY])


def _started(followers: Sequence[Item], released: ReleasedRuns, moves: Sequence[RunMove]) -> list[QueuePlace]:
    """Items whose run has waited and now runs: the version that the run was fired with says where they queue."""
    begun = {move.run_id for move in moves if item_state_after(move) is ItemState.READY}
    places = []
    for item in (it for it in followers if it.run_id in begun):
        fired, definition = released.fired[item.run_id]
        late = timedelta(microseconds=fired.created_at - fired.due_at)
        places.append(place_of(item, fired.job_id, definition, late))
    return places
