"""Describe alarms: look up whom an alarm concerns that another transaction has raised, and what follows from it."""

from __future__ import annotations

from collections.abc import Sequence

from rota.alarms.words import AlarmFacts, described, exhausted, failing
from rota.model.alarm import Alarm, AlarmKind
from rota.model.plan import JobFilter
from rota.model.run import Run
from rota.model.states import ItemState, JobState
from rota.ports import Store

DETAILS_MAX = 10
"""Of how many failed runs in one batch it is said why."""


class AlarmDescriber:
    """Reads what alarms are about, and gives them their scopes and words."""

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

    async def _read(self, alarms: Sequence[Alarm]) -> AlarmFacts:
        runs = await self._store.runs_of(sorted({it.run_id for it in alarms if it.run_id is not None}))
        job_ids = tuple(sorted({it.job_id for it in alarms if it.job_id}))
        wanted = JobFilter(ids=job_ids, states=tuple(JobState), limit=max(len(job_ids), 1))
        failed = [run for run in runs if any(it.run_id == run.id and it.kind is AlarmKind.RUN_FAILED for it in alarms)]
        versions = sorted({(run.job_id, run.version) for run in failed if run.job_id})
        return AlarmFacts(
            jobs={job.id: job for job in await self._store.jobs(wanted)} if job_ids else {},
            runs={run.id: run for run in runs},
            definitions=await self._store.definitions(versions) if versions else {},
            messages={run.id: await self._why(run) for run in failed[:DETAILS_MAX]},
        )

    async def _why(self, run: Run) -> str:
        """What the first item that failed has said."""
        items = await self._store.items(run.id)
        return next((it.message for it in items if it.state is ItemState.FAILED and it.message), "")
