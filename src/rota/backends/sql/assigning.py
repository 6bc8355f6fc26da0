"""Assign: one run of many items in one transaction, and the end of such runs.

The items of an assignment are on their own: nothing else is locked when they end. So their run is closed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, select

from rota.backends.record import (
    assigned_data,
    assigned_lane,
    assigned_run,
    numbers_taken,
    unknown_quota,
)
from rota.backends.sql import schema
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.queue import READY, enqueue
from rota.backends.sql.rounds import Rounds
from rota.backends.sql.rows import from_us, run_of, run_rows, to_us
from rota.backends.sql.sets import Change, Insert
from rota.backends.sql.transaction import BLOCK, Transaction
from rota.model.dispatch import Ready
from rota.model.run import Run
from rota.model.standing import Closed
from rota.model.states import Cause
from rota.model.value import Json, encode
from rota.model.work import Assignment, quota_limit, spread

_ITEM = Insert(
    schema.item,
    ("id", "run_id", "task", "index", "state", "not_before_at", "start_by_at", "tenant", "number", "info"),
)
_CLOSE = Change(schema.run, ("id",), ("state", "ended_at"))


class Assigning(Rounds):
    """What clients assign."""

    async def assign(self, wanted: Assignment, *, quota_must_exist: bool = True) -> Run:
        await self._reserve_rows(len(wanted.tasks))
        ready = assigned_lane(wanted.work) in self._lanes
        tries: list[Transaction] = []

        def work(tx: Transaction) -> Run:
            tries.append(tx)
            found = self._facts_of(tx, wanted)
            if found.id is not None:
                return self._derived(tx.conn, [run_of(found)])[0]
            if quota_must_exist and found.quota is None:
                raise unknown_quota(wanted.work)
            if len(tries) > 1:  # perhaps somebody else's number was in the way
                self._check_numbers(tx.conn, wanted)
            return put_assignment(tx, wanted)

        return await self._transact(work, at_once=ready)

    async def close_runs(self, *, after_id: int = 0, limit: int) -> Closed:
        r = schema.run.c
        open_ = select(r.id).where(r.job_id == 0, r.ended_at.is_(None), r.id > after_id).order_by(r.id).limit(limit)
        ids = await self._db.read(lambda conn: conn.scalars(open_).all())
        count = await self._transact(lambda tx: self._close_runs(tx, ids)) if ids else 0
        return Closed(count=count, last_id=ids[-1] if len(ids) == limit else None)

    async def _reserve_rows(self, count: int) -> None:
        """Reserve the ids of many rows beforehand, so that nobody waits for the counter while they are written."""
        if self._ids.lacks("row", count):
            size = count + BLOCK
            start = await self._db.write(lambda conn: self._dialect.reserve(conn, "row", size))
            self._ids.put("row", range(start, start + size))

    def _facts_of(self, tx: Transaction, wanted: Assignment) -> Row[Any]:
        """What decides about an assignment: its run if it was made before, its quota; and the clock."""
        names = {"key": wanted.full_key, "name": quota_limit(wanted.work.tenant, wanted.work.quota)}
        row = tx.conn.execute(_facts(self._dialect), names).one()
        tx.now_us = int(row.now)
        return row

    def _check_numbers(self, conn: Connection, wanted: Assignment) -> None:
        i = schema.item.c
        numbers = self._dialect.among(i.number, [task.number for task in wanted.tasks])
        taken = conn.scalars(select(i.number).where(i.tenant == wanted.work.tenant, numbers)).all()
        if taken:
            raise numbers_taken([str(number) for number in taken])

    def _close_runs(self, tx: Transaction, run_ids: Sequence[int]) -> int:
        over = list(self._ended_loose(tx.conn, run_ids))
        if not over:
            return 0
        r = schema.run.c
        mine = select(r.id).where(self._dialect.among(r.id, over), r.ended_at.is_(None)).order_by(r.id)
        ended = self._ended_loose(tx.conn, tx.conn.scalars(self._dialect.locked(mine, skip=True)).all())
        tx.read_clock()
        rows = [(run_id, str(it["state"]), to_us(it["ended_at"])) for run_id, it in ended.items()]
        tx.write(_CLOSE, rows)
        for run_id, it in ended.items():
            tx.record(f"run.{it['state']}", {"was": "running"}, run_id=run_id)
        return len(rows)


@lru_cache
def _facts(dialect: Dialect) -> Select[Any]:
    r, c = schema.run.c, schema.limit.c
    moment = select(dialect.statement_now_us().label("now")).subquery()
    known = and_(r.job_id == 0, r.cause == str(Cause.ASSIGN), r.key == bindparam("key"))
    quota = select(c.name).where(c.name == bindparam("name"), c.is_set == 1).scalar_subquery()
    source = moment.outerjoin(schema.run, known)
    return select(*schema.run.columns, moment.c.now, quota.label("quota")).select_from(source)


def put_assignment(tx: Transaction, wanted: Assignment, cause: Cause = Cause.ASSIGN) -> Run:
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
    tx.write(Insert(schema.run), run_rows([run]))
    tx.write(_ITEM, rows)
    hold_us = 0 if wanted.work.handler is None else round(wanted.work.hold_s * 1_000_000)
    enqueue(tx, [(Ready(it, run.id, 0, lane_id, by, start), hold_us) for it, by in zip(ids, start_by, strict=True)])
    tx.record("run.started", assigned_data(run, len(ids)), run_id=run.id)
    return run


def _text(info: Json) -> str | None:
    return None if info is None else encode(info)
