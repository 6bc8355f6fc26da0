"""Write a plan: jobs, runs, items and history, in one transaction, each update fenced by what was read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import chain

from sqlalchemy import Connection, select, update

from rota.backends.record import NewIds, item_state_after, row_ids_needed, rows
from rota.backends.sql import schema
from rota.backends.sql.database import Lost
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.rows import advance_row, event_rows, item_of, item_rows, job_row, run_rows, to_us
from rota.model.job import Job
from rota.model.plan import JobChange, NewJob, Plan, RunMove
from rota.model.run import Item, Run
from rota.model.states import UNSTARTED, ItemState
from rota.model.value import encode

BLOCK = 1000
"""How many ids a process takes from the store at once. What it does not use is lost; ids have gaps."""

ADVANCE = ("next_slot_at", "next_fire_at", "settled_at")
REVISION = (*ADVANCE, "definition", "digest", "version", "revision", "state", "changed_at")


class Ids:
    """The ids that this process may still give away, by the name of their counter."""

    def __init__(self) -> None:
        self._free: dict[str, range] = {}

    def take(self, conn: Connection, dialect: Dialect, name: str, count: int, left: Ids) -> Iterator[int]:
        """Take ids. What a new block leaves over goes to `left`, to be kept only if the transaction commits."""
        free = self._free.pop(name, range(0))
        if len(free) >= count:
            self._free[name] = free[count:]
            return iter(free[:count])
        lacking = count - len(free)
        size = max(lacking, BLOCK)
        start = reserve(conn, dialect, name, size)
        left._free[name] = range(start + lacking, start + size)
        return chain(free, range(start, start + lacking))

    def keep(self, left: Ids) -> None:
        for name, free in left._free.items():
            if len(free) > len(self._free.get(name, range(0))):
                self._free[name] = free


def reserve(conn: Connection, dialect: Dialect, name: str, count: int) -> int:
    """Reserve numbers that nobody else will get; returns the first."""
    c = schema.counter.c
    start: int = conn.scalars(dialect.locked(select(c.next).where(c.name == name))).one()
    conn.execute(update(schema.counter).where(c.name == name).values(next=start + count))
    return start


def commit(
    conn: Connection, dialect: Dialect, plan: Plan, now: datetime, actor: str, ids: Ids
) -> tuple[list[Run], Ids]:
    """Write the plan. Returns the runs as written, and the ids left over."""
    job_ids = _create(conn, dialect, plan.new_jobs, now, actor)
    _change(conn, dialect, [change for change in plan.jobs if change.kind is None], ADVANCE)
    _change(conn, dialect, [change for change in plan.jobs if change.kind is not None], REVISION)
    versions = [change.now for change in plan.jobs if change.now.version != change.was.version]
    dialect.insert(conn, schema.job_version, [_version_row(job, now, actor) for job in versions])
    followers = _followers(conn, dialect, plan.moves)
    left = Ids()
    run_ids = ids.take(conn, dialect, "run", len(plan.runs), left)
    row_ids = ids.take(conn, dialect, "row", row_ids_needed(plan, followers), left)
    written = rows(plan, now, actor, NewIds(job_ids, run_ids, row_ids), followers)
    dialect.insert(conn, schema.run, run_rows(written.runs))
    dialect.insert(conn, schema.item, item_rows(written.items))
    for move in plan.moves:
        _move(conn, dialect, move, [item.id for item in followers if item.run_id == move.run_id], now)
    for live in plan.cancels:
        r = schema.run.c
        conn.execute(update(schema.run).where(r.id == live.id, r.cancel_at.is_(None)).values(cancel_at=to_us(now)))
    dialect.insert(conn, schema.event, event_rows(written.events))
    return written.runs, left


def _create(conn: Connection, dialect: Dialect, new: Sequence[NewJob], now: datetime, actor: str) -> list[int]:
    if not new:
        return []
    start = reserve(conn, dialect, "job", len(new))
    jobs = [Job.created(start + n, it.definition, it.digest, it.next, now) for n, it in enumerate(new)]
    dialect.insert(conn, schema.job, [tuple(job_row(job).values()) for job in jobs])
    dialect.insert(conn, schema.job_version, [_version_row(job, now, actor) for job in jobs])
    return [job.id for job in jobs]


def _change(conn: Connection, dialect: Dialect, changes: Sequence[JobChange], columns: tuple[str, ...]) -> None:
    """Update jobs, unless one of them is no longer as it was read."""
    rows = []
    for change in changes:
        was, now = change.was, job_row(change.now) if columns is REVISION else advance_row(change.now)
        rows.append((was.id, was.revision, to_us(was.next_fire_at), *(now[name] for name in columns)))
    if rows and dialect.update_jobs(conn, columns, rows) != len(rows):
        raise Lost("a job was changed by someone else")


def _version_row(job: Job, now: datetime, actor: str) -> tuple[object, ...]:
    return job.id, job.version, job.digest, encode(job.definition), to_us(now), actor


def _followers(conn: Connection, dialect: Dialect, moves: Sequence[RunMove]) -> list[Item]:
    if not moves:
        return []
    i = schema.item.c
    unstarted = i.state.in_([str(state) for state in UNSTARTED])
    query = select(schema.item).where(dialect.among(i.run_id, [move.run_id for move in moves]), unstarted)
    return [item_of(row) for row in conn.execute(query.order_by(i.id))]


def _move(conn: Connection, dialect: Dialect, move: RunMove, item_ids: Sequence[int], now: datetime) -> None:
    r, i = schema.run.c, schema.item.c
    ended_at = None if move.now.live else to_us(now)
    moved = update(schema.run).where(r.id == move.run_id, r.state == str(move.was))
    if conn.execute(moved.values(state=str(move.now), ended_at=ended_at)).rowcount != 1:
        raise Lost(f"run {move.run_id} was moved by someone else")
    if item_ids:
        state: ItemState = item_state_after(move)
        conn.execute(update(schema.item).where(dialect.among(i.id, item_ids)).values(state=str(state)))
