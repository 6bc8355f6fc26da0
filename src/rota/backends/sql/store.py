"""The store port on a SQL database: each verb is one transaction.

Deciding verbs lock jobs in id order, then overlap keys in their order, then read the clock and the live runs in later
statements, so that what was read is what the lock protects. The writes are fenced once more by what was read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, func, literal, select, true, tuple_

from rota.backends.sql import schema
from rota.backends.sql.commit import Ids, commit
from rota.backends.sql.database import Database
from rota.backends.sql.migrate import check_schema, is_current, migrate
from rota.backends.sql.rows import event_of, from_us, item_of, job_of, run_of
from rota.errors import StoreRefused
from rota.model.job import Job, JobName, OverlapPolicy
from rota.model.plan import Committed, Crowd, Facts, JobFilter, LiveRun, Pending, Rule, RunFilter, Upcoming
from rota.model.run import Event, Item, Run, RunKey
from rota.model.states import Cause, ItemState, RunState

_STARTED = [str(ItemState.ASSIGNED), str(ItemState.RUNNING)]


class SqlStore:
    """The durable truth in a SQL database."""

    def __init__(self, database: Database, *, actor: str, may_forget: bool = False) -> None:
        self._db = database
        self._dialect = database.dialect
        self._actor = actor
        self._may_forget = may_forget
        self._ids = Ids()

    async def migrate(self) -> None:
        if not await self._db.read(is_current):  # a frozen node that holds the lock must not keep others from starting
            await self._db.exclusively(migrate)

    async def check(self) -> None:
        await self._db.read(check_schema)
        weak = await self._db.read(self._dialect.weaknesses)
        if weak and not self._may_forget:
            raise StoreRefused(
                f"this {self._dialect.name} store could lose what it has acknowledged: {'; '.join(weak)}. "
                "To use it all the same, set store.may_forget (ROTA_STORE_MAY_FORGET=true)."
            )

    async def close(self) -> None:
        await self._db.close()

    async def now(self) -> datetime:
        return from_us(await self._db.read(self._dialect.now_us))

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        return await self._db.read(lambda conn: self._upcoming(conn, within_s, limit))

    async def fire(self, job_ids: Sequence[int], rule: Rule) -> Committed:
        def lock(conn: Connection) -> list[Job]:
            j = schema.job.c
            wanted = and_(self._dialect.among(j.id, job_ids), j.next_fire_at.is_not(None))
            return self._locked_jobs(conn, wanted, skip=True)

        return await self._decide(lock, rule, counts_all=False)

    async def change(
        self,
        names: Sequence[JobName],
        rule: Rule,
        *,
        known: Sequence[tuple[JobName, str]] = (),
        waiting: bool = False,
    ) -> Committed:
        def lock(conn: Connection) -> list[Job]:
            return self._locked_jobs(conn, self._dialect.among(schema.job.c.id, self._ids_of(conn, names)))

        return await self._decide(lock, rule, known=known, waiting=waiting)

    async def end(self, run_ids: Sequence[int], rule: Rule) -> Committed:
        def lock(conn: Connection) -> list[Job]:
            r = schema.run.c
            owners = conn.scalars(select(r.job_id).where(self._dialect.among(r.id, run_ids)).distinct()).all()
            return self._locked_jobs(conn, self._dialect.among(schema.job.c.id, owners))

        return await self._decide(lock, rule, run_ids=run_ids)

    async def named(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        def work(conn: Connection) -> list[Job]:
            wanted = self._dialect.among(schema.job.c.id, self._ids_of(conn, names))
            return [job_of(row) for row in conn.execute(select(schema.job).where(wanted).order_by(schema.job.c.id))]

        return tuple(await self._db.read(work))

    async def jobs(self, wanted: JobFilter) -> tuple[Job, ...]:
        j = schema.job.c
        query = select(schema.job).where(j.id > wanted.after_id, j.state.in_([str(it) for it in wanted.states]))
        if wanted.ids is not None:
            query = query.where(self._dialect.among(j.id, wanted.ids))
        if wanted.tenant is not None:
            query = query.where(j.tenant == wanted.tenant)
        if wanted.project is not None:
            query = query.where(j.project == wanted.project)
        query = query.order_by(j.id).limit(wanted.limit)
        return tuple(job_of(row) for row in await self._db.read(lambda conn: conn.execute(query).all()))

    async def run(self, run_id: int) -> Run | None:
        query = select(schema.run).where(schema.run.c.id == run_id)
        row = await self._db.read(lambda conn: conn.execute(query).first())
        return None if row is None else run_of(row)

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        return await self._db.read(lambda conn: self._runs(conn, wanted))

    async def items(self, run_id: int) -> tuple[Item, ...]:
        i = schema.item.c
        query = select(schema.item).where(i.run_id == run_id).order_by(i.task, i.index)
        return tuple(item_of(row) for row in await self._db.read(lambda conn: conn.execute(query).all()))

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
        return tuple(event_of(row) for row in reversed(found))

    def _upcoming(self, conn: Connection, within_s: float, limit: int) -> Upcoming:
        """One statement, because an idle node asks again and again. The clock comes even if no job does."""
        now, j = self._dialect.statement_now_us(), schema.job.c
        soon = select(j.id, j.next_fire_at).where(j.next_fire_at <= now + round(within_s * 1_000_000))
        first = soon.order_by(j.next_fire_at, j.id).limit(limit).subquery()
        moment = select(now.label("now")).subquery()
        found = conn.execute(select(moment.c.now, first).select_from(moment.outerjoin(first, true()))).all()
        pending = [
            Pending(job_id=row.id, next_fire_at=from_us(row.next_fire_at)) for row in found if row.id is not None
        ]
        pending.sort(key=lambda it: (it.next_fire_at, it.job_id))
        return Upcoming(now=from_us(int(found[0].now)), pending=tuple(pending))

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
        return tuple(run_of(row) for row in conn.execute(query))

    async def _decide(
        self,
        lock: Callable[[Connection], list[Job]],
        rule: Rule,
        *,
        run_ids: Sequence[int] = (),
        known: Sequence[tuple[JobName, str]] = (),
        waiting: bool = False,
        counts_all: bool = True,
    ) -> Committed:
        """Lock, read, decide, write, commit."""
        spare: list[Ids] = []

        def work(conn: Connection) -> Committed:
            spare.clear()  # an attempt that was rolled back has left nothing over
            jobs = lock(conn)
            runs = self._runs_to_end(conn, run_ids)
            more_keys = self._waiting_keys(conn, jobs) if waiting else ()
            keys = sorted({*rule.keys(jobs), *(run.overlap_key for run in runs), *more_keys})
            self._lock_keys(conn, keys)
            crowds = self._crowds(conn, keys, jobs)
            others = self._others(conn, jobs, crowds)
            facts = Facts(
                now=from_us(self._dialect.now_us(conn)),
                jobs=tuple(jobs),
                crowds=crowds,
                others=tuple(others),
                live=self._live(
                    conn, [job.id for job in (*jobs, *others) if counts_all or job.definition.follows_ends]
                ),
                runs=self._runs_to_end(conn, run_ids),
                known=self._known(conn, jobs, known),
            )
            plan = rule.decide(facts)
            if plan.is_empty:
                return Committed(now=facts.now, plan=plan, runs=tuple(facts.known.values()))
            written, left = commit(conn, self._dialect, plan, facts.now, self._actor, self._ids)
            spare[:] = [left]
            return Committed(now=facts.now, plan=plan, runs=tuple(written))

        done = await self._db.write(work)
        if spare:
            self._ids.keep(spare[0])
        return done

    def _locked_jobs(self, conn: Connection, wanted: Any, *, skip: bool = False) -> list[Job]:
        query = select(schema.job).where(wanted).order_by(schema.job.c.id)
        return [job_of(row) for row in conn.execute(self._dialect.locked(query, skip=skip))]

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

    def _lock_keys(self, conn: Connection, keys: Sequence[str]) -> None:
        """Lock the rows of explicit overlap keys; a job's own key is its job row, which is locked already.

        Rows are made when a key is first seen. Inserting what is there would take a weaker lock first, and two that
        then want the stronger one would wait for each other.
        """
        explicit = [key for key in keys if not key.startswith("job:")]
        if not explicit:
            return
        column = schema.overlap.c.key
        query = self._dialect.locked(select(column).where(self._dialect.among(column, explicit)).order_by(column))
        missing = sorted(set(explicit) - set(conn.scalars(query)))
        if missing:
            self._dialect.insert_missing(conn, schema.overlap, missing)
            conn.execute(query).all()

    def _others(self, conn: Connection, jobs: Sequence[Job], crowds: dict[str, Crowd]) -> list[Job]:
        """Lock the other jobs whose runs may be replaced and that would then have to be armed again."""
        if not any(job.definition.overlap.policy is OverlapPolicy.REPLACE for job in jobs):
            return []
        live = {run.job_id for crowd in crowds.values() for run in (*crowd.runs, *crowd.waiting)}
        strangers = live - {job.id for job in jobs}
        wanted = self._dialect.among(schema.job.c.id, strangers)
        seen = [job_of(row) for row in conn.execute(select(schema.job).where(wanted))] if strangers else []
        follow = [job.id for job in seen if job.definition.follows_ends]
        return self._locked_jobs(conn, self._dialect.among(schema.job.c.id, follow)) if follow else []

    def _waiting_keys(self, conn: Connection, jobs: Sequence[Job]) -> Sequence[str]:
        """Nobody can begin to wait for these jobs meanwhile: that needs their locks."""
        r = schema.run.c
        mine = self._dialect.among(r.job_id, [job.id for job in jobs])
        waiting = and_(mine, r.ended_at.is_(None), r.state == str(RunState.WAITING))
        return conn.scalars(select(r.overlap_key).where(waiting).distinct()).all()

    def _runs_to_end(self, conn: Connection, run_ids: Sequence[int]) -> tuple[Run, ...]:
        if not run_ids:
            return ()
        query = select(schema.run).where(self._dialect.among(schema.run.c.id, run_ids)).order_by(schema.run.c.id)
        return tuple(run_of(row) for row in conn.execute(query))

    def _crowds(self, conn: Connection, keys: Sequence[str], jobs: Sequence[Job]) -> dict[str, Crowd]:
        if not keys:
            return {}
        r = schema.run.c
        live = and_(self._dialect.among(r.overlap_key, keys), r.ended_at.is_(None))
        counts = conn.execute(
            select(r.overlap_key, r.state, func.count().label("n")).where(live).group_by(r.overlap_key, r.state)
        ).all()
        running = {row.overlap_key: row.n for row in counts if row.state == RunState.RUNNING}
        crowds = {key: Crowd(running=running.get(key, 0)) for key in keys}
        waits = any(row.state == RunState.WAITING for row in counts)
        replaces = any(job.definition.overlap.policy is OverlapPolicy.REPLACE for job in jobs)
        return self._with_runs(conn, crowds, live) if counts and (waits or replaces) else crowds

    def _with_runs(self, conn: Connection, crowds: dict[str, Crowd], live: Any) -> dict[str, Crowd]:
        """Name the live runs too, oldest first."""
        r, i = schema.run.c, schema.item.c
        started = select(true()).where(i.run_id == r.id, i.state.in_(_STARTED)).exists()
        query = select(r.id, r.job_id, r.state, r.overlap_key, started.label("started"))
        named: dict[str, list[LiveRun]] = {key: [] for key in crowds}
        for row in conn.execute(query.where(live).order_by(r.created_at, r.id)):
            named[row.overlap_key].append(
                LiveRun(id=row.id, job_id=row.job_id, state=RunState(row.state), started=bool(row.started))
            )
        return {
            key: Crowd(
                running=crowd.running,
                runs=tuple(run for run in named[key] if run.state is RunState.RUNNING),
                waiting=tuple(run for run in named[key] if run.state is RunState.WAITING),
            )
            for key, crowd in crowds.items()
        }

    def _live(self, conn: Connection, job_ids: Sequence[int]) -> dict[int, int]:
        if not job_ids:
            return {}
        r = schema.run.c
        live = and_(self._dialect.among(r.job_id, job_ids), r.ended_at.is_(None))
        counts = conn.execute(select(r.job_id, func.count().label("n")).where(live).group_by(r.job_id))
        return {row.job_id: row.n for row in counts}

    def _known(self, conn: Connection, jobs: Sequence[Job], known: Sequence[tuple[JobName, str]]) -> dict[RunKey, Run]:
        if not known:
            return {}
        r = schema.run.c
        ids = {job.definition.full_name: job.id for job in jobs}
        found: dict[RunKey, Run] = {}
        for name, key in known:
            query = select(schema.run).where(r.job_id == ids.get(name, 0), r.cause == str(Cause.MANUAL), r.key == key)
            for row in conn.execute(query):
                run = run_of(row)
                found[run.unique] = run
        return found
