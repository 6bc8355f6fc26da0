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
from rota.model.job import HAND, Definition, Job, JobName
from rota.model.plan import Facts, JobChange, NewJob, NewRun, Plan
from rota.model.states import JobState, RunState, SkipReason
from rota.model.trigger import Instant
from rota.model.value import Value, digest

_Changer = Callable[[Job, Facts, Floor], tuple[JobChange, list[NewRun]]]


class _Change(Value, frozen=True, kw_only=True):
    """What the rules of this module share: they look at the own keys of the jobs they lock."""

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        return {own_key(job) for job in jobs}


class Sources(Value, frozen=True, kw_only=True):
    """Who defines the jobs that are applied, and what that allows: a job has one source."""

    by_name: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """By full name, the source of a definition. Those that are not named here have none."""
    covered: frozenset[str] = frozenset()
    """The sources that were read whole: what one of them does not define any more may have moved to another."""
    take_over: bool = False
    """Whether jobs of other sources may be taken over."""
    by_hand: bool = True
    """Whether a person asks: then also what was deleted is made again."""

    def of(self, name: JobName) -> str:
        return self.by_name.get("/".join(name), "")

    def refusal(self, job: Job) -> str | None:
        """Why a stored job is not for this source to define; none if it is."""
        source = self.of(job.definition.full_name)
        if job.state is JobState.DELETED:
            if job.source != HAND or self.by_hand:
                return None
            return f"was deleted by hand, and {source or 'something'} still defines it; it is not made again by itself"
        if not source or job.source in ("", source, *self.covered) or self.take_over:
            return None
        return f"belongs to {job.source}, and {source} defines it too"


class Apply(_Change, frozen=True, kw_only=True):
    """Store definitions: create what is new, change what differs by digest, leave the rest alone."""

    definitions: tuple[Definition, ...]
    sources: Sources = Sources()
    digests: tuple[str, ...] = ()
    """Reckoned when the rule is made, so that no lock is held meanwhile."""

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "digests", tuple(map(digest, self.definitions)))

    def decide(self, facts: Facts) -> Plan:
        floor = Floor(facts.crowds)
        stored = {job.definition.full_name: job for job in facts.jobs}
        new = tuple(
            NewJob(
                definition=wanted,
                digest=known,
                next=first_instant(wanted, facts.now),
                source=self.sources.of(wanted.full_name),
            )
            for wanted, known in zip(self.definitions, self.digests, strict=True)
            if wanted.full_name not in stored
        )
        changes, runs = [], []
        for wanted, known in zip(self.definitions, self.digests, strict=True):
            job = stored.get(wanted.full_name)
            if job is None or self.sources.refusal(job) is not None:
                continue
            before = "" if job.state is JobState.DELETED else job.source
            source = self.sources.of(wanted.full_name) or before
            if not _is_same(job, known):
                change, owed = _redefine(job, wanted, known, facts, floor, source)
                changes.append(change)
                runs += owed
            elif job.source != source:
                changes.append(_adopt(job, source))
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
    may be used again: by anyone if its source gave it up, otherwise only when somebody asks for it."""

    source: str = HAND

    def decide(self, facts: Facts) -> Plan:
        floor = Floor(facts.crowds)
        changes, runs = [], []
        for job in facts.jobs:
            if job.state is JobState.DELETED:
                continue
            after, owed = _settled(job, facts, floor)
            runs += [_withdrawn(run) for run in owed]
            after = msgspec.structs.replace(after, source=self.source)
            changes.append(_revise(job, after, facts.now, "job.deleted", state=JobState.DELETED, next_=None))
        deleted = {change.was.id for change in changes}
        for key, crowd in facts.crowds.items():
            for job_id in deleted & {run.job_id for run in crowd.waiting}:
                floor.withdraw(key, job_id)
        return conclude(facts, floor, changes, runs)


def compare(
    stored: Mapping[JobName, Job], definitions: Iterable[Definition], sources: Sources
) -> list[tuple[JobName, str]]:
    """Say for each definition what apply would do: create, change, adopt (note its source), nothing or refuse."""

    def action(wanted: Definition) -> str:
        job = stored.get(wanted.full_name)
        if job is None:
            return "create"
        if sources.refusal(job) is not None:
            return "refuse"
        if job.state is JobState.DELETED:
            return "create"
        if not _is_same(job, digest(wanted)):
            return "change"
        return "nothing" if sources.of(wanted.full_name) in ("", job.source) else "adopt"

    return [(wanted.full_name, action(wanted)) for wanted in definitions]


def _settled(job: Job, facts: Facts, floor: Floor) -> tuple[Job, list[NewRun]]:
    """What a job owes; nothing while it is held: a changed definition that has the pending slot too owes it later."""
    return (job, []) if job.id in facts.held else settle(job, facts.now, floor)


def _is_same(job: Job, known: str) -> bool:
    return job.state is not JobState.DELETED and job.digest == known


def _adopt(job: Job, source: str) -> JobChange:
    """Note who defines a job. Nothing else about it changes: not what is due, nor since when it is as it is."""
    return JobChange(
        was=job, now=msgspec.structs.replace(job, source=source, revision=job.revision + 1), kind="job.adopted"
    )


def _redefine(
    job: Job, wanted: Definition, known: str, facts: Facts, floor: Floor, source: str
) -> tuple[JobChange, list[NewRun]]:
    after, owed = _settled(job, facts, floor)
    paused = job.state is JobState.PAUSED
    first = None if paused else kept_slot(after.pending, wanted, facts.now) or _first(wanted, after, facts.now)
    after = msgspec.structs.replace(after, definition=wanted, digest=known, version=job.version + 1, source=source)
    kind = "job.created" if job.state is JobState.DELETED else "job.changed"
    state = JobState.PAUSED if paused else JobState.ENABLED
    return _revise(job, after, facts.now, kind, state=state, next_=first), owed


def _first(definition: Definition, job: Job, now: datetime) -> Instant | None:
    """When a trigger follows ends, a live run may bring one: the conclusion of the decision knows."""
    return None if definition.follows_ends else first_instant(definition, now, job.settled_at)


def pause(job: Job, facts: Facts, floor: Floor, *, kind: str = "job.paused") -> tuple[JobChange, list[NewRun]]:
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
