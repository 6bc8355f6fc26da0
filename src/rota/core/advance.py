"""Advance: what follows for a run when items of it have ended. A run ends when all of its items have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rota.core.conclude import conclude
from rota.core.define import pause
from rota.core.fire import own_key
from rota.core.overlap import Floor
from rota.model.job import Job
from rota.model.plan import Facts, JobChange, LiveRun, NewRun, Plan
from rota.model.run import Item, Run
from rota.model.states import ItemState, JobState, RunState
from rota.model.value import Value
from rota.model.work import OnExhausted

ENDED = frozenset({ItemState.SUCCEEDED, ItemState.FAILED, ItemState.CANCELLED, ItemState.SKIPPED})


class Advance(Value, frozen=True, kw_only=True):
    """End the runs whose items have all ended, release what waited for them, and pause the jobs that want to be paused
    when an item of theirs has used up its retries, or when so many runs have failed in a row."""

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {own_key(job) for job in jobs if wants_pause(job)}  # a pause first settles what is owed

    def decide(self, facts: Facts) -> Plan:
        floor = Floor(facts.crowds)
        by_run: dict[int, list[Item]] = {}
        for item in facts.items:
            by_run.setdefault(item.run_id, []).append(item)
        ended = {run.id: run_end(run, by_run.get(run.id, [])) for run in facts.runs if run.state.live}
        keys = set()
        for run in facts.runs:
            state = ended.get(run.id)
            if state is not None:
                live = LiveRun(id=run.id, job_id=run.job_id, state=run.state, started=False)
                floor.end(run.overlap_key, live, state)
                keys.add(run.overlap_key)
        for key in sorted(keys):
            floor.release(key)
        changes, runs = _paused(facts, floor, ended)
        return conclude(facts, floor, changes, runs)


def run_end(run: Run, items: Sequence[Item]) -> RunState | None:
    """How a run has ended, by its items; none if it goes on."""
    states = {item.state for item in items}
    if not states or not states <= ENDED:
        return None
    if ItemState.FAILED in states:
        return RunState.FAILED
    return RunState.CANCELLED if ItemState.CANCELLED in states else RunState.SUCCEEDED


def _paused(facts: Facts, floor: Floor, ended: Mapping[int, RunState | None]) -> tuple[list[JobChange], list[NewRun]]:
    changes: list[JobChange] = []
    runs: list[NewRun] = []
    failed = {run.job_id for run in facts.runs if ended.get(run.id) is RunState.FAILED}
    for job in (job for job in facts.jobs if job.id in failed and job.state is JobState.ENABLED and wants_pause(job)):
        states = [ended.get(run.id) for run in sorted(facts.runs, key=lambda it: it.id) if run.job_id == job.id]
        if (kind := _reason_to_pause(job, states, facts.streaks.get(job.id, 0))) is not None:
            change, owed = pause(job, facts, floor, kind=kind)
            changes.append(change)
            runs += owed
    return changes, runs


def _reason_to_pause(job: Job, states: Sequence[RunState | None], before: int) -> str | None:
    """Why a job with a failed run is paused, as the history says it; `before` is how many had failed in a row."""
    if _pauses_at_once(job):
        return "job.paused"
    most, row = job.definition.pause_after, before
    for state in states:
        row = row + 1 if state is RunState.FAILED else 0 if state is RunState.SUCCEEDED else row
        if most is not None and row >= most:
            return "job.paused_by_failures"
    return None


def wants_pause(job: Job) -> bool:
    return job.definition.pause_after is not None or _pauses_at_once(job)


def _pauses_at_once(job: Job) -> bool:
    return any(task.retry.on_exhausted is OnExhausted.PAUSE for task in job.definition.tasks)
