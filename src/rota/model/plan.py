"""The two values that meet in a deciding transaction: the facts that were read under lock, and the plan to commit.

A rule of `core/` is the pure function between them. A plan is written whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from rota.model.job import Definition, Job, JobName
from rota.model.run import Item, Run, RunKey, RunOrigin
from rota.model.states import JobState, RunState
from rota.model.trigger import Instant
from rota.model.value import Value
from rota.model.work import Lane


class LiveRun(Value, frozen=True, kw_only=True):
    """A run that may still do something. `started`: a node was given one of its items."""

    id: int
    job_id: int
    state: RunState
    started: bool


class Crowd(Value, frozen=True, kw_only=True):
    """The live runs under one overlap key: how many run, which ones (oldest first) where a rule may have to act on
    them, and which wait."""

    running: int = 0
    runs: tuple[LiveRun, ...] = ()
    waiting: tuple[LiveRun, ...] = ()


class Facts(Value, frozen=True, kw_only=True):
    """What was read under lock.

    `crowds` has every overlap key that the rule named; `others` are jobs beside those asked for whose runs the rule may
    end and whose triggers follow ends; `live` is how many live runs a job has, where that may matter; `known` are the
    runs that were asked for and exist; `held` are jobs (ids) of which nothing may fire now.
    """

    now: datetime
    jobs: tuple[Job, ...]
    crowds: Mapping[str, Crowd]
    others: tuple[Job, ...] = ()
    live: Mapping[int, int] = {}
    runs: tuple[Run, ...] = ()
    streaks: Mapping[int, int] = {}
    """Of jobs that are paused after some failed runs in a row: how many of the present revision there are already."""
    items: tuple[Item, ...] = ()
    """The items of these runs, after what has been written already in this transaction."""
    known: Mapping[RunKey, Run] = {}
    held: frozenset[int] = frozenset()


class NewJob(Value, frozen=True, kw_only=True):
    definition: Definition
    digest: str
    next: Instant | None
    source: str = ""


class JobChange(Value, frozen=True, kw_only=True):
    """A job as it was read and as it shall be. The write is fenced by the revision and next instant that were read."""

    was: Job
    now: Job
    kind: str | None = None
    """What happened, for the history; a mere advance of the next instant has none."""


class NewItem(Value, frozen=True, kw_only=True):
    task: str
    lane: Lane
    hold_s: float = 0.0
    index: int = 0
    not_before_at: datetime
    start_by_at: datetime


class NewRun(RunOrigin, frozen=True, kw_only=True):
    items: tuple[NewItem, ...] = ()


class RunMove(Value, frozen=True, kw_only=True):
    """A live run moves to another state; its items that no node was given follow it: they become ready when it starts
    to run, and are cancelled when it ends."""

    run_id: int
    job_id: int
    was: RunState
    now: RunState


class Plan(Value, frozen=True, kw_only=True):
    """What one deciding transaction writes. `cancels` are running runs that are asked to stop."""

    new_jobs: tuple[NewJob, ...] = ()
    jobs: tuple[JobChange, ...] = ()
    runs: tuple[NewRun, ...] = ()
    moves: tuple[RunMove, ...] = ()
    cancels: tuple[LiveRun, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not (self.new_jobs or self.jobs or self.runs or self.moves or self.cancels)


class Committed(Value, frozen=True, kw_only=True):
    """What a deciding transaction did: the facts' instant, the plan, and the runs as they were written."""

    now: datetime
    plan: Plan
    runs: tuple[Run, ...] = ()
    unread: tuple[int, ...] = ()
    """Jobs that were left out because this release cannot read them."""


class Rule(Protocol):
    """A decision: pure, repeatable, made on locked facts."""

    def keys(self, jobs: Sequence[Job]) -> Iterable[str]:
        """Name the overlap keys that `decide` will look at, given the jobs that were locked."""

    def decide(self, facts: Facts) -> Plan:
        """Say what shall be written."""


class Pending(Value, frozen=True, kw_only=True):
    """A job that will be due soon, as an unlocked read saw it."""

    job_id: int
    next_fire_at: datetime


class Upcoming(Value, frozen=True, kw_only=True):
    """The store's clock, and the jobs that are due first, earliest first."""

    now: datetime
    pending: tuple[Pending, ...] = ()
    placed: int = 0
    """The revision of the set of jobs that want an owner."""


class JobFilter(Value, frozen=True, kw_only=True):
    """Which jobs a listing shows, in order of their creation; `after_id` pages on."""

    ids: tuple[int, ...] | None = None

    tenant: str | None = None
    project: str | None = None
    states: tuple[JobState, ...] = (JobState.ENABLED, JobState.PAUSED)
    after_id: int = 0
    limit: int = 100


class RunFilter(Value, frozen=True, kw_only=True):
    """Which runs a listing shows, newest first; `before_id` pages on."""

    job: JobName | None = None
    states: tuple[RunState, ...] = ()
    before_id: int | None = None
    limit: int = 100
