"""Bring a decision to its end: what follows from it for runs and jobs that it did not set out to change.

A run of the same plan that a later one replaced is recorded as skipped. A job whose trigger follows ends, and that is
left without a live run and without an instant, is armed: now counts as an end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from rota.core.overlap import Floor
from rota.core.owed import instant_after_end
from rota.model.plan import Facts, JobChange, NewJob, NewRun, Plan
from rota.model.states import JobState, RunState, SkipReason


def conclude(
    facts: Facts,
    floor: Floor,
    changes: Iterable[JobChange] = (),
    runs: Iterable[NewRun] = (),
    new_jobs: Iterable[NewJob] = (),
) -> Plan:
    lasting = _without_replaced(runs, floor)
    return Plan(
        new_jobs=tuple(new_jobs),
        jobs=_armed(facts, floor, changes, lasting),
        runs=lasting,
        moves=tuple(floor.moves),
        cancels=tuple(floor.cancels),
    )


def _without_replaced(runs: Iterable[NewRun], floor: Floor) -> tuple[NewRun, ...]:
    if not floor.replaced:
        return tuple(runs)
    replaced = Counter(floor.replaced)
    lasting = []
    for run in runs:
        if run.state.live and replaced[run.overlap_key] > 0:
            replaced[run.overlap_key] -= 1
            run = msgspec.structs.replace(run, state=RunState.SKIPPED, reason=SkipReason.OVERLAP, items=())
        lasting.append(run)
    return tuple(lasting)


def _armed(facts: Facts, floor: Floor, changes: Iterable[JobChange], runs: Sequence[NewRun]) -> tuple[JobChange, ...]:
    ended = Counter(move.job_id for move in floor.moves if not move.now.live)
    begun = Counter(run.job_id for run in runs if run.state.live)
    by_id = {change.was.id: change for change in changes}
    for job in (*facts.jobs, *facts.others):
        change = by_id.get(job.id)
        after = job if change is None else change.now
        if not after.definition.follows_ends or after.state is not JobState.ENABLED or after.next_fire_at is not None:
            continue
        if facts.live.get(job.id, 0) - ended[job.id] + begun[job.id] == 0:
            following = instant_after_end(after.definition, facts.now, after.settled_at)
            if following is not None:
                kind = None if change is None else change.kind
                by_id[job.id] = JobChange(was=job, now=after.armed(following), kind=kind)
    return tuple(by_id.values())
