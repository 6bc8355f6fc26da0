"""The verbs that only read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from rota.backends.memory.deciding import Deciding
from rota.backends.record import ended_state
from rota.model.job import Definition, Job, JobName
from rota.model.plan import JobFilter, Pending, RunFilter, Upcoming
from rota.model.run import Event, Item, Loads, Run
from rota.model.work import AttemptRecord, Queued


class Reading(Deciding):
    """Jobs, runs, items, attempts, history."""

    async def now(self) -> datetime:
        return self._clock.wall()

    async def probe(self) -> None: ...

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        now = self._clock.wall()
        due = [
            Pending(job_id=job.id, next_fire_at=job.next_fire_at)
            for job in self._jobs.values()
            if job.next_fire_at is not None
            and (job.next_fire_at - now).total_seconds() <= within_s
            and not self._is_held(job)
        ]
        due.sort(key=lambda it: (it.next_fire_at, it.job_id))
        return Upcoming(now=now, pending=tuple(due[:limit]), placed=self._placed_revision)

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

    async def definitions(self, versions: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], Definition]:
        return {it: self._versions[it] for it in versions if it in self._versions}

    async def run(self, run_id: int) -> Run | None:
        return self._derived(self._runs[run_id]) if run_id in self._runs else None

    async def runs_of(self, run_ids: Sequence[int]) -> Sequence[Run]:
        return [self._derived(self._runs[it]) for it in run_ids if it in self._runs]

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        job_id = None if wanted.job is None else self._names.get(wanted.job, -1)
        newest = sorted((self._derived(run) for run in self._runs.values()), key=_age, reverse=True)
        last = self._runs.get(wanted.before_id) if wanted.before_id is not None else None
        found = [
            run
            for run in newest
            if (last is None or _age(run) < _age(last))
            and (not wanted.states or run.state in wanted.states)
            and job_id in (None, run.job_id)
        ]
        return tuple(found[: wanted.limit])

    async def live_runs(self, tenant: str, *, after_id: int = 0, limit: int = 1000) -> tuple[int, ...]:
        mine = (self._derived(run) for run in self._runs.values() if self._tenant_of(run) == tenant)
        return tuple(sorted(run.id for run in mine if run.state.live and run.id > after_id)[:limit])

    async def items(self, run_id: int) -> tuple[Item, ...]:
        return tuple(self._shown_of([run_id]))

    async def loads(self, item_ids: Sequence[int], run_ids: Sequence[int] = ()) -> Loads:
        items = [self._shown(self._items[it]) for it in item_ids if it in self._items]
        return Loads(items, [self._runs[it] for it in run_ids if it in self._runs])

    async def queued(
        self,
        *,
        item_ids: Sequence[int] | None = None,
        node_id: int | None = None,
        expired: bool = False,
        limit: int = 1000,
    ) -> tuple[Queued, ...]:
        now = self._clock.wall()
        found = [
            it
            for it in sorted(self._queue.values(), key=lambda it: it.item_id)
            if (item_ids is None or it.item_id in item_ids)
            and node_id in (None, it.node_id)
            and not (expired and (it.node_id is not None or it.expires_at is None or it.expires_at > now))
        ]
        return tuple(found[:limit])

    async def asked_to_cancel(self, item_ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(it for it in item_ids if it in self._queue and self._queue[it].cancel_at is not None)

    async def attempts(self, run_id: int) -> tuple[AttemptRecord, ...]:
        found = [line for it in self._items_of.get(run_id, ()) for line in self._attempts[it]]
        return tuple(sorted(found, key=lambda line: (line.ended_at, line.item_id, line.attempt)))

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        found = [event for event in self._events if run_id in (None, event.run_id) and job_id in (None, event.job_id)]
        return tuple(found[-limit:])

    async def generation(self) -> int:
        return self._generation

    def _derived(self, run: Run) -> Run:
        """The run of an assignment that nobody has closed, as its items say."""
        if run.job_id or run.ended_at is not None:
            return run
        items = [self._items[it] for it in self._items_of.get(run.id, ())]
        ends = [item.ended_at for item in items if item.ended_at is not None]
        if not items or len(ends) < len(items):
            return run
        state = ended_state({str(item.state) for item in items})
        return msgspec.structs.replace(run, state=state, ended_at=max(ends))

    def _tenant_of(self, run: Run) -> str:
        return self._jobs[run.job_id].definition.tenant if run.work is None else run.work.tenant


def _age(run: Run) -> tuple[datetime, int]:
    return run.created_at, run.id
