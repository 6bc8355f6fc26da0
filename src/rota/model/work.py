"""Work: how an item is executed, what it counts against, and what became of each attempt at it."""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from math import ceil
from typing import NamedTuple

import msgspec

from rota.model.listener import advertised, app_name
from rota.model.states import ItemState, Outcome
from rota.model.value import Json, Value

GENERATION_SHIFT = 32
TIMEOUT_S = 120.0
GRACE_S = 5.0
LOST_MAX = 3
RESULT_MAX = 256 * 1024
"""Bytes of JSON; larger results go elsewhere, and the task returns where."""
MESSAGE_MAX = 4000
TRACEBACK_MAX = 16 * 1024
"""Characters; of a longer one the end is kept, where it was raised."""
INFO_MAX = 64 * 1024
ASSIGN_MAX = 10_000
NUMBER_MAX = 200
KEY_MAX = 250
LOG_MAX = 16 * 1024 * 1024


def token_of(round_: int | None, attempt: int) -> int:
    """What fences an attempt: rises with every attempt, and with every loss of the store's latest history. An attempt
    belongs to the generation of the round that gave it out, whenever its token is asked for."""
    return (generation_of(round_) << GENERATION_SHIFT) | attempt


def generation_of(round_: int | None) -> int:
    """The generation of the store in which a round was made: the high part of its number. The first has none."""
    return max((round_ or 0) >> GENERATION_SHIFT, 1)


def first_round(generation: int) -> int:
    """The number before those of a generation's rounds."""
    return generation << GENERATION_SHIFT


class BackoffKind(StrEnum):
    FIXED = "fixed"
    LIST = "list"
    EXPONENTIAL = "exponential"


class Backoff(Value, frozen=True, kw_only=True):
    """How long to wait before attempt n + 1: always the first of `seconds`; the n-th (then the last); or the first,
    times `factor` for each failure, up to `max_s`. `jitter` takes off up to that share of it."""

    kind: BackoffKind = BackoffKind.FIXED
    seconds: tuple[float, ...] = (0.0,)
    factor: float = 2.0
    max_s: float = 3600.0
    jitter: float = 0.0


class OnExhausted(StrEnum):
    """What happens to the job when an item of it has used up its retries: nothing more, an alarm, or a pause."""

    FAIL = "fail"
    ALARM = "alarm"
    PAUSE = "pause"


class Retry(Value, frozen=True, kw_only=True):
    """When a failed attempt is followed by another.

    `only` and `never` name exit codes (`"75"`) or exceptions (`"ValueError"`, also a base class of what was raised);
    with `only`, nothing else is tried again. Timeouts are named `"timeout"`, running out of memory `"memory"`.
    """

    max: int = 0
    backoff: Backoff = Backoff()
    only: tuple[str, ...] = ()
    never: tuple[str, ...] = ()
    lost_max: int = LOST_MAX
    on_exhausted: OnExhausted = OnExhausted.FAIL


class Bounds(Value, frozen=True, kw_only=True):
    """What the processes of one attempt may use, and as whom they run."""

    memory_mb: int | None = None
    cpu_s: float | None = None
    processes_max: int | None = None
    directory: str | None = None
    user: str | None = None


class Rate(Value, frozen=True, kw_only=True):
    """At most `max` starts in any `period_s` seconds."""

    max: int
    period_s: float

    @classmethod
    def per_second(cls, per_s: float) -> Rate:
        """So many starts a second; if they are fewer than one, no more than one of them at once."""
        most = ceil(per_s)
        return cls(max=most, period_s=most / per_s)


class Lane(Value, frozen=True, kw_only=True):
    """All that decides whether an item may start now, besides its own times. Items of one lane are alike: when the
    first of them is held back, all are."""

    tenant: str
    quota: str = "default"
    group: str = "default"
    handler: str = ""
    """What an executor must have; nothing for shell and http."""
    job_id: int = 0
    """The job whose own cap or rates count; 0 if it has none."""
    job_cap: int | None = None
    job_rate: Rate | None = None
    late_rate: Rate | None = None
    """How fast slots of the job that were missed may start; only for items of such slots."""
    resources: tuple[str, ...] = ()
    newer_than: str = ""
    """A release that cannot read what these items need: a newer executor gets them, if one is there."""

    @property
    def needs(self) -> str:
        """What an executor must advertise."""
        return advertised(self.handler, self.tenant)

    @property
    def limits(self) -> tuple[str, ...]:
        """The names of the limits that an item of this lane counts against."""
        job = (f"{JOB}{self.job_id}",) if self.job_id else ()
        late = (f"{LATE}{self.job_id}",) if self.late_rate is not None else ()
        resources = (f"resource:{name}" for name in self.resources)
        return (GLOBAL, quota_limit(self.tenant, self.quota), *job, *late, *resources)

    @property
    def rates(self) -> dict[str, Rate]:
        """The rates that the job itself sets, by the names of their limits."""
        own = {f"{JOB}{self.job_id}": self.job_rate, f"{LATE}{self.job_id}": self.late_rate}
        return {name: rate for name, rate in own.items() if rate is not None}


GLOBAL = "global"
JOB, LATE = "job:", "late:"
"""How the names of the limits begin that a job itself sets."""
CAPACITY = 100
"""The global cap until somebody sets another."""


def quota_limit(tenant: str, quota: str) -> str:
    return f"quota:{tenant}/{quota}"


class Limit(Value, frozen=True, kw_only=True):
    """A cap on what executes at one instant, and a rate of starts; `recent` are the starts that the rate still
    remembers, as (microsecond, count), and last those that have not begun (`core/dispatch/rate.py`)."""

    name: str
    cap: int | None = None
    weight: int = 1
    rate: Rate | None = None
    recent: tuple[tuple[int, int], ...] = ()


class Queued(Value, frozen=True, kw_only=True):
    """A live item as the store keeps it for dispatch: ready, or assigned to a node, or running.

    `attempt` counts the attempts begun so far; `node_id` is none while nobody has it, and for items that are finished
    from outside once their `on_start` has returned.
    """

    item_id: int
    run_id: int
    job_id: int
    lane_id: int
    state: ItemState
    start_by_at: datetime
    not_before_at: datetime
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    node_id: int | None = None
    avoid_id: int | None = None
    round: int | None = None
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    expires_at: datetime | None = None
    hold_s: float = 0.0
    cancel_at: datetime | None = None


class Handling(Value, frozen=True, kw_only=True):
    """How attempts are handled, whatever they do: as it was defined, and as it is acted on."""

    retry: Retry = Retry()
    bounds: Bounds = Bounds()
    env: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    warn_s: float | None = None
    grace_s: float = GRACE_S
    hold_s: float = 0.0
    concurrency: int = 1


class Work(Handling, frozen=True, kw_only=True):
    """What all items of one assignment share. Kept with the run."""

    tenant: str
    quota: str = "default"
    group: str = "default"
    handler: str | None = None
    """The Python handler that does the work; none: `on_start` is called, and the client reports the end."""
    timeout_s: float = TIMEOUT_S
    resources: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    """Which listeners of the client's app are told: `on_fail`, `on_timeout`."""
    app: str = ""
    """Whose listeners: `tenant/project`. Empty: the app of the tenant's default project."""
    call: bool = False
    """Whether the info of each item is what the handler is called with: its arguments, by name."""
    job_id: int = 0
    """The job whose cap or rate counts for these items too; 0: none."""
    cap: int | None = None
    rate: Rate | None = None

    @property
    def listening(self) -> str:
        """The app whose listeners are told."""
        return self.app or app_name(self.tenant)

    @property
    def key_prefix(self) -> str:
        """What keeps keys apart: those of different tenants never meet, nor do those of calls of different tasks."""
        return f"{self.tenant}/{self.handler}:" if self.call else f"{self.tenant}/"


class NewTask(Value, frozen=True, kw_only=True):
    """One item of an assignment: the client's number for it, and what it wants to find again."""

    number: str
    info: Json = None


class Assignment(Value, frozen=True, kw_only=True):
    """One call of `assign`. The same key assigns once."""

    key: str
    work: Work
    tasks: tuple[NewTask, ...]
    start_at: datetime | None = None
    """When they may start; none: now, by the store's clock."""
    end_at: datetime | None = None
    """By when the last of them should have started; none: as soon as they may."""

    @property
    def full_key(self) -> str:
        """The key of the run. One too long for a column is named by its digest."""
        full = self.work.key_prefix + self.key
        return full if len(full) <= KEY_MAX else f"{self.work.tenant}/{hashlib.sha256(full.encode()).hexdigest()}"


def spread(start_us: int, end_us: int, count: int) -> list[int]:
    """By when each of the items of an assignment should have started: evenly over the time, the last at its end."""
    return [start_us + (end_us - start_us) * n // count for n in range(1, count + 1)]


class ExecutionSpec(Handling, frozen=True, kw_only=True):
    """How the items of a task are executed: what all attempts at them share."""

    name: str
    """The job's full name, or the tenant's name for an assignment."""
    tenant: str
    task: str
    runner: str
    config: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    timeout_s: float | None = None
    external: bool = False
    """Whether the client reports the end: then the attempt only calls `on_start`."""
    notify: tuple[str, ...] = ()


class Attempt(msgspec.Struct, frozen=True):
    """All that an executor needs to know to make one attempt at an item. Many are made, so they are given by place."""

    item_id: int
    attempt: int
    token: int
    run_id: int
    job_id: int
    lane_id: int
    round: int
    assigned_us: int
    failures: int
    losses: int
    index: int
    idempotency_key: str
    spec: ExecutionSpec
    params: dict[str, Json]
    number: str | None = None
    info: str | None = None
    """JSON text."""
    slot_at: datetime | None = None
    start_by_at: datetime | None = None
    """When it should have started, if it is for a slot."""


class AttemptEnd(NamedTuple):
    """How an attempt ended, as seen on the node: what ended it says how, the table of attempts adds whose it is, and
    when. The finisher makes an `ItemEnd` of it, by the retry policy."""

    outcome: Outcome
    cause: str = ""
    """Its name for the retry policy: an exit code, an exception with its bases (`"KeyError LookupError Exception"`),
    `timeout` or `memory`."""
    message: str = ""
    code: int | None = None
    result: str | None = None
    late_s: float = 0.0
    """How long after the deadline of its node its processes still ran."""
    item_id: int = 0
    attempt: int = 0
    started_s: float | None = None
    """When its first line ran, by CLOCK_MONOTONIC; none if it never started."""
    ended_s: float = 0.0
    log_bytes: int = 0


class SuspectedOverlap(Value, frozen=True, kw_only=True):
    """An attempt that may have run beside a later one: its whole machine stood still, and went on when it was no longer
    believed alive. Then only tokens protect."""

    item_id: int
    attempt: int
    run_id: int
    job_id: int
    node: str
    late_s: float


class AttemptRecord(Value, frozen=True, kw_only=True):
    """One line of the history of an item: an attempt that is over."""

    item_id: int
    attempt: int
    node: str
    round: int | None
    assigned_at: datetime | None
    started_at: datetime | None
    ended_at: datetime
    outcome: Outcome
    code: int | None = None
    message: str = ""
    log_bytes: int = 0
