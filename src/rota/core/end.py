"""Decide what the end of runs sets free: the longest waiting run of the same overlap key, and the next instant of a
job whose trigger follows ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.core.conclude import conclude
from rota.core.overlap import Floor
from rota.model.job import Job
from rota.model.plan import Facts, LiveRun, Plan
from rota.model.states import RunState
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
        for key in sorted({run.overlap_key for run in ended}):
            floor.release(key)
        return conclude(facts, floor)
