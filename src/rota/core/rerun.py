"""Decide what happens when a person asks for a run that has ended to be run again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.conclude import conclude
from rota.core.fire import new_items
from rota.core.overlap import Floor
from rota.model.job import Definition, Job, overlap_key
from rota.model.plan import Facts, NewRun, Plan
from rota.model.run import Run, RunKey
from rota.model.states import Cause, JobState, RunState
from rota.model.value import Value

RERUNS_MAX = 100
"""How often one run may be run again; each of those may be, too."""


def rerun_key(source_id: int, ordinal: int) -> str:
    return f"{source_id}.{ordinal}"


class Rerun(Value, frozen=True, kw_only=True):
    """Start the run once more, with its parameters and its slot, under the job's overlap policy. The same key starts it
    once. Without a definition, the newest version of the job is what runs."""

    source: Run
    key: str
    definition: Definition | None = None

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {self._overlap_key(job) for job in jobs}

    def decide(self, facts: Facts) -> Plan:
        jobs = [job for job in facts.jobs if job.state is not JobState.DELETED and job.id == self.source.job_id]
        if not jobs or RunKey(jobs[0].id, Cause.RERUN, self.key) in facts.known:
            return Plan()
        job = jobs[0]
        definition = self.definition or job.definition
        floor = Floor(facts.crowds)
        state, reason = floor.admit(self._overlap_key(job), definition.overlap)
        items = () if state is RunState.SKIPPED else new_items(job.id, definition, facts.now, facts.now)
        run = NewRun(
            job_id=job.id,
            version=job.version if self.definition is None else self.source.version,
            cause=Cause.RERUN,
            key=self.key,
            overlap_key=self._overlap_key(job),
            state=state,
            reason=reason,
            slot_at=self.source.last_slot_at or self.source.slot_at,
            due_at=facts.now,
            params=self.source.params,
            items=items,
        )
        return conclude(facts, floor, runs=(run,))

    def _overlap_key(self, job: Job) -> str:
        definition = self.definition or job.definition
        return overlap_key(job.id, definition, {**definition.params, **self.source.params})


class Known(Value, frozen=True, kw_only=True):
    """Change nothing: only the runs that are known are asked for."""

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return ()

    def decide(self, facts: Facts) -> Plan:
        return Plan()
