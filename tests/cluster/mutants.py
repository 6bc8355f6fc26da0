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
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import BigInteger, Connection, bindparam, select, text

from rota.core.fire import new_items, own_key
from rota.core.owed import seed_of
from rota.core.time.instants import upcoming
from rota.model import tables
from rota.model.job import Job
from rota.model.plan import Committed, Facts, JobChange, NewRun, Pending, Plan, Rule, Upcoming
from rota.model.records import job_of, to_us
from rota.model.states import Cause, JobState, RunState
from rota.model.tables import Change
from rota.storage.sql import dialect, schema
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.rows import SqlRows
from rota.storage.sql.sets import Insert, WritePart
from rota.storage.sql.store import SqlStore
from rota.transactions import plan as plan_module
from rota.transactions.decide import Decision, Ground, ReleasedRuns, decide, with_keys
from rota.transactions.fire import fire
from rota.transactions.plan import write_plan
from rota.transactions.tx import Tx


def advance_first() -> None:
    transact = SqlStore.transact

    async def in_two_steps(self: SqlStore, job_ids: Sequence[int], rule: Rule) -> Committed:
        without_runs = _WithoutRuns(rule)
        await transact(self, fire, job_ids, without_runs)
        done = await transact(self, fire, job_ids, _Only(Plan(runs=without_runs.runs)))
        plan = msgspec.structs.replace(without_runs.plan, runs=without_runs.runs)
        return msgspec.structs.replace(done, plan=plan)

    _fire_by(in_two_steps)


def _fire_by(way: Callable[[SqlStore, Sequence[int], Rule], Awaitable[Committed]]) -> None:
    """Fire in another way than by the product's transaction."""
    transact = SqlStore.transact

    async def in_its_way(self: SqlStore, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return await (way(self, *args) if work is fire else transact(self, work, *args, **kwargs))

    SqlStore.transact = in_its_way  # type: ignore[method-assign]


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
        def work(tx: Tx) -> Committed:
            ground = with_keys(tx, Ground([cache[it] for it in job_ids], [], []), rule)
            decision = decide(tx, ground, rule)
            return Committed(now=decision.facts.now, plan=decision.plan, runs=tuple(write_plan(tx, decision)))

        done = await self.transact(work)
        cache.update({change.now.id: change.now for change in done.plan.jobs})
        return done

    def unfenced(tx: Tx, changes: Sequence[JobChange], change: Change) -> None:
        if change is not plan_module._ADVANCE:
            fenced(tx, changes, change)
            return
        rows = [(it.now.id, to_us(it.now.next_slot_at), to_us(it.now.next_fire_at)) for it in changes]
        tx.rows.change(Change(tables.JOB, ("id",), ("next_slot_at", "next_fire_at")), rows)

    fenced = plan_module._change
    SqlStore.upcoming = remembering  # type: ignore[method-assign]
    _fire_by(from_memory)
    plan_module._change = unfenced
    for kind in (dialect.PostgreSQL, dialect.MySQL):
        kind.write = _write_what_is_new(kind.write)  # type: ignore[method-assign]


def _write_what_is_new(write: Callable[..., Any]) -> Callable[..., Any]:
    """Leave out rows whose key is there already, so that two nodes with the same idea do not stop each other."""

    def write_new(self: Dialect, conn: Connection, parts: Sequence[WritePart], topics: Sequence[str] = ()) -> Any:
        new = [
            it._replace(write=it.write._replace(missing=True)) if isinstance(it.write, Insert) else it for it in parts
        ]
        return write(self, conn, new, topics)

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
        def work(tx: Tx) -> None:
            assert isinstance(tx.rows, SqlRows)
            _make_table(tx.rows.conn)
            jobs = [job_of(row) for row in tx.rows.read(tables.JOB, job_ids)]
            now = _wall()
            runs = [run for job in jobs for run in _unseen(tx.rows.conn, job, seen.get(job.id, started), now)]
            if runs:
                facts = Facts(now=tx.read_clock(), jobs=(), crowds={})
                write_plan(tx, Decision(facts, Plan(runs=tuple(runs)), ReleasedRuns({}, ())))
            seen.update({job.id: now for job in jobs})

        await self.transact(work)
        return Committed(now=_wall(), plan=Plan())

    SqlStore.upcoming = all_jobs  # type: ignore[method-assign]
    _fire_by(by_rows)


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
