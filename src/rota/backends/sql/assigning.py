"""Assign: one run of many items in one transaction, and the end of such runs.

The items of an assignment are on their own: nothing else is locked when they end. So their run is closed later.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from rota.backends.record import (
    assigned_data,
    assigned_lane,
    assigned_run,
    assignment_key,
    numbers_taken,
    unknown_quota,
)
from rota.backends.sql import schema
from rota.backends.sql.queue import READY, enqueue
from rota.backends.sql.rounds import Rounds
from rota.backends.sql.rows import run_of, run_rows, to_us
from rota.backends.sql.sets import Change
from rota.backends.sql.transaction import BLOCK, Transaction, reserve
from rota.model.dispatch import Ready
from rota.model.run import Run
from rota.model.states import Cause
from rota.model.value import Json, encode
from rota.model.work import Assignment, quota_limit, spread

_ITEM = ("id", "run_id", "task", "index", "state", "not_before_at", "start_by_at", "tenant", "number", "info")
_CLOSE = Change(schema.run, ("id",), ("state", "ended_at"))


class Assigning(Rounds):
    """What clients assign."""

    async def assign(self, wanted: Assignment, *, quota_must_exist: bool = True) -> Run:
        await self._reserve_rows(len(wanted.tasks))
        tries: list[Transaction] = []

        def work(tx: Transaction) -> Run:
            tries.append(tx)
            known = self._assigned(tx.conn, wanted)
            if known is not None:
                return known
            if quota_must_exist:
                self._check_quota(tx.conn, wanted)
            if len(tries) > 1:  # perhaps somebody else's number was in the way
                self._check_numbers(tx.conn, wanted)
            return put_assignment(tx, wanted)

        return await self._transact(work)

    async def close_runs(self, *, limit: int) -> int:
        return await self._transact(lambda tx: self._close_runs(tx, limit))

    async def _reserve_rows(self, count: int) -> None:
        """Reserve the ids of many rows beforehand, so that nobody waits for the counter while they are written."""
        if self._ids.lacks("row", count):
            size = count + BLOCK
            start = await self._db.write(lambda conn: reserve(conn, self._dialect, "row", size))
            self._ids.put("row", range(start, start + size))

    def _assigned(self, conn: Connection, wanted: Assignment) -> Run | None:
        r = schema.run.c
        known = select(schema.run).where(r.job_id == 0, r.cause == str(Cause.ASSIGN), r.key == assignment_key(wanted))
        row = conn.execute(known).first()
        return None if row is None else self._derived(conn, [run_of(row)])[0]

    def _check_quota(self, conn: Connection, wanted: Assignment) -> None:
        c, name = schema.limit.c, quota_limit(wanted.work.tenant, wanted.work.quota)
        if conn.scalar(select(c.name).where(c.name == name, c.is_set == 1)) is None:
            raise unknown_quota(wanted.work)

    def _check_numbers(self, conn: Connection, wanted: Assignment) -> None:
        i = schema.item.c
        numbers = self._dialect.among(i.number, [task.number for task in wanted.tasks])
        taken = conn.scalars(select(i.number).where(i.tenant == wanted.work.tenant, numbers)).all()
        if taken:
            raise numbers_taken([str(number) for number in taken])

    def _close_runs(self, tx: Transaction, limit: int) -> int:
        """A run without an item in the queue is over: items come into it with their run, and never come back."""
        r, q = schema.run.c, schema.queue.c
        is_open = (r.job_id == 0, r.ended_at.is_(None))
        ids = tx.conn.scalars(select(r.id).where(*is_open).order_by(r.id)).all()
        live = set(tx.conn.scalars(select(q.run_id).where(q.job_id == 0).distinct())) if ids else set()
        over = [run_id for run_id in ids if run_id not in live][:limit]
        if not over:
            return 0
        mine = select(r.id).where(self._dialect.among(r.id, over), *is_open).order_by(r.id)
        ended = self._ended_loose(tx.conn, tx.conn.scalars(self._dialect.locked(mine, skip=True)).all())
        tx.read_clock()
        rows = [(run_id, str(it["state"]), to_us(it["ended_at"])) for run_id, it in ended.items()]
        self._dialect.update(tx.conn, _CLOSE, rows)
        for run_id, it in ended.items():
            tx.record(f"run.{it['state']}", {"was": "running"}, run_id=run_id)
        return len(rows)


def put_assignment(tx: Transaction, wanted: Assignment, cause: Cause = Cause.ASSIGN) -> Run:
    """Write the run and its items. Only what a client has assigned takes up numbers."""
    lane = assigned_lane(wanted.work)
    lane_id = tx.lane_ids([lane])[lane]
    run = assigned_run(next(tx.ids("run", 1)), wanted, cause, tx.read_clock())
    start, end = to_us(run.due_at), to_us(wanted.end_at or run.due_at)
    start_by = spread(start, end, len(wanted.tasks))
    ids = list(tx.ids("row", len(wanted.tasks)))
    tenant = wanted.work.tenant if cause is Cause.ASSIGN else None
    rows = [
        (item_id, run.id, "main", n, READY, start, by, tenant, task.number, _text(task.info))
        for n, (item_id, by, task) in enumerate(zip(ids, start_by, wanted.tasks, strict=True))
    ]
    tx.dialect.insert(tx.conn, schema.run, run_rows([run]))
    tx.dialect.insert(tx.conn, schema.item, rows, _ITEM)
    hold_us = 0 if wanted.work.handler is None else round(wanted.work.hold_s * 1_000_000)
    enqueue(tx, [(Ready(it, run.id, 0, lane_id, by, start), hold_us) for it, by in zip(ids, start_by, strict=True)])
    tx.record("run.started", assigned_data(run, len(ids)), run_id=run.id)
    return run


def _text(info: Json) -> str | None:
    return None if info is None else encode(info)
