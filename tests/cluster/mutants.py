"""Wrong ways to fire, put over the product inside a node process. The judge must catch each.

| mutant              | what it does                                                                                |
|---------------------|---------------------------------------------------------------------------------------------|
| advance_first       | moves the next instant in a transaction of its own, inserts the runs in the next one        |
| node_clock          | takes the node's wall clock for the store's                                                 |
| no_revision_check   | decides on jobs as the last look saw them, without a lock, and writes without comparing     |
| pruned_dedup        | slots by the node's clock; once only by a row that is pruned when a later slot fires        |
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import BigInteger, Connection, bindparam, select, text
from sqlalchemy.dialects import postgresql

from rota.backends.sql import commit as commit_module
from rota.backends.sql import dialect, schema
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.rows import job_of, to_us
from rota.backends.sql.sets import Insert, Rows, Write
from rota.backends.sql.store import SqlStore
from rota.backends.sql.transaction import Transaction
from rota.core.fire import new_items, own_key
from rota.core.instants import upcoming
from rota.core.owed import seed_of
from rota.model.job import Job
from rota.model.plan import Committed, Facts, JobChange, NewRun, Pending, Plan, Rule, Upcoming
from rota.model.states import Cause, JobState, RunState


def advance_first() -> None:
    fire = SqlStore.fire

    async def in_two_steps(self: SqlStore, job_ids: Sequence[int], rule: Rule) -> Committed:
        without_runs = _WithoutRuns(rule)
        await fire(self, job_ids, without_runs)
        done = await fire(self, job_ids, _Only(Plan(runs=without_runs.runs)))
        plan = msgspec.structs.replace(without_runs.plan, runs=without_runs.runs)
        return msgspec.structs.replace(done, plan=plan)

    SqlStore.fire = in_two_steps  # type: ignore[method-assign]


class _WithoutRuns:
    """A rule's plan, but for its runs, which are kept for later."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self.plan = Plan()
        self.runs: tuple[NewRun, ...] = ()

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return self._rule.keys(jobs)

    def decide(self, facts: Facts) -> Plan:
        plan = self._rule.decide(facts)
        self.runs = plan.runs
        self.plan = msgspec.structs.replace(plan, runs=())
        return self.plan


class _Only:
    """A plan that was made before."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return ()

    def decide(self, facts: Facts) -> Plan:
        return self._plan


def node_clock() -> None:
    for kind in (dialect.PostgreSQL, dialect.MySQL):
        kind.now_us = lambda self, conn: _wall_us()  # type: ignore[method-assign]
        kind.statement_now_us = lambda self: bindparam(None, callable_=_wall_us, type_=BigInteger)  # type: ignore[method-assign]


def no_revision_check() -> None:
    cache: dict[int, Job] = {}
    look = SqlStore.upcoming

    async def remembering(self: SqlStore, *, within_s: float, limit: int) -> Upcoming:
        seen = await look(self, within_s=within_s, limit=limit)
        wanted = select(schema.job).where(self._dialect.among(schema.job.c.id, [it.job_id for it in seen.pending]))
        found = await self._db.read(lambda conn: conn.execute(wanted).all())
        cache.clear()
        cache.update({row.id: job_of(row) for row in found})
        return seen

    async def from_memory(self: SqlStore, job_ids: Sequence[int], rule: Rule) -> Committed:
        jobs = [cache[it] for it in job_ids]
        done = await self._decide(lambda conn: jobs, rule)
        cache.update({change.now.id: change.now for change in done.plan.jobs})
        return done

    def unfenced(conn: Connection, kind: Dialect, changes: Sequence[JobChange], columns: tuple[str, ...]) -> None:
        if columns is not commit_module.ADVANCE:
            fenced(conn, kind, changes, columns)
            return
        for after in (change.now for change in changes):
            values = {"next_slot_at": to_us(after.next_slot_at), "next_fire_at": to_us(after.next_fire_at)}
            conn.execute(schema.job.update().where(schema.job.c.id == after.id).values(values))

    fenced = commit_module._change
    SqlStore.upcoming = remembering  # type: ignore[method-assign]
    SqlStore.fire = from_memory  # type: ignore[method-assign]
    commit_module._change = unfenced
    for kind in (dialect.PostgreSQL, dialect.MySQL):
        kind.write = _write_what_is_new(kind.write)  # type: ignore[method-assign]


def _write_what_is_new(write: Callable[..., int]) -> Callable[..., int]:
    """Leave out rows whose key is there already, so that two nodes with the same idea do not stop each other."""

    def write_new(self: Dialect, conn: Connection, writes: Mapping[Write, Rows], topics: Sequence[str] = ()) -> int:
        inserts = {it: rows for it, rows in writes.items() if isinstance(it, Insert)}
        for (table, columns), rows in inserts.items():
            ignoring = table.insert().prefix_with("IGNORE", dialect="mysql")
            if conn.dialect.name == "postgresql":
                ignoring = postgresql.insert(table).on_conflict_do_nothing()
            conn.execute(ignoring, [dict(zip(columns or table.columns.keys(), row, strict=True)) for row in rows])
        rest = {it: rows for it, rows in writes.items() if it not in inserts}
        return write(self, conn, rest, topics) if rest or topics else 0

    return write_new


def pruned_dedup() -> None:
    """As procrastinate 3.10 does it: each process knows what it saw, one row knows it for all, until a later slot."""
    seen: dict[int, datetime] = {}
    started = _wall()

    async def all_jobs(self: SqlStore, *, within_s: float, limit: int) -> Upcoming:
        enabled = select(schema.job.c.id).where(schema.job.c.state == str(JobState.ENABLED))
        ids = await self._db.read(lambda conn: conn.scalars(enabled).all())
        return Upcoming(now=_wall(), pending=tuple(Pending(job_id=it, next_fire_at=_wall()) for it in ids))

    async def by_rows(self: SqlStore, job_ids: Sequence[int], rule: Rule) -> Committed:
        def work(tx: Transaction) -> None:
            _make_table(tx.conn)
            wanted = self._dialect.among(schema.job.c.id, job_ids)
            jobs = [job_of(row) for row in tx.conn.execute(select(schema.job).where(wanted).order_by(schema.job.c.id))]
            now = _wall()
            runs = [run for job in jobs for run in _unseen(tx.conn, job, seen.get(job.id, started), now)]
            if runs:
                commit_module.commit(tx, Plan(runs=tuple(runs)), tx.read_clock())
            seen.update({job.id: now for job in jobs})

        await self._transact(work)
        return Committed(now=_wall(), plan=Plan())

    SqlStore.upcoming = all_jobs  # type: ignore[method-assign]
    SqlStore.fire = by_rows  # type: ignore[method-assign]


def _make_table(conn: Connection) -> None:
    conn.execute(text("CREATE TABLE IF NOT EXISTS mutant_once (job_id BIGINT PRIMARY KEY, slot_at BIGINT NOT NULL)"))


def _unseen(conn: Connection, job: Job, since: datetime, now: datetime) -> Iterator[NewRun]:
    """The slots since the last look for which there is no row; the row of an earlier slot makes room for the next."""
    if job.state is not JobState.ENABLED:
        return
    line = upcoming(job.definition.schedule, max(since, job.changed_at), seed=seed_of(job.definition))
    for instant in itertools.takewhile(lambda it: it.due_at <= now, line):
        slot = {"job_id": job.id, "slot_at": to_us(instant.slot_at)}
        known = text("SELECT 1 FROM mutant_once WHERE job_id = :job_id AND slot_at = :slot_at")
        if conn.scalar(known, slot):
            continue
        conn.execute(text("DELETE FROM mutant_once WHERE job_id = :job_id"), slot)
        conn.execute(text("INSERT INTO mutant_once (job_id, slot_at) VALUES (:job_id, :slot_at)"), slot)
        yield NewRun(
            job_id=job.id,
            version=job.version,
            cause=Cause.SLOT,
            key=f"{slot['slot_at']} {os.urandom(8).hex()}",
            overlap_key=own_key(job),
            state=RunState.RUNNING,
            slot_at=instant.slot_at,
            due_at=instant.due_at,
            items=new_items(job.id, job.definition, instant.slot_at, instant.slot_at),
        )


def _wall() -> datetime:
    return datetime.now(UTC)


def _wall_us() -> int:
    return (_wall() - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant for mutant in (advance_first, node_clock, no_revision_check, pruned_dedup)
}
