"""The verbs that decide: lock, read, let a rule decide, write, all in one transaction.

Jobs are locked in id order, then overlap keys in their order; the clock and the live runs are read in later statements,
so that what was read is what the lock protects. The writes are fenced once more by what was read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, and_, func, select, true

from rota.backends.record import STREAK, streak, wanting_streaks
from rota.backends.sql import schema
from rota.backends.sql.commit import commit, versions_of
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.ground import Ground
from rota.backends.sql.held import held_ids, unheld
from rota.backends.sql.queue import STARTED, live_states
from rota.backends.sql.rows import definition_of, item_of, job_of, run_of, to_us
from rota.backends.sql.transaction import Transaction
from rota.model.job import Job, JobName, OverlapPolicy
from rota.model.plan import Committed, Crowd, Facts, LiveRun, Plan, Rule
from rota.model.run import Item, Run, RunKey
from rota.model.states import Cause, RunState

Lock = Callable[[Connection], list[Job]]
First = Callable[[], Sequence[int]]
"""Writes something before the rule is asked, when jobs and keys are locked; names the runs that it concerned."""


class Deciding(Ground):
    """Fire and change; and what follows for runs when items of theirs have ended."""

    async def fire(self, job_ids: Sequence[int], rule: Rule) -> Committed:
        def lock(conn: Connection) -> list[Job]:
            j = schema.job.c
            wanted = and_(self._dialect.among(j.id, job_ids), j.next_fire_at.is_not(None))
            jobs, left = self._readable_jobs(conn, wanted, skip=True)
            unread[:] = left
            return unheld(conn, jobs)

        unread: list[int] = []
        done = await self._decide(lock, rule, counts_all=False)
        return msgspec.structs.replace(done, unread=tuple(unread)) if unread else done

    async def change(
        self,
        names: Sequence[JobName],
        rule: Rule,
        *,
        known: Sequence[tuple[JobName, str]] = (),
        cause: Cause = Cause.MANUAL,
        waiting: bool = False,
    ) -> Committed:
        def lock(conn: Connection) -> list[Job]:
            return self._locked_jobs(conn, self._dialect.among(schema.job.c.id, self._ids_of(conn, names)))

        given = [(name, cause, key) for name, key in known]
        return await self._decide(lock, rule, known=given, waiting=waiting, heeds_holds=True)

    async def _decide(self, lock: Lock, rule: Rule, **more: Any) -> Committed:
        """Lock, read, decide, write, commit."""
        return await self._transact(lambda tx: self._decided(tx, lock, rule, **more))

    def _decided(
        self,
        tx: Transaction,
        lock: Lock,
        rule: Rule,
        *,
        run_ids: Sequence[int] = (),
        first: First | None = None,
        known: Sequence[tuple[JobName, Cause, str]] = (),
        waiting: bool = False,
        counts_all: bool = True,
        heeds_holds: bool = False,
    ) -> Committed:
        conn = tx.conn
        jobs = lock(conn)
        runs = self._runs_by_id(conn, run_ids)
        more_keys = self._waiting_keys(conn, jobs) if waiting else ()
        keys = sorted({*rule.keys(jobs), *(run.overlap_key for run in runs), *more_keys})
        self._lock_keys(conn, keys)
        crowds = self._crowds(conn, keys, jobs)
        others = self._others(conn, jobs, crowds)
        concerned = () if first is None else self._understood(first(), jobs, runs)
        now = tx.read_clock()  # before the runs are read: it also writes what was kept
        ended, items = self._with_items(conn, concerned)
        facts = Facts(
            now=now,
            jobs=tuple(jobs),
            crowds=crowds,
            others=tuple(others),
            live=self._live(conn, [job.id for job in (*jobs, *others) if counts_all or job.definition.follows_ends]),
            runs=ended,
            items=items,
            streaks={job.id: self._streak(conn, job) for job in wanting_streaks(jobs, ended, items)},
            known=self._known(conn, jobs, known),
            held=held_ids(conn, jobs) if heeds_holds else frozenset(),
        )
        plan = Plan() if first is not None and not concerned else self._planned(conn, rule, facts)
        written = () if plan.is_empty else commit(tx, plan, facts.now)
        return Committed(now=facts.now, plan=plan, runs=tuple(written or facts.known.values()))

    def _locked_jobs(self, conn: Connection, wanted: Any) -> list[Job]:
        """Raises Unreadable: who names a job must be told."""
        query = select(schema.job).where(wanted).order_by(schema.job.c.id)
        return [job_of(row) for row in self._locked_rows(conn, query)]

    def _locked_rows(self, conn: Connection, query: Select[Any], *, skip: bool = False) -> Sequence[Row[Any]]:
        """Lock rows of jobs, on every member of the database."""
        rows = conn.execute(self._dialect.locked(query, skip=skip)).all()
        self._dialect.touch(conn, [f"job:{row.id}" for row in rows])
        return rows

    def _readable_jobs(self, conn: Connection, wanted: Any, *, skip: bool = False) -> tuple[list[Job], list[int]]:
        """Those that can be read, and the ids of those that cannot."""
        query = select(schema.job).where(wanted).order_by(schema.job.c.id)
        rows = self._locked_rows(conn, query, skip=skip)
        jobs = self._readings.all(rows, job_of)
        return jobs, sorted({row.id for row in rows} - {job.id for job in jobs})

    def _understood(self, run_ids: Sequence[int], jobs: Sequence[Job], runs: Sequence[Run]) -> list[int]:
        """The runs for which this release can decide what follows. The others stay open until a node settles them
        that can read them and their jobs (`settle_runs`)."""
        job_ids = {job.id for job in jobs}
        readable = {run.id for run in runs if run.job_id in job_ids}
        return [run_id for run_id in run_ids if run_id in readable]

    def _planned(self, conn: Connection, rule: Rule, facts: Facts) -> Plan:
        """What the rule decides. A run whose end would start one that this release cannot read stays open as well: if
        it ended, nobody would be left to start the other."""
        plan = rule.decide(facts)
        started = [move.run_id for move in plan.moves if move.now is RunState.RUNNING]
        unread = self._unread(conn, started) if started else set()
        if not unread:
            return plan
        shut = {key for key, crowd in facts.crowds.items() if any(run.id in unread for run in crowd.waiting)}
        runs = tuple(run for run in facts.runs if run.overlap_key not in shut)
        kept = {run.id for run in runs}
        items = tuple(item for item in facts.items if item.run_id in kept)
        return rule.decide(msgspec.structs.replace(facts, runs=runs, items=items))

    def _unread(self, conn: Connection, run_ids: Sequence[int]) -> set[int]:
        """The runs that this release cannot start: it cannot read their version, or one of their items."""
        found = conn.execute(versions_of(self._dialect, run_ids))
        read = {row.id for row, _ in self._readings.pairs(found, definition_of)}
        return set(run_ids) - (read & self._whole(conn, run_ids)[0])

    def _with_items(self, conn: Connection, run_ids: Sequence[int]) -> tuple[tuple[Run, ...], tuple[Item, ...]]:
        """Runs with all of their items; without those of which an item cannot be read."""
        whole, read = self._whole(conn, run_ids)
        items = tuple(item for item in read if item.run_id in whole)
        return self._runs_by_id(conn, [it for it in run_ids if it in whole]), items

    def _whole(self, conn: Connection, run_ids: Sequence[int]) -> tuple[set[int], Sequence[Item]]:
        """The runs of which every item can be read, and the items that can."""
        rows = self._item_rows(conn, run_ids)
        read = self._readings.all(rows, item_of)
        whole = set(run_ids)
        if len(read) < len(rows):
            known = {item.id for item in read}
            whole -= {row.run_id for row in rows if row.id not in known}
        return whole, read

    def _owners(self, run_ids: Sequence[int]) -> Lock:
        """Lock the jobs of runs."""

        def lock(conn: Connection) -> list[Job]:
            r = schema.run.c
            owners = conn.scalars(select(r.job_id).where(self._dialect.among(r.id, run_ids)).distinct()).all()
            return self._readable_jobs(conn, self._dialect.among(schema.job.c.id, owners))[0]

        return lock

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
            self._dialect.insert_missing(conn, schema.overlap, [(key,) for key in missing])
            conn.execute(query).all()
        self._dialect.touch(conn, explicit)

    def _others(self, conn: Connection, jobs: Sequence[Job], crowds: dict[str, Crowd]) -> list[Job]:
        """Lock the other jobs whose runs may be replaced and that would then have to be armed again."""
        if not any(job.definition.overlap.policy is OverlapPolicy.REPLACE for job in jobs):
            return []
        live = {run.job_id for crowd in crowds.values() for run in (*crowd.runs, *crowd.waiting)}
        strangers = live - {job.id for job in jobs}
        wanted = self._dialect.among(schema.job.c.id, strangers)
        seen = self._readings.all(conn.execute(select(schema.job).where(wanted)), job_of) if strangers else []
        follow = [job.id for job in seen if job.definition.follows_ends]
        return self._readable_jobs(conn, self._dialect.among(schema.job.c.id, follow))[0] if follow else []

    def _waiting_keys(self, conn: Connection, jobs: Sequence[Job]) -> Sequence[str]:
        """Nobody can begin to wait for these jobs meanwhile: that needs their locks."""
        r = schema.run.c
        mine = self._dialect.among(r.job_id, [job.id for job in jobs])
        waiting = and_(mine, r.ended_at.is_(None), r.state == str(RunState.WAITING))
        return conn.scalars(select(r.overlap_key).where(waiting).distinct()).all()

    def _runs_by_id(self, conn: Connection, run_ids: Sequence[int]) -> tuple[Run, ...]:
        if not run_ids:
            return ()
        wanted = {"ids": self._dialect.listed(run_ids)}
        return tuple(self._readings.all(conn.execute(runs_by_id(self._dialect), wanted), run_of))

    def _items_of(self, conn: Connection, run_ids: Sequence[int]) -> tuple[Item, ...]:
        return tuple(self._readings.all(self._item_rows(conn, run_ids), item_of))

    def _item_rows(self, conn: Connection, run_ids: Sequence[int]) -> Sequence[Row[Any]]:
        if not run_ids:
            return ()
        i = schema.item.c
        query = live_states().where(self._dialect.among(i.run_id, run_ids)).order_by(i.run_id, i.task, i.index)
        return conn.execute(query).all()

    def _crowds(self, conn: Connection, keys: Sequence[str], jobs: Sequence[Job]) -> dict[str, Crowd]:
        if not keys:
            return {}
        r = schema.run.c
        live = and_(self._dialect.among(r.overlap_key, keys), r.ended_at.is_(None))
        counts = conn.execute(
            select(r.overlap_key, r.state, func.count().label("n")).where(live).group_by(r.overlap_key, r.state)
        ).all()
        running: Counter[str] = Counter()
        for row in counts:
            if row.state != RunState.WAITING:  # one in a state that only a newer release knows is live too
                running[row.overlap_key] += row.n
        crowds = {key: Crowd(running=running.get(key, 0)) for key in keys}
        waits = any(row.state == RunState.WAITING for row in counts)
        replaces = any(job.definition.overlap.policy is OverlapPolicy.REPLACE for job in jobs)
        return self._with_runs(conn, crowds, live) if counts and (waits or replaces) else crowds

    def _with_runs(self, conn: Connection, crowds: dict[str, Crowd], live: Any) -> dict[str, Crowd]:
        """Name the live runs too, oldest first."""
        r, i, q = schema.run.c, schema.item.c, schema.queue.c
        given = select(true()).select_from(schema.item.join(schema.queue, q.item_id == i.id))
        started = given.where(i.run_id == r.id, q.state.in_(STARTED)).exists()
        query = select(r.id, r.job_id, r.state, r.overlap_key, started.label("started"))
        named: dict[str, list[LiveRun]] = {key: [] for key in crowds}
        for row in conn.execute(query.where(live).order_by(r.created_at, r.id)):
            named[row.overlap_key].append(
                LiveRun(id=row.id, job_id=row.job_id, state=_live_state(row.state), started=bool(row.started))
            )
        return {
            key: Crowd(
                running=crowd.running,
                runs=tuple(run for run in named[key] if run.state is RunState.RUNNING),
                waiting=tuple(run for run in named[key] if run.state is RunState.WAITING),
            )
            for key, crowd in crowds.items()
        }

    def _streak(self, conn: Connection, job: Job) -> int:
        """Nobody can end a run of this job meanwhile: that needs its lock."""
        r = schema.run.c
        mine = and_(r.job_id == job.id, r.ended_at.is_not(None), r.created_at >= to_us(job.changed_at))
        query = select(r.state).where(mine, r.state.in_(STREAK)).order_by(r.ended_at.desc(), r.id.desc())
        return streak(conn.scalars(query.limit(job.definition.pause_after)))

    def _live(self, conn: Connection, job_ids: Sequence[int]) -> dict[int, int]:
        if not job_ids:
            return {}
        r = schema.run.c
        live = and_(self._dialect.among(r.job_id, job_ids), r.ended_at.is_(None))
        counts = conn.execute(select(r.job_id, func.count().label("n")).where(live).group_by(r.job_id))
        return {row.job_id: row.n for row in counts}

    def _known(
        self, conn: Connection, jobs: Sequence[Job], known: Sequence[tuple[JobName, Cause, str]]
    ) -> dict[RunKey, Run]:
        if not known:
            return {}
        r = schema.run.c
        ids = {job.definition.full_name: job.id for job in jobs}
        found: dict[RunKey, Run] = {}
        for name, cause, key in known:
            query = select(schema.run).where(r.job_id == ids.get(name, 0), r.cause == str(cause), r.key == key)
            for row in conn.execute(query):
                run = run_of(row)
                found[run.unique] = run
        return found


def _live_state(word: str) -> RunState:
    """One that does not wait counts as running, whatever a newer release calls it."""
    return RunState.WAITING if word == RunState.WAITING else RunState.RUNNING


@lru_cache
def runs_by_id(dialect: Dialect) -> Select[Any]:
    r = schema.run.c
    return select(schema.run).where(dialect.among_named(r.id, "ids")).order_by(r.id)
