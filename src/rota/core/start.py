"""Decide what happens when a person or a client asks for a run by hand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.core.conclude import conclude
from rota.core.fire import new_items
from rota.core.overlap import Floor
from rota.model.job import Job, JobName, overlap_key
from rota.model.plan import Facts, NewRun, Plan
from rota.model.run import RunKey
from rota.model.states import Cause, JobState, RunState
from rota.model.value import Json, Value


class Start(Value, frozen=True, kw_only=True):
    """Start one run of a job now, under its overlap policy. The same idempotency key starts it once."""

    name: JobName
    key: str
    params: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {self._overlap_key(job) for job in jobs}

    def decide(self, facts: Facts) -> Plan:
        jobs = [job for job in facts.jobs if job.state is not JobState.DELETED]
        if not jobs or RunKey(jobs[0].id, Cause.MANUAL, self.key) in facts.known:
            return Plan()
        job = jobs[0]
        floor = Floor(facts.crowds)
        state, reason = floor.admit(self._overlap_key(job), job.definition.overlap)
        items = () if state is RunState.SKIPPED else new_items(job.id, job.definition, facts.now, facts.now)
        run = NewRun(
            job_id=job.id,
            version=job.version,
            cause=Cause.MANUAL,
            key=self.key,
            overlap_key=self._overlap_key(job),
            state=state,
            reason=reason,
            due_at=facts.now,
            params=self.params,
            items=items,
        )
        return conclude(facts, floor, runs=(run,))

    def _overlap_key(self, job: Job) -> str:
        return overlap_key(job.id, job.definition, {**job.definition.params, **self.params})
