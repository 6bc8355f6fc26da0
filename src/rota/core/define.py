"""Decide what apply, pause, resume and delete do to jobs.

Each first settles what the old revision owes, then makes a new revision whose first instant lies after now. Asking
twice changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from rota.core.conclude import conclude
from rota.core.fire import own_key, settle
from rota.core.overlap import Floor
from rota.core.owed import first_instant, kept_slot
from rota.model.job import Definition, Job, JobName
from rota.model.plan import Facts, JobChange, NewJob, NewRun, Plan
from rota.model.states import JobState, RunState, SkipReason
from rota.model.trigger import Instant
from rota.model.value import Value, digest

_Changer = Callable[[Job, Facts, Floor], tuple[JobChange, list[NewRun]]]


class _Change(Value, frozen=True, kw_only=True):
    """What the rules of this module share: they look at the own keys of the jobs they lock."""

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {own_key(job) for job in jobs}


class Apply(_Change, frozen=True, kw_only=True):
    """Store definitions: create what is new, change what differs by digest, leave the rest alone."""

    definitions: tuple[Definition, ...]
    digests: tuple[str, ...] = ()
    """Reckoned when the rule is made, so that no lock is held meanwhile."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "digests", tuple(map(digest, self.definitions)))

    def decide(self, facts: Facts) -> Plan:
        floor = Floor(facts.crowds)
        stored = {job.definition.full_name: job for job in facts.jobs}
        new = tuple(
            NewJob(definition=wanted, digest=known, next=first_instant(wanted, facts.now))
            for wanted, known in zip(self.definitions, self.digests, strict=True)
            if wanted.full_name not in stored
        )
        changes, runs = [], []
        for wanted, known in zip(self.definitions, self.digests, strict=True):
            job = stored.get(wanted.full_name)
            if job is not None and not _is_same(job, known):
                change, owed = _redefine(job, wanted, known, facts, floor)
                changes.append(change)
                runs += owed
        return conclude(facts, floor, changes, runs, new)


class Pause(_Change, frozen=True, kw_only=True):
    """Fire nothing any more until resumed. While paused nothing is owed."""

    def decide(self, facts: Facts) -> Plan:
        return _each(facts, JobState.ENABLED, pause)


class Resume(_Change, frozen=True, kw_only=True):
    """Fire again, from the first instant after now."""

    def decide(self, facts: Facts) -> Plan:
        return _each(facts, JobState.PAUSED, _resume)


class Delete(_Change, frozen=True, kw_only=True):
    """Forget a job: nothing more is due, what waits is cancelled, what runs goes on. Its history stays, and its name
    may be used again."""

    def decide(self, facts: Facts) -> Plan:
        floor = Floor(facts.crowds)
        changes, runs = [], []
        for job in facts.jobs:
            if job.state is JobState.DELETED:
                continue
            after, owed = _settled(job, facts, floor)
            runs += [_withdrawn(run) for run in owed]
            changes.append(_revise(job, after, facts.now, "job.deleted", state=JobState.DELETED, next_=None))
        deleted = {change.was.id for change in changes}
        for key, crowd in facts.crowds.items():
            for job_id in deleted & {run.job_id for run in crowd.waiting}:
                floor.withdraw(key, job_id)
        return conclude(facts, floor, changes, runs)


def compare(stored: Mapping[JobName, Job], definitions: Iterable[Definition]) -> list[tuple[JobName, str]]:
    """Say for each definition what apply would do: create, change or nothing."""

    def action(wanted: Definition) -> str:
        job = stored.get(wanted.full_name)
        if job is None or job.state is JobState.DELETED:
            return "create"
        return "nothing" if _is_same(job, digest(wanted)) else "change"

    return [(wanted.full_name, action(wanted)) for wanted in definitions]


def _settled(job: Job, facts: Facts, floor: Floor) -> tuple[Job, list[NewRun]]:
    """What a job owes; nothing while it is held: a changed definition that has the pending slot too owes it later."""
    return (job, []) if job.id in facts.held else settle(job, facts.now, floor)


def _is_same(job: Job, known: str) -> bool:
    return job.state is not JobState.DELETED and job.digest == known


def _redefine(job: Job, wanted: Definition, known: str, facts: Facts, floor: Floor) -> tuple[JobChange, list[NewRun]]:
    after, owed = _settled(job, facts, floor)
    paused = job.state is JobState.PAUSED
    first = None if paused else kept_slot(after.pending, wanted, facts.now) or _first(wanted, after, facts.now)
    after = msgspec.structs.replace(after, definition=wanted, digest=known, version=job.version + 1)
    kind = "job.created" if job.state is JobState.DELETED else "job.changed"
    state = JobState.PAUSED if paused else JobState.ENABLED
    return _revise(job, after, facts.now, kind, state=state, next_=first), owed


def _first(definition: Definition, job: Job, now: datetime) -> Instant | None:
    """When a trigger follows ends, a live run may bring one: the conclusion of the decision knows."""
    return None if definition.follows_ends else first_instant(definition, now, job.settled_at)


def pause(job: Job, facts: Facts, floor: Floor, *, kind: str = "job.paused") -> tuple[JobChange, list[NewRun]]:
    """Pause an enabled job, after settling what it owes."""
    after, owed = _settled(job, facts, floor)
    return _revise(job, after, facts.now, kind, state=JobState.PAUSED, next_=None), owed


def _resume(job: Job, facts: Facts, floor: Floor) -> tuple[JobChange, list[NewRun]]:
    first = _first(job.definition, job, facts.now)
    return _revise(job, job, facts.now, "job.resumed", state=JobState.ENABLED, next_=first), []


def _withdrawn(run: NewRun) -> NewRun:
    """A run that would have to wait is not wanted any more when its job is deleted."""
    if run.state is not RunState.WAITING:
        return run
    return msgspec.structs.replace(run, state=RunState.SKIPPED, reason=SkipReason.OVERLAP, items=())


def _each(facts: Facts, state: JobState, change: _Changer) -> Plan:
    floor = Floor(facts.crowds)
    done = [change(job, facts, floor) for job in facts.jobs if job.state is state]
    return conclude(facts, floor, [it for it, _ in done], [run for _, owed in done for run in owed])


def _revise(was: Job, after: Job, now: datetime, kind: str, *, state: JobState, next_: Instant | None) -> JobChange:
    revised = msgspec.structs.replace(after.armed(next_), state=state, revision=was.revision + 1, changed_at=now)
    return JobChange(was=was, now=revised, kind=kind)
