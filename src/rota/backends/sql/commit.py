"""Write a plan: jobs, runs, items and history, in one transaction, each update fenced by what was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, and_, select, update

from rota.backends.alarming import alarms_of
from rota.backends.record import NewIds, Place, item_state_after, place_of, row_ids_needed, rows
from rota.backends.sql import schema
from rota.backends.sql.database import Lost
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.queue import ask_to_stop, cancel_items, enqueue, live_states, unstarted, withdraw
from rota.backends.sql.rows import (
    ITEM,
    advance_row,
    definition_of,
    event_rows,
    item_of,
    item_rows,
    job_row,
    run_rows,
    to_us,
)
from rota.backends.sql.sets import Change, Insert, Remove
from rota.backends.sql.transaction import Transaction
from rota.model.job import Job
from rota.model.plan import JobChange, NewJob, Plan, RunMove
from rota.model.run import Item, Run
from rota.model.states import ItemState
from rota.model.value import encode

ADVANCE = ("next_slot_at", "next_fire_at", "settled_at")
REVISION = (*ADVANCE, "definition", "digest", "version", "revision", "state", "changed_at", "source")
PLACED = "placed"
"""The counter that rises whenever the set of placed jobs changes."""


def commit(tx: Transaction, plan: Plan, now: datetime) -> list[Run]:
    """Write the plan. Returns the runs as written."""
    conn, dialect = tx.conn, tx.dialect
    new_jobs = _create(conn, dialect, plan.new_jobs, now, tx.actor)
    _place(tx, new_jobs, plan.jobs)
    _change(conn, dialect, [change for change in plan.jobs if change.kind is None], ADVANCE)
    _change(conn, dialect, [change for change in plan.jobs if change.kind is not None], REVISION)
    versions = [change.now for change in plan.jobs if change.now.version != change.was.version]
    tx.write(Insert(schema.job_version), [_version_row(job, now, tx.actor) for job in versions])
    followers = _followers(tx, plan.moves)
    run_ids = tx.ids("run", len(plan.runs))
    row_ids = tx.ids("row", row_ids_needed(plan, followers))
    written = rows(plan, now, tx.actor, NewIds([job.id for job in new_jobs], run_ids, row_ids), followers)
    tx.write(Insert(schema.run), run_rows(written.runs))
    tx.write(Insert(schema.item, ITEM), item_rows(written.items))
    places = written.places + _move(tx, plan.moves, followers, now)
    lanes = tx.lane_ids(place.lane for place in places)
    enqueue(tx, [(place.ready(lanes[place.lane]), round(place.hold_s * 1_000_000)) for place in places])
    if plan.cancels:
        _cancel(tx, [live.id for live in plan.cancels])
    tx.write(Insert(schema.event), event_rows(written.events))
    tx.happened += alarms_of(written.events)
    return written.runs


def _cancel(tx: Transaction, run_ids: Sequence[int]) -> None:
    r = schema.run.c
    asked = update(schema.run).where(tx.dialect.among(r.id, run_ids), r.cancel_at.is_(None))
    tx.conn.execute(asked.values(cancel_at=tx.now_us))
    ask_to_stop(tx, run_ids)


def _create(conn: Connection, dialect: Dialect, new: Sequence[NewJob], now: datetime, actor: str) -> list[Job]:
    if not new:
        return []
    start = dialect.reserve(conn, "job", len(new))
    jobs = [Job.created(start + n, it.definition, it.digest, it.next, now, it.source) for n, it in enumerate(new)]
    dialect.insert(conn, schema.job, [tuple(job_row(job).values()) for job in jobs])
    dialect.insert(conn, schema.job_version, [_version_row(job, now, actor) for job in jobs])
    return jobs


def _place(tx: Transaction, new: Sequence[Job], changes: Sequence[JobChange]) -> None:
    """Keep the set of placed jobs as the jobs are written."""
    come = [it.id for it in new if it.is_placed] + [it.now.id for it in changes if it.now.is_placed > it.was.is_placed]
    gone = [it.now.id for it in changes if it.now.is_placed < it.was.is_placed]
    if come or gone:
        tx.dialect.reserve(tx.conn, PLACED, 1)
        tx.write(Insert(schema.placed), [(job_id,) for job_id in come])
        tx.write(Remove(schema.placed, "job_id"), [(job_id,) for job_id in gone])


def _change(conn: Connection, dialect: Dialect, changes: Sequence[JobChange], columns: tuple[str, ...]) -> None:
    """Update jobs, unless one of them is no longer as it was read."""
    rows = []
    for change in changes:
        was, now = change.was, job_row(change.now) if columns is REVISION else advance_row(change.now)
        rows.append((was.id, was.revision, to_us(was.next_fire_at), *(now[name] for name in columns)))
    fenced = Change(schema.job, ("id", "revision", "next_fire_at"), columns)
    if rows and dialect.update(conn, fenced, rows) != len(rows):
        raise Lost("a job was changed by someone else")


def _version_row(job: Job, now: datetime, actor: str) -> tuple[object, ...]:
    return job.id, job.version, job.digest, encode(job.definition), to_us(now), actor


def _followers(tx: Transaction, moves: Sequence[RunMove]) -> list[Item]:
    if not moves:
        return []
    i = schema.item.c
    theirs = tx.dialect.among(i.run_id, [move.run_id for move in moves])
    return [item_of(row) for row in tx.conn.execute(live_states().where(theirs, unstarted()).order_by(i.id))]


def _move(tx: Transaction, moves: Sequence[RunMove], followers: Sequence[Item], now: datetime) -> list[Place]:
    """Move runs, and the items that go along. Returns the places of those that become ready."""
    r = schema.run.c
    for move in moves:
        ended_at = None if move.now.live else to_us(now)
        moved = update(schema.run).where(r.id == move.run_id, r.state == str(move.was))
        if tx.conn.execute(moved.values(state=str(move.now), ended_at=ended_at)).rowcount != 1:
            raise Lost(f"run {move.run_id} was moved by someone else")
    states = {move.run_id: item_state_after(move) for move in moves}
    cancelled = [item for item in followers if states[item.run_id] is ItemState.CANCELLED]
    withdraw(tx, [item.id for item in cancelled if item.state is ItemState.READY])
    cancel_items(tx, [item.id for item in cancelled])
    return _started(tx, [item for item in followers if states[item.run_id] is ItemState.READY])


def _started(tx: Transaction, items: Sequence[Item]) -> list[Place]:
    """Items whose run has waited and now runs: the version that the run was fired with says where they queue."""
    if not items:
        return []
    ready = update(schema.item).where(tx.dialect.among(schema.item.c.id, [item.id for item in items]))
    tx.conn.execute(ready.values(state=str(ItemState.READY)))
    found = tx.conn.execute(versions_of(tx.dialect, {item.run_id for item in items}))
    whose = {
        row.id: (row.job_id, definition_of(row), timedelta(microseconds=row.created_at - row.due_at)) for row in found
    }
    return [place_of(item, *whose[item.run_id]) for item in items]


def versions_of(dialect: Dialect, run_ids: Iterable[int]) -> Select[Any]:
    """The versions that runs were fired with, each with its run's id and times."""
    r, v = schema.run.c, schema.job_version.c
    versions = schema.run.join(schema.job_version, and_(v.job_id == r.job_id, v.version == r.version))
    columns = (r.job_id, r.version, v.definition, r.id, r.created_at, r.due_at)
    return select(*columns).select_from(versions).where(dialect.among(r.id, run_ids))
