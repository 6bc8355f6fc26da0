"""Decide what the end of runs sets free: the longest waiting run of the same overlap key, and the next instant of a
job whose trigger follows ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.core.fire import arm_after_end
from rota.core.overlap import Floor
from rota.model.job import Job
from rota.model.plan import Facts, JobChange, LiveRun, Plan
from rota.model.run import Run
from rota.model.states import JobState, RunState
from rota.model.value import Value


class End(Value, frozen=True, kw_only=True):
    """End live runs, each in the given state. A run that has ended already stays as it is."""

    states: Mapping[int, RunState]

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return ()

    def decide(self, facts: Facts) -> Plan:
        floor = Floor(facts.crowds)
        ended = [run for run in facts.runs if run.state.live]
        for run in ended:
            live = LiveRun(id=run.id, job_id=run.job_id, state=run.state, started=False)
            floor.end(run.overlap_key, live, self.states[run.id])
        return Plan(jobs=tuple(_rearmed(facts, ended)), moves=tuple(floor.moves))


def _rearmed(facts: Facts, ended: Sequence[Run]) -> Iterable[JobChange]:
    for job in facts.jobs:
        gone = sum(run.job_id == job.id for run in ended)
        waits = job.definition.follows_ends and job.state is JobState.ENABLED and job.next_fire_at is None
        if gone and waits and facts.live.get(job.id, 0) == gone:
            yield JobChange(was=job, now=arm_after_end(job, facts.now))
