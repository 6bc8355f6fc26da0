"""Assign: one run of many items, and the end of such runs.

The items of an assignment are on their own: nothing else is locked when they end. So their run is closed later; until
then its state is derived from its items.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from rota.model import tables
from rota.model.dispatch import Ready
from rota.model.records import from_us, run_of, run_rows, to_us
from rota.model.run import Run
from rota.model.standing import Closed
from rota.model.states import Cause, RunState
from rota.model.tables import Change
from rota.model.value import Json, encode
from rota.model.work import Assignment, quota_limit, spread
from rota.transactions.queue import READY, enqueue
from rota.transactions.record import (
    assigned_lane,
    assigned_run,
    ended_state,
    numbers_taken,
    run_data,
    unknown_quota,
)
from rota.transactions.rows import Tally
from rota.transactions.tx import Transactor, Tx

_ITEM = ("id", "run_id", "task", "index", "state", "not_before_at", "start_by_at", "tenant", "number", "info")
_CLOSE = Change(tables.RUN, ("id",), ("state", "ended_at"))


async def assign(store: Transactor, wanted: Assignment, *, quota_must_exist: bool = True) -> Run:
    """Make one run of an assignment, its items ready. The same key makes it once. Raises InvalidInput when a number is
    taken, Refused when the quota was never set."""
    await store.reserve_rows(len(wanted.tasks))
    is_known = assigned_lane(wanted.work) in store.memory.lanes  # nothing else needs a lock
    make = store.write_once if is_known else store.transact
    return await make(assign_run, wanted, quota_must_exist=quota_must_exist)


def assign_run(tx: Tx, wanted: Assignment, *, quota_must_exist: bool) -> Run:
    """Write the run of an assignment, unless it was made before."""
    facts = tx.ask.assignment(wanted.full_key, quota_limit(wanted.work.tenant, wanted.work.quota))
    tx.now_us = facts.now_us
    if facts.run is not None:
        return derived([run_of(facts.run)], tx.ask.tally([facts.run.id]))[0]
    if quota_must_exist and not facts.has_quota:
        raise unknown_quota(wanted.work)
    if tx.attempt > 1:  # perhaps somebody else's number was in the way
        _check_numbers(tx, wanted)
    return put_assignment(tx, wanted)


def _check_numbers(tx: Tx, wanted: Assignment) -> None:
    numbers = [(wanted.work.tenant, task.number) for task in wanted.tasks]
    taken = tx.rows.find(tables.ITEM, "number", numbers)
    if taken:
        raise numbers_taken([str(row.number) for row in taken])


def put_assignment(tx: Tx, wanted: Assignment, cause: Cause = Cause.ASSIGN) -> Run:
    """Write the run and its items, at the instant that the transaction has read. Only what a client has assigned takes
    up numbers."""
    lane = assigned_lane(wanted.work)
    lane_id = tx.lane_ids([lane])[lane]
    run = assigned_run(next(tx.ids("run", 1)), wanted, cause, from_us(tx.now_us))
    start, end = to_us(run.due_at), to_us(wanted.end_at or run.due_at)
    start_by = spread(start, end, len(wanted.tasks))
    ids = list(tx.ids("row", len(wanted.tasks)))
    tenant = wanted.work.tenant if cause is Cause.ASSIGN else None
    rows = [
        (item_id, run.id, "main", n, READY, start, by, tenant, task.number, _text(task.info))
        for n, (item_id, by, task) in enumerate(zip(ids, start_by, wanted.tasks, strict=True))
    ]
    tx.rows.insert(tables.RUN, run_rows([run]))
    tx.rows.insert(tables.ITEM, rows, _ITEM)
    hold_us = 0 if wanted.work.handler is None else round(wanted.work.hold_s * 1_000_000)
    enqueue(tx, [(Ready(it, run.id, 0, lane_id, by, start), hold_us) for it, by in zip(ids, start_by, strict=True)])
    tx.record("run.started", run_data(run, len(ids)), run_id=run.id)
    return run


async def close_runs(store: Transactor, *, after_id: int = 0, limit: int) -> Closed:
    """Look at the next open runs of assignments, and close those whose items have all ended."""
    ids = await store.look(lambda tx: tx.ask.open_assignments(after_id, limit))
    count = await store.transact(_close, ids) if ids else 0
    return Closed(count=count, last_id=ids[-1] if len(ids) == limit else None)


def _close(tx: Tx, run_ids: Sequence[int]) -> int:
    """Close those of these runs whose items have all ended; says how many. Runs that others hold are left to them."""
    over = [it.run_id for it in tx.ask.tally(run_ids) if not it.is_open]
    if not over:
        return 0
    rows = [row for row in tx.lock(tables.RUN, over, skip=True) if row.ended_at is None]
    tx.read_clock()
    closed = [it for it in tx.ask.tally([row.id for row in rows]) if not it.is_open] if rows else []
    for it in closed:
        tx.rows.change(_CLOSE, [(it.run_id, str(ended_state(it.states)), it.ended_at)])
        tx.record(f"run.{ended_state(it.states)}", {"was": str(RunState.RUNNING)}, run_id=it.run_id)
    return len(closed)


def derived(runs: Sequence[Run], tallies: Iterable[Tally]) -> list[Run]:
    """Runs of assignments that nobody has closed, as their items say."""
    over: dict[int, dict[str, Any]] = {
        it.run_id: {"state": ended_state(it.states), "ended_at": from_us(it.ended_at)}
        for it in tallies
        if not it.is_open
    }
    return [msgspec.structs.replace(run, **over[run.id]) if is_open(run) and run.id in over else run for run in runs]


def is_open(run: Run) -> bool:
    """Whether it is the run of an assignment that nobody has closed."""
    return run.job_id == 0 and run.ended_at is None


def _text(info: Json) -> str | None:
    return None if info is None else encode(info)
