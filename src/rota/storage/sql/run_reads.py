"""What is read of runs, items, attempts and history.

The run of an assignment is closed by a duty some time after its last item has ended; until then its state is derived
from its items.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, and_, func, literal, null, select, tuple_

from rota.model.plan import RunFilter
from rota.model.records import attempt_of, event_of, item_of, run_of
from rota.model.run import Event, Item, Loads, Run
from rota.model.work import AttemptRecord
from rota.storage.sql import schema
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.job_reads import SqlJobReads
from rota.storage.sql.questions import SqlQuestions
from rota.storage.sql.rows import SqlRows
from rota.transactions.assign import derived, is_open

TOGETHER = 50
"""Up to so many items are read with their runs in one statement, each with all of its run: a round trip costs more."""


class SqlRunReads(SqlJobReads):
    """Runs, items, attempts, history."""

    async def run(self, run_id: int) -> Run | None:
        found = await self.runs_of([run_id])
        return found[0] if found else None

    async def runs_of(self, run_ids: Sequence[int]) -> Sequence[Run]:
        return await self._db.read(lambda conn: self._derived(conn, self._runs_by_id(conn, run_ids)))

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        return await self._db.read(lambda conn: self._runs(conn, wanted))

    async def live_runs(self, tenant: str, *, after_id: int = 0, limit: int = 1000) -> tuple[int, ...]:
        r, j, i = schema.run.c, schema.job.c, schema.item.c
        of_jobs = select(r.id).join(schema.job, j.id == r.job_id).where(j.tenant == tenant)
        going = select(i.id).where(i.run_id == r.id, i.ended_at.is_(None)).exists()
        prefix = f"{tenant}/"
        loose = select(r.id).where(r.job_id == 0, func.substr(r.key, 1, len(prefix)) == prefix, going)
        live = and_(r.ended_at.is_(None), r.id > after_id)
        both = of_jobs.where(live).union_all(loose.where(live)).subquery()
        query = select(both.c.id).order_by(both.c.id).limit(limit)
        return tuple(await self._db.read(lambda conn: conn.scalars(query).all()))

    async def items(self, run_id: int) -> tuple[Item, ...]:
        def work(conn: Connection) -> tuple[Item, ...]:
            found = SqlQuestions(SqlRows(conn, self._dialect)).live_items([run_id])
            return tuple(self._readings.all([(*it.item, it.live) for it in found], item_of))

        return await self._db.read(work)

    async def loads(self, item_ids: Sequence[int], run_ids: Sequence[int] = ()) -> Loads:
        def work(conn: Connection) -> Loads:
            wanted = {"ids": self._dialect.listed(item_ids)}
            rows = self._dialect.fetched(conn.execute(_items_by_id(self._dialect), wanted))
            by_id = {"ids": self._dialect.listed(run_ids)}
            runs = conn.execute(runs_by_id(self._dialect), by_id).all() if run_ids else []
            return self._loaded([tuple(row) for row in rows], [tuple(row) for row in runs])

        def together(conn: Connection) -> Loads:
            wanted = {"ids": self._dialect.listed(item_ids), "run_ids": self._dialect.listed(run_ids)}
            found = [tuple(row) for row in conn.execute(_items_and_runs(self._dialect), wanted)]
            runs = {row[_WIDTH:] for row in found if row[_WIDTH] is not None}
            return self._loaded([row[:_WIDTH] for row in found], list(runs))

        return await self._db.read(together if run_ids and 0 < len(item_ids) <= TOGETHER else work)

    def _loaded(self, items: Sequence[tuple[Any, ...]], runs: Sequence[tuple[Any, ...]]) -> Loads:
        read, ran = self._readings.all(items, item_of), self._readings.all(runs, run_of)
        unread: set[int] = set()
        if len(read) < len(items):
            known = {item.id for item in read}
            unread |= {row[1] for row in items if row[0] not in known}
        if len(ran) < len(runs):
            unread |= {row[0] for row in runs} - {run.id for run in ran}
        return Loads(read, ran, frozenset(unread))

    async def attempts(self, run_id: int) -> tuple[AttemptRecord, ...]:
        a, i = schema.attempt.c, schema.item.c
        query = select(schema.attempt).join(schema.item, i.id == a.item_id).where(i.run_id == run_id)
        query = query.order_by(a.ended_at, a.item_id, a.attempt)
        return tuple(self._readings.all(await self._db.read(lambda conn: conn.execute(query).all()), attempt_of))

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        e = schema.event.c
        query = select(schema.event).order_by(e.at.desc(), e.id.desc()).limit(limit)
        if run_id is not None:
            query = query.where(e.run_id == run_id)
        if job_id is not None:
            query = query.where(e.job_id == job_id)
        found = await self._db.read(lambda conn: conn.execute(query).all())
        return tuple(self._readings.all(reversed(found), event_of))

    async def forgotten(self, run_ids: Sequence[int]) -> Sequence[int]:
        r, c = schema.run.c, schema.counter.c

        def work(conn: Connection) -> list[int]:
            kept = set(conn.scalars(select(r.id).where(self._dialect.among(r.id, run_ids))))
            given = conn.scalar(select(c.next).where(c.name == "run")) or 0
            return [it for it in run_ids if it < given and it not in kept]

        return await self._db.read(work)

    def _runs(self, conn: Connection, wanted: RunFilter) -> tuple[Run, ...]:
        r = schema.run.c
        query = select(schema.run).order_by(r.created_at.desc(), r.id.desc()).limit(wanted.limit)
        if wanted.job is not None:
            query = query.where(self._dialect.among(r.job_id, self._ids_of(conn, [wanted.job])))
        if wanted.states:
            query = query.where(r.state.in_([str(it) for it in wanted.states]))
        if wanted.before_id is not None:
            last = conn.execute(select(r.created_at, r.id).where(r.id == wanted.before_id)).first()
            if last is not None:
                query = query.where(tuple_(r.created_at, r.id) < tuple_(literal(last.created_at), literal(last.id)))
        found = self._derived(conn, self._readings.all(conn.execute(query), run_of))
        return tuple(run for run in found if not wanted.states or run.state in wanted.states)

    def _derived(self, conn: Connection, runs: Sequence[Run]) -> Sequence[Run]:
        """Runs of assignments that nobody has closed, as their items say."""
        loose = [run.id for run in runs if is_open(run)]
        tallies = SqlQuestions(SqlRows(conn, self._dialect)).tally(loose) if loose else ()
        return derived(runs, tallies)

    def _runs_by_id(self, conn: Connection, run_ids: Sequence[int]) -> tuple[Run, ...]:
        if not run_ids:
            return ()
        wanted = {"ids": self._dialect.listed(run_ids)}
        return tuple(self._readings.all(conn.execute(runs_by_id(self._dialect), wanted), run_of))


@lru_cache
def runs_by_id(dialect: Dialect) -> Select[Any]:
    r = schema.run.c
    return select(schema.run).where(dialect.among_named(r.id, "ids")).order_by(r.id)


_WIDTH = len(schema.item.columns) + 1
"""How many values there are of an item, its live state included."""


@lru_cache
def _items_and_runs(dialect: Dialect) -> Select[Any]:
    i, r = schema.item.c, schema.run.c
    both = schema.item.outerjoin(schema.run, and_(r.id == i.run_id, dialect.among_named(r.id, "run_ids")))
    columns = (*schema.item.columns, null(), *schema.run.columns)
    return select(*columns).select_from(both).where(dialect.among_named(i.id, "ids"))


@lru_cache
def _items_by_id(dialect: Dialect) -> Select[Any]:
    """Without their live states: nobody asks for them here, and the join would look through what left the queue."""
    return dialect.whole(select(schema.item, null()).where(dialect.among_named(schema.item.c.id, "ids")))
