"""A store in memory: for users' tests and the simulator. It forgets everything when the process ends.

Every verb is one step without an await, so each transaction is atomic by nature; there is nothing to lock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import count

import msgspec

from rota.backends.record import NewIds, item_state_after, rows
from rota.model.job import Job, JobName, OverlapPolicy
from rota.model.plan import (
    Committed,
    Crowd,
    Facts,
    JobFilter,
    LiveRun,
    NewJob,
    Pending,
    Plan,
    Rule,
    RunFilter,
    RunMove,
    Upcoming,
)
from rota.model.run import Event, Item, Run, RunKey
from rota.model.states import UNSTARTED, Cause, ItemState, RunState
from rota.ports import Clock


class MemoryStore:
    """The store that lives and dies with its process."""

    def __init__(self, clock: Clock, *, actor: str) -> None:
        self._clock = clock
        self._actor = actor
        self._run_ids = count(1)
        self._row_ids = count(1)
        self._job_ids = count(1)
        self._jobs: dict[int, Job] = {}
        self._names: dict[JobName, int] = {}
        self._runs: dict[int, Run] = {}
        self._keys: dict[RunKey, int] = {}
        self._live: dict[str, dict[int, Run]] = defaultdict(dict)
        """Live runs by overlap key, oldest first."""
        self._items: dict[int, Item] = {}
        self._items_of: dict[int, list[int]] = defaultdict(list)
        self._events: list[Event] = []

    async def migrate(self) -> None:
        pass

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def now(self) -> datetime:
        return self._clock.wall()

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        now = self._clock.wall()
        due = [
            Pending(job_id=job.id, next_fire_at=job.next_fire_at)
            for job in self._jobs.values()
            if job.next_fire_at is not None and (job.next_fire_at - now).total_seconds() <= within_s
        ]
        due.sort(key=lambda it: (it.next_fire_at, it.job_id))
        return Upcoming(now=now, pending=tuple(due[:limit]))

    async def fire(self, job_ids: Sequence[int], rule: Rule) -> Committed:
        now = self._clock.wall()
        jobs = [self._jobs[it] for it in sorted(job_ids) if it in self._jobs]
        return self._decide([job for job in jobs if job.is_due(now)], rule, counts_all=False)

    async def change(
        self,
        names: Sequence[JobName],
        rule: Rule,
        *,
        known: Sequence[tuple[JobName, str]] = (),
        waiting: bool = False,
    ) -> Committed:
        keys = [RunKey(self._names[name], Cause.MANUAL, key) for name, key in known if name in self._names]
        jobs = self._named(names)
        return self._decide(jobs, rule, known=keys, more_keys=self._waiting_keys(jobs) if waiting else ())

    async def end(self, run_ids: Sequence[int], rule: Rule) -> Committed:
        runs = [self._runs[it] for it in sorted(set(run_ids)) if it in self._runs]
        jobs = [self._jobs[it] for it in sorted({run.job_id for run in runs})]
        return self._decide(jobs, rule, runs=runs)

    async def named(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        return tuple(self._named(names))

    async def jobs(self, wanted: JobFilter) -> tuple[Job, ...]:
        found = [
            job
            for job in self._jobs.values()
            if job.id > wanted.after_id
            and (wanted.ids is None or job.id in wanted.ids)
            and job.state in wanted.states
            and wanted.tenant in (None, job.definition.tenant)
            and wanted.project in (None, job.definition.project)
        ]
        return tuple(found[: wanted.limit])

    async def run(self, run_id: int) -> Run | None:
        return self._runs.get(run_id)

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        job_id = None if wanted.job is None else self._names.get(wanted.job, 0)
        newest = sorted(self._runs.values(), key=_age, reverse=True)
        last = self._runs.get(wanted.before_id) if wanted.before_id is not None else None
        found = [
            run
            for run in newest
            if (last is None or _age(run) < _age(last))
            and (not wanted.states or run.state in wanted.states)
            and job_id in (None, run.job_id)
        ]
        return tuple(found[: wanted.limit])

    async def items(self, run_id: int) -> tuple[Item, ...]:
        found = [self._items[it] for it in self._items_of[run_id]]
        return tuple(sorted(found, key=lambda item: (item.task, item.index)))

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        found = [event for event in self._events if run_id in (None, event.run_id) and job_id in (None, event.job_id)]
        return tuple(found[-limit:])

    def _named(self, names: Iterable[JobName]) -> list[Job]:
        return [self._jobs[it] for it in sorted(self._names[name] for name in set(names) if name in self._names)]

    def _waiting_keys(self, jobs: Sequence[Job]) -> set[str]:
        ids = {job.id for job in jobs}
        live = (run for crowd in self._live.values() for run in crowd.values())
        return {run.overlap_key for run in live if run.job_id in ids and run.state is RunState.WAITING}

    def _decide(
        self,
        jobs: Sequence[Job],
        rule: Rule,
        *,
        runs: Sequence[Run] = (),
        known: Sequence[RunKey] = (),
        more_keys: Iterable[str] = (),
        counts_all: bool = True,
    ) -> Committed:
        keys = {*rule.keys(jobs), *(run.overlap_key for run in runs), *more_keys}
        crowds = {key: self._crowd(key, jobs) for key in keys}
        others = self._others(jobs, crowds)
        facts = Facts(
            now=self._clock.wall(),
            jobs=tuple(jobs),
            crowds=crowds,
            others=tuple(others),
            live={
                job.id: self._live_of(job.id) for job in (*jobs, *others) if counts_all or job.definition.follows_ends
            },
            runs=tuple(runs),
            known={key: self._runs[self._keys[key]] for key in known if key in self._keys},
        )
        plan = rule.decide(facts)
        return Committed(
            now=facts.now, plan=plan, runs=tuple(self._commit(plan, facts.now)) or tuple(facts.known.values())
        )

    def _others(self, jobs: Sequence[Job], crowds: dict[str, Crowd]) -> list[Job]:
        live = {run.job_id for crowd in crowds.values() for run in (*crowd.runs, *crowd.waiting)}
        strangers = [self._jobs[it] for it in sorted(live - {job.id for job in jobs})]
        return [job for job in strangers if job.definition.follows_ends]

    def _crowd(self, key: str, jobs: Iterable[Job]) -> Crowd:
        live = self._live[key].values()
        waiting = [run for run in live if run.state is RunState.WAITING]
        replaces = any(job.definition.overlap.policy is OverlapPolicy.REPLACE for job in jobs)
        running = [run for run in live if run.state is RunState.RUNNING] if replaces else []
        return Crowd(
            running=len(live) - len(waiting),
            runs=tuple(self._live_run(run) for run in running),
            waiting=tuple(self._live_run(run) for run in waiting),
        )

    def _live_run(self, run: Run) -> LiveRun:
        items = (self._items[it] for it in self._items_of[run.id])
        started = any(item.state in (ItemState.ASSIGNED, ItemState.RUNNING) for item in items)
        return LiveRun(id=run.id, job_id=run.job_id, state=run.state, started=started)

    def _live_of(self, job_id: int) -> int:
        return sum(run.job_id == job_id for crowd in self._live.values() for run in crowd.values())

    def _put(self, run: Run) -> None:
        self._runs[run.id] = run
        if run.state.live:
            self._live[run.overlap_key][run.id] = run
        else:
            self._live[run.overlap_key].pop(run.id, None)

    def _commit(self, plan: Plan, now: datetime) -> list[Run]:
        for change in plan.jobs:
            assert self._jobs[change.was.id] == change.was, "the plan was made on other facts"
        for new_run in plan.runs:
            assert (new_run.job_id, new_run.cause, new_run.key) not in self._keys, f"{new_run.key} was fired twice"
        job_ids = [self._create(new, now) for new in plan.new_jobs]
        self._jobs.update((change.was.id, change.now) for change in plan.jobs)
        moved = [self._items[it] for move in plan.moves for it in self._items_of[move.run_id]]
        followers = [item for item in moved if item.state in UNSTARTED]
        written = rows(plan, now, self._actor, NewIds(job_ids, self._run_ids, self._row_ids), followers)
        for run in written.runs:
            self._keys[run.unique] = run.id
            self._put(run)
        for item in written.items:
            self._items[item.id] = item
            self._items_of[item.run_id].append(item.id)
        for move in plan.moves:
            self._move(move, followers, now)
        for live in plan.cancels:
            run = self._runs[live.id]
            self._put(msgspec.structs.replace(run, cancel_at=run.cancel_at or now))
        self._events += written.events
        return written.runs

    def _create(self, new: NewJob, now: datetime) -> int:
        job = Job.created(next(self._job_ids), new.definition, new.digest, new.next, now)
        self._jobs[job.id] = job
        self._names[new.definition.full_name] = job.id
        return job.id

    def _move(self, move: RunMove, followers: Sequence[Item], now: datetime) -> None:
        run = self._runs[move.run_id]
        self._put(msgspec.structs.replace(run, state=move.now, ended_at=None if move.now.live else now))
        for item in followers:
            if item.run_id == run.id:
                self._items[item.id] = msgspec.structs.replace(item, state=item_state_after(move))


def _age(run: Run) -> tuple[datetime, int]:
    return run.created_at, run.id
