"""The verbs that only read: one short statement each, nothing locked.

The run of an assignment is closed by a duty some time after its last item has ended; until then its state is derived
from its items.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Select, and_, func, literal, null, select, tuple_

from rota.backends.record import ended_state
from rota.backends.sql import schema
from rota.backends.sql.deciding import Deciding, runs_by_id
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.queue import RUNNING, queued_of
from rota.backends.sql.rows import (
    attempt_of,
    definition_of,
    event_of,
    from_us,
    item_of,
    job_of,
    lane_as_known,
    lane_of,
    run_of,
)
from rota.model.job import Definition, Job, JobName
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Event, Item, Loads, Run
from rota.model.work import AttemptRecord, Lane, Queued

TOGETHER = 50
"""Up to so many items are read with their runs in one statement, each with all of its run: a round trip costs more."""


class Reading(Deciding):
    """Jobs, runs, items, attempts, history."""

    async def named(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        def work(conn: Connection) -> list[Job]:
            wanted = self._dialect.among(schema.job.c.id, self._ids_of(conn, names))
            return [job_of(row) for row in conn.execute(select(schema.job).where(wanted).order_by(schema.job.c.id))]

        return tuple(await self._db.read(work))

    async def jobs(self, wanted: JobFilter) -> tuple[Job, ...]:
        j = schema.job.c
        query = select(schema.job).where(j.state.in_([str(it) for it in wanted.states]))
        if wanted.ids is not None:
            query = query.where(self._dialect.among(j.id, wanted.ids))
        if wanted.tenant is not None:
            query = query.where(j.tenant == wanted.tenant)
        if wanted.project is not None:
            query = query.where(j.project == wanted.project)
        query = query.order_by(j.id).limit(wanted.limit)

        def work(conn: Connection) -> list[Job]:
            """Full pages: a shorter one is the last."""
            found: list[Job] = []
            after_id = wanted.after_id
            while len(found) < wanted.limit:
                rows = conn.execute(query.where(j.id > after_id)).all()
                found += self._readings.all(rows, job_of)
                if len(rows) < wanted.limit:
                    break
                after_id = rows[-1].id
            return found[: wanted.limit]

        return tuple(await self._db.read(work))

    async def definitions(self, versions: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], Definition]:
        v = schema.job_version.c
        wanted = self._dialect.among(v.job_id, {job_id for job_id, _ in versions})
        query = select(v.job_id, v.version, v.definition).where(
            wanted, v.version.in_({version for _, version in versions})
        )
        found = await self._db.read(lambda conn: conn.execute(query).all())
        asked = set(versions)
        read = self._readings.pairs([it for it in found if (it[0], it[1]) in asked], definition_of)
        return {(it.job_id, it.version): definition for it, definition in read}

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
        return await self._db.read(lambda conn: self._items_of(conn, [run_id]))

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

    async def queued(
        self,
        *,
        item_ids: Sequence[int] | None = None,
        node_id: int | None = None,
        expired: bool = False,
        limit: int = 1000,
    ) -> tuple[Queued, ...]:
        q = schema.queue.c
        query = select(schema.queue).order_by(q.item_id).limit(limit)
        if item_ids is not None:
            query = query.where(self._dialect.among(q.item_id, item_ids))
        if node_id is not None:
            query = query.where(q.node_id == node_id)
        if expired:
            now = self._dialect.statement_now_us()
            query = query.where(q.state == RUNNING, q.node_id.is_(None), q.expires_at <= now)
        return tuple(self._readings.all(await self._db.read(lambda conn: conn.execute(query).all()), queued_of))

    async def asked_to_cancel(self, item_ids: Sequence[int]) -> tuple[int, ...]:
        q = schema.queue.c
        query = select(q.item_id).where(self._dialect.among(q.item_id, item_ids), q.cancel_at.is_not(None))
        return tuple(await self._db.read(lambda conn: conn.scalars(query).all()))

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

    def _lanes_of(self, rows: Sequence[Any]) -> dict[int, Lane]:
        """Lanes by their ids. Of one of a newer release, as much as is understood."""
        lanes = {row.id: lane for row, lane in self._readings.pairs(rows, lane_of)}
        unread = [row for row in rows if row.id not in lanes]
        return lanes | {row.id: known for row in unread if (known := lane_as_known(row)) is not None}

    async def generation(self) -> int:
        return await self._db.read(self._generation)

    def _generation(self, conn: Connection) -> int:
        m = schema.meta.c
        return int(conn.scalars(select(m.value).where(m.name == "generation")).one())

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
        open_ = [run.id for run in runs if run.job_id == 0 and run.ended_at is None]
        ended = self._ended_loose(conn, open_) if open_ else {}
        return [msgspec.structs.replace(run, **ended[run.id]) if run.id in ended else run for run in runs]

    def _ended_loose(self, conn: Connection, run_ids: Sequence[int]) -> dict[int, dict[str, Any]]:
        """State and end of those of the runs whose items have all ended."""
        r, i = schema.run.c, schema.item.c
        unfinished = select(i.id).where(i.run_id == r.id, i.ended_at.is_(None)).exists()
        going = set(conn.scalars(select(r.id).where(self._dialect.among(r.id, run_ids), unfinished)))
        over = [run_id for run_id in run_ids if run_id not in going]
        if not over:
            return {}
        query = select(i.run_id, i.state, func.max(i.ended_at).label("at")).group_by(i.run_id, i.state)
        states: dict[int, dict[str, int]] = {run_id: {} for run_id in over}
        for row in conn.execute(query.where(self._dialect.among(i.run_id, over))):
            states[row.run_id][row.state] = row.at
        return {
            run_id: {"state": ended_state(found), "ended_at": from_us(max(found.values()))}
            for run_id, found in states.items()
            if found
        }


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
