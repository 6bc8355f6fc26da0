"""Look out: which nodes are disconnected and which jobs have no owner; what begins is an alarm, and so is its end.

Also the clerk, who looks up whom an alarm concerns that another transaction has raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from rota.core.alarm import asked_for, levels
from rota.core.alarm_words import Known as Read
from rota.core.alarm_words import described, exhausted, failing, job_of, node_alarms, recovered, unowned_alarm
from rota.errors import CoordinatorError
from rota.loops.placement.known import Known
from rota.model.alarm import Alarm, AlarmKind, AlarmRule
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Run
from rota.model.states import ItemState, JobState, RunState
from rota.ports import Clock, Store

LOOK_S = 5.0
UNOWNED_S = 5.0
"""A job that has had no owner for a session and so long is one too many."""
OPEN_MAX = 10_000
TOLD_MAX = 1000
"""How many jobs without an owner are told one by one: all of them have one cause."""
PRESENT = (JobState.ENABLED, JobState.PAUSED)
FAILING_MAX = 100
"""Of how many failing jobs at a time it is looked up whether they work again."""
DETAILS_MAX = 10
"""Of how many failed runs in one batch it is said why."""


class Lookout:
    """Compares what is the case with the levels that are open, now and then."""

    def __init__(self, store: Store, clock: Clock, known: Known | None, *, session_s: float) -> None:
        self._store = store
        self._clock = clock
        self._known = known
        self._patience_s = session_s + UNOWNED_S
        self._next_s = 0.0
        self._first = 0

    async def look(self, rules: Sequence[AlarmRule]) -> None:
        """Raise what has begun, end what is over."""
        if self._clock.monotonic() < self._next_s:
            return
        self._next_s = self._clock.monotonic() + LOOK_S
        open_ = await self._store.alarms(open_=True, limit=OPEN_MAX)
        present: list[Alarm] = []
        over: list[str] = []
        if asked_for(rules, AlarmKind.NODE_DISCONNECTED):
            present, over = node_alarms((await self._store.nodes(gone=True)).nodes)
        if self._known is not None and asked_for(rules, AlarmKind.UNOWNED_JOB):
            with suppress(CoordinatorError):  # who cannot ask tells of that instead
                unowned, owned = await self._jobs(self._known, open_)
                present, over = present + unowned, over + owned
        over += await self._working_again(open_)
        changed = levels(open_, present, over)
        await self._store.raise_alarms(changed.begun, changed.ended)

    async def _working_again(self, open_: Sequence[Alarm]) -> list[str]:
        """The keys of jobs that were failing and work again, or are there no more; of many, some at a time."""
        failing = [it for it in open_ if it.kind is AlarmKind.JOB_FAILING]
        first = self._first if self._first < len(failing) else 0
        self._first = first + FAILING_MAX
        some = failing[first : first + FAILING_MAX]
        ids = tuple(it.job_id for it in some if it.job_id is not None)
        there = (
            {job.id for job in await self._store.jobs(JobFilter(ids=ids, states=PRESENT, limit=len(ids)))}
            if ids
            else set()
        )
        found = [it.key for it in some if it.job_id not in there]
        for level in (it for it in some if it.job_id in there):
            wanted = RunFilter(job=job_of(level.scope or ""), states=(RunState.SUCCEEDED, RunState.FAILED), limit=1)
            last = await self._store.runs(wanted)
            found += [level.key] if recovered(level, last[0] if last else None) else []
        return found

    async def _jobs(self, known: Known, open_: Sequence[Alarm]) -> tuple[list[Alarm], list[str]]:
        """Jobs without an owner for too long, and the keys of those that have one again, or need none."""
        jobs = await known.jobs()
        waits = known.unowned_s(jobs - await known.owned())
        now = await self._store.now()
        found = [(job_id, wait_s) for job_id, wait_s in sorted(waits.items()) if wait_s > self._patience_s]
        alarms = [unowned_alarm(it, now - timedelta(seconds=wait_s), wait_s) for it, wait_s in found[:TOLD_MAX]]
        ours = [it for it in open_ if it.kind is AlarmKind.UNOWNED_JOB and it.job_id not in waits]
        return alarms, [it.key for it in ours]


class Clerk:
    """Finds out whom alarms concern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def described(self, alarms: Sequence[Alarm]) -> list[Alarm]:
        """The same alarms with their scopes and words, and those that follow from them (these have no id yet)."""
        vague = [it for it in alarms if it.scope is None]
        if not vague:
            return list(alarms)
        read = await self._read(vague)
        told = [described(it, read) for it in vague]
        more = [found for it in told for found in (exhausted(it, read), failing(it)) if found is not None]
        return [*(described(it, read) for it in alarms), *more]

    async def _read(self, alarms: Sequence[Alarm]) -> Read:
        runs = await self._store.runs_of(sorted({it.run_id for it in alarms if it.run_id is not None}))
        job_ids = tuple(sorted({it.job_id for it in alarms if it.job_id}))
        wanted = JobFilter(ids=job_ids, states=tuple(JobState), limit=max(len(job_ids), 1))
        failed = [run for run in runs if any(it.run_id == run.id and it.kind is AlarmKind.RUN_FAILED for it in alarms)]
        versions = sorted({(run.job_id, run.version) for run in failed if run.job_id})
        return Read(
            jobs={job.id: job for job in await self._store.jobs(wanted)} if job_ids else {},
            runs={run.id: run for run in runs},
            definitions=await self._store.definitions(versions) if versions else {},
            messages={run.id: await self._why(run) for run in failed[:DETAILS_MAX]},
        )

    async def _why(self, run: Run) -> str:
        """What the first item that failed has said."""
        items = await self._store.items(run.id)
        return next((it.message for it in items if it.state is ItemState.FAILED and it.message), "")
