"""What is read of jobs: one short statement each, nothing locked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sqlalchemy import ColumnElement, Connection, select, true

from rota.model.cluster import Hold, Placeable
from rota.model.job import Definition, Job, JobName
from rota.model.plan import JobFilter, Pending, Upcoming
from rota.model.readable import Readings
from rota.model.records import definition_of, from_us, hold_of, job_of
from rota.storage.sql import schema
from rota.storage.sql.database import Database

PLACED = "placed"


class SqlJobReads:
    """Jobs, what is due, and what is held."""

    def __init__(self, database: Database, readings: Readings) -> None:
        self._db = database
        self._dialect = database.dialect
        self._readings = readings

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        return await self._db.read(lambda conn: self._upcoming(conn, within_s, limit))

    def _upcoming(self, conn: Connection, within_s: float, limit: int) -> Upcoming:
        """One statement, because an idle node asks again and again. The clock comes even if no job does."""
        now, j = self._dialect.statement_now_us(), schema.job.c
        soon = select(j.id, j.next_fire_at).where(j.next_fire_at <= now + round(within_s * 1_000_000), ~_is_held())
        first = soon.order_by(j.next_fire_at, j.id).limit(limit).subquery()
        placed = select(schema.counter.c.next).where(schema.counter.c.name == PLACED).scalar_subquery()
        moment = select(now.label("now"), placed.label("placed")).subquery()
        found = conn.execute(select(moment, first).select_from(moment.outerjoin(first, true()))).all()
        pending = [
            Pending(job_id=row.id, next_fire_at=from_us(row.next_fire_at)) for row in found if row.id is not None
        ]
        pending.sort(key=lambda it: (it.next_fire_at, it.job_id))
        return Upcoming(now=from_us(int(found[0].now)), pending=tuple(pending), placed=found[0].placed or 0)

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

    async def placeable(self, known: int) -> Placeable:
        def work(conn: Connection) -> Placeable:
            c, p = schema.counter.c, schema.placed.c
            revision = int(conn.scalar(select(c.next).where(c.name == PLACED)) or 0)
            if revision == known:
                return Placeable(revision=revision)
            return Placeable(revision=revision, jobs=tuple(conn.scalars(select(p.job_id).order_by(p.job_id))))

        return await self._db.read(work)

    async def busy_jobs(self, job_ids: Sequence[int]) -> frozenset[int]:
        r = schema.run.c
        live = select(r.job_id).where(self._dialect.among(r.job_id, job_ids), r.ended_at.is_(None)).distinct()
        return await self._db.read(lambda conn: frozenset(conn.scalars(live)))

    async def holds(self) -> tuple[Hold, ...]:
        query = select(schema.held).order_by(schema.held.c.tenant, schema.held.c.project)
        return tuple(hold_of(row) for row in await self._db.read(lambda conn: conn.execute(query).all()))

    def _ids_of(self, conn: Connection, names: Iterable[JobName]) -> list[int]:
        """Ids never change and rows are never removed, so they may be looked up before locking."""
        j = schema.job.c
        found: list[int] = []
        by_project: dict[tuple[str, str], list[str]] = {}
        for name in names:
            by_project.setdefault((name.tenant, name.project), []).append(name.name)
        for (tenant, project), wanted in by_project.items():
            query = select(j.id).where(j.tenant == tenant, j.project == project, self._dialect.among(j.name, wanted))
            found += conn.scalars(query).all()
        return found


def _is_held() -> ColumnElement[bool]:
    """The same inside a query about jobs."""
    h, j = schema.held.c, schema.job.c
    return (
        select(h.at).where(h.tenant.in_(["", j.tenant]), h.project.in_(["", j.project])).correlate(schema.job).exists()
    )
