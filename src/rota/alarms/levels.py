"""Watch levels: which nodes are disconnected, which jobs have no owner, which fail. What begins is an alarm, and so is
its end."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from rota.alarms.rules import asked_for, levels
from rota.alarms.words import job_of, node_alarms, recovered, unowned_alarm
from rota.errors import CoordinatorError
from rota.loops.placer.cluster_view import ClusterView
from rota.model.alarm import Alarm, AlarmKind, AlarmRule
from rota.model.plan import JobFilter, RunFilter
from rota.model.states import JobState, RunState
from rota.ports import Clock, Store
from rota.transactions.alarms import raise_alarms

LOOK_S = 5.0
UNOWNED_S = 5.0
"""A job that has had no owner for a session and so long is one too many."""
OPEN_MAX = 10_000
TOLD_MAX = 1000
"""How many jobs without an owner are told one by one: all of them have one cause."""
PRESENT = (JobState.ENABLED, JobState.PAUSED)
FAILING_MAX = 100
"""Of how many failing jobs at a time it is looked up whether they work again."""


class LevelWatcher:
    """Compares the levels that are open in the store with what is the case; raises new ones and ends old ones."""

    def __init__(self, store: Store, clock: Clock, view: ClusterView | None, *, session_s: float) -> None:
        self._store = store
        self._clock = clock
        self._view = view
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
        if self._view is not None and asked_for(rules, AlarmKind.UNOWNED_JOB):
            with suppress(CoordinatorError):  # who cannot ask tells of that instead
                unowned, owned = await self._jobs(self._view, open_)
                present, over = present + unowned, over + owned
        over += await self._working_again(open_)
        changed = levels(open_, present, over)
        if changed.begun or changed.ended:
            await self._store.transact(raise_alarms, changed.begun, changed.ended)

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

    async def _jobs(self, view: ClusterView, open_: Sequence[Alarm]) -> tuple[list[Alarm], list[str]]:
        """Jobs without an owner for too long, and the keys of those that have one again, or need none."""
        jobs = await view.jobs()
        waits = view.unowned_s(jobs - await view.owned())
        now = await self._store.now()
        found = [(job_id, wait_s) for job_id, wait_s in sorted(waits.items()) if wait_s > self._patience_s]
        alarms = [unowned_alarm(it, now - timedelta(seconds=wait_s), wait_s) for it, wait_s in found[:TOLD_MAX]]
        ours = [it for it in open_ if it.kind is AlarmKind.UNOWNED_JOB and it.job_id not in waits]
        return alarms, [it.key for it in ours]
