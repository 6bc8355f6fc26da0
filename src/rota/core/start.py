"""Decide what happens when a person or a client asks for a run by hand, or for one that has ended to be run again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from rota.core.conclude import conclude
from rota.core.fire import new_items
from rota.core.overlap import Floor
from rota.model.job import Definition, Job, JobName, overlap_key
from rota.model.plan import Facts, NewRun, Plan
from rota.model.run import Run, RunKey
from rota.model.states import Cause, JobState, RunState
from rota.model.value import Json, Value

RERUNS_MAX = 100
"""How often one run may be run again; each of those may be, too."""


class Start(Value, frozen=True, kw_only=True):
    """Start one run of a job now, under its overlap policy. The same idempotency key starts it once."""

    name: JobName
    key: str
    params: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {_key(job, job.definition, self.params) for job in jobs}

    def decide(self, facts: Facts) -> Plan:
        job = next((job for job in facts.jobs if job.state is not JobState.DELETED), None)
        if job is None or RunKey(job.id, Cause.MANUAL, self.key) in facts.known:
            return Plan()
        return _started(facts, job, job.definition, Cause.MANUAL, self.key, self.params)


def rerun_key(source_id: int, ordinal: int) -> str:
    return f"{source_id}.{ordinal}"


class Rerun(Value, frozen=True, kw_only=True):
    """Start the run once more, with its parameters and its slot, under the job's overlap policy. The same key starts it
    once. Without a definition, the newest version of the job is what runs."""

    source: Run
    key: str
    definition: Definition | None = None

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {_key(job, self.definition or job.definition, self.source.params) for job in jobs}

    def decide(self, facts: Facts) -> Plan:
        source = self.source
        jobs = (job for job in facts.jobs if job.state is not JobState.DELETED and job.id == source.job_id)
        job = next(jobs, None)
        if job is None or RunKey(job.id, Cause.RERUN, self.key) in facts.known:
            return Plan()
        definition = self.definition or job.definition
        version = job.version if self.definition is None else source.version
        slot_at = source.last_slot_at or source.slot_at
        return _started(facts, job, definition, Cause.RERUN, self.key, source.params, version=version, slot_at=slot_at)


class Known(Value, frozen=True, kw_only=True):
    """Change nothing: only the runs that are known are asked for."""

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return ()

    def decide(self, facts: Facts) -> Plan:
        return Plan()


def _started(
    facts: Facts,
    job: Job,
    definition: Definition,
    cause: Cause,
    key: str,
    params: dict[str, Json],
    *,
    version: int | None = None,
    slot_at: datetime | None = None,
) -> Plan:
    """The plan of one run that somebody asks for; without a version it is of the newest."""
    floor = Floor(facts.crowds)
    crowd = _key(job, definition, params)
    state, reason = floor.admit(crowd, definition.overlap)
    run = NewRun(
        job_id=job.id,
        version=job.version if version is None else version,
        cause=cause,
        key=key,
        overlap_key=crowd,
        state=state,
        reason=reason,
        slot_at=slot_at,
        due_at=facts.now,
        params=params,
        items=() if state is RunState.SKIPPED else new_items(job.id, definition, facts.now, facts.now),
    )
    return conclude(facts, floor, runs=(run,))


def _key(job: Job, definition: Definition, params: dict[str, Json]) -> str:
    return overlap_key(job.id, definition, {**definition.params, **params})
