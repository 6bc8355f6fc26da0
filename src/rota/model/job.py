"""Jobs: what is defined (`Definition`, named by the digest of its content) and what is stored of it (`Job`)."""

from __future__ import annotations

import hashlib
import string
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec

from rota.errors import InvalidInput
from rota.model.alarm import AlarmRule, JobAlarm
from rota.model.states import JobState
from rota.model.trigger import Delay, Endless, Instant, Manual, Schedule
from rota.model.value import Json, Value
from rota.model.work import KEY_MAX, Handling, Lane, Rate

GRACE_S = 60.0
BACKLOG_MAX = 100
SOURCE_MAX = 250
HAND = "hand"
"""The source of a job that somebody deleted: no file or app makes it again unless asked to."""
_FILE, _OF = "file ", " of "


def file_source(path: str, repository: str = "") -> str:
    """The source of the jobs of a file or folder, and of which repository it is."""
    of = _OF + repository if repository else ""
    return f"{_FILE}{path[: SOURCE_MAX - len(_FILE) - len(of)]}{of}"


def without_repository(source: str, repository: str) -> str:
    """What the source of a file was before its repository was named."""
    return source.removesuffix(_OF + repository) if source.startswith(_FILE) else source


def app_source(name: JobName) -> str:
    """The source of the jobs of an app that has a name. One too long for a column is named by its digest."""
    full = f"app {name}"
    return full if len(full) <= SOURCE_MAX else f"app {hashlib.sha256(full.encode()).hexdigest()}"


def is_own(source: str, repository: str) -> bool:
    """Whether a source surely is one's own: an app of a name, or a file whose repository is named. A path alone can be
    that of another file in somebody else's folder."""
    return not source.startswith(_FILE) or (bool(repository) and source.endswith(_OF + repository))


class JobName(NamedTuple):
    """The name by which people know a job."""

    tenant: str
    project: str
    name: str

    def __str__(self) -> str:
        if self.tenant != "default":
            return "/".join(self)
        return self.name if self.project == "default" else f"{self.project}/{self.name}"


def job_scope(name: JobName) -> str:
    """The scope of alarms that concern one job."""
    return f"job/{'/'.join(name)}"


class MisfirePolicy(StrEnum):
    SKIP = "skip"
    ONCE = "once"
    ALL = "all"


class Misfire(Value, frozen=True, kw_only=True):
    """What happens to slots that are later than the grace: none of them runs, the latest, or all (at most `count_max`,
    started at most `per_s` a second)."""

    policy: MisfirePolicy = MisfirePolicy.ONCE
    grace_s: float = GRACE_S
    count_max: int = 100
    per_s: float | None = None


class OverlapPolicy(StrEnum):
    FORBID = "forbid"
    ALLOW = "allow"
    QUEUE = "queue"
    REPLACE = "replace"


class Overlap(Value, frozen=True, kw_only=True):
    """What happens when a run is due while others of the same key are live. Without a key: others of the same job."""

    policy: OverlapPolicy = OverlapPolicy.FORBID
    live_max: int = 1
    queue_max: int = 1
    key: str | None = None


class Task(Handling, frozen=True, kw_only=True):
    """One step of a job: a runner, what it is told, and how it is executed.

    After `warn_s` there is an alarm that an attempt takes long; after `timeout_s` it is asked to end, after
    `grace_s` more it is killed. An item should start within `start_within_s` of its slot: its place in the order.
    """

    name: str
    runner: str
    config: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    timeout_s: float | None = None
    start_within_s: float = 0.0
    group: str = "default"
    quota: str = "default"
    resources: tuple[str, ...] = ()


class Definition(Value, frozen=True, kw_only=True):
    """What a person writes about a job."""

    tenant: str = "default"
    project: str = "default"
    name: str
    title: str = ""
    schedule: Schedule
    misfire: Misfire = Misfire()
    overlap: Overlap = Overlap()
    backlog_max: int = BACKLOG_MAX
    params: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    cap: int | None = None
    """How many items of this job may execute at a time."""
    rate: Rate | None = None
    pause_after: int | None = None
    """After so many failed runs in a row the job is paused."""
    tasks: tuple[Task, ...]
    alarms: tuple[JobAlarm, ...] = ()
    """Who is told when something goes wrong with it."""

    @property
    def full_name(self) -> JobName:
        return JobName(self.tenant, self.project, self.name)

    @property
    def alarm_rules(self) -> tuple[AlarmRule, ...]:
        """Who is told, as rules whose scope is this job."""
        return tuple(it.rule(job_scope(self.full_name)) for it in self.alarms)

    @property
    def follows_ends(self) -> bool:
        """Whether the next instant is known only when a run has ended."""
        return isinstance(self.schedule.rule, Delay | Endless)

    @property
    def fires_by_itself(self) -> bool:
        return not isinstance(self.schedule.rule, Manual)

    def task(self, name: str) -> Task:
        return next(task for task in self.tasks if task.name == name)


EVERYWHERE = ("shell", "http")
"""The kinds of task that every executor can run, whatever is installed there."""


def kind_handler(kind: str) -> str:
    """How a node advertises that it has the plugin of a kind of task."""
    return f"kind:{kind}"


def handler_name(name: JobName) -> str:
    """How a node advertises the function of an app's task; what an item of it needs."""
    return "/".join(name)


def handler_of(definition: Definition, task: Task) -> str:
    """What a node must have to run a task; nothing for kinds that every node has.

    Derived from what is stored, so that it changes no digest, and definitions of earlier releases have it too. It asks
    no plugin: a scheduler without the plugin fires its jobs all the same.
    """
    if task.runner in EVERYWHERE:
        return ""
    if task.runner != "python":
        return kind_handler(task.runner)
    own = task.config.get("handler")
    if own is not None:
        return handler_name(JobName(definition.tenant, definition.project, str(own)))
    return str(task.config.get("function", ""))


def lane_of(job_id: int, definition: Definition, task: Task, late_rate: Rate | None = None) -> Lane:
    """What the items of a task count against, and who can run them."""
    counted = definition.cap is not None or definition.rate is not None or late_rate is not None
    return Lane(
        tenant=definition.tenant,
        quota=task.quota,
        group=task.group,
        handler=handler_of(definition, task),
        job_id=job_id if counted else 0,
        job_cap=definition.cap,
        job_rate=definition.rate,
        late_rate=late_rate,
        resources=task.resources,
    )


class Job(Value, frozen=True, kw_only=True):
    """A stored job.

    `revision` rises with every apply, pause, resume and delete; `version` only when the definition changes.
    `settled_at` is the highest slot that was ever decided on: it never falls, and no slot at or below it is decided
    again, whatever the store's clock does.
    """

    id: int
    definition: Definition
    digest: str
    version: int
    revision: int
    state: JobState
    next_slot_at: datetime | None
    next_fire_at: datetime | None
    settled_at: datetime | None
    created_at: datetime
    changed_at: datetime
    source: str = ""
    """Who defines it: `file jobs.yaml`, `app shop`; `hand` if somebody deleted it. Empty: nobody has said so yet."""

    @classmethod
    def created(
        cls, job_id: int, definition: Definition, digest: str, first: Instant | None, now: datetime, source: str = ""
    ) -> Job:
        """A job in its first revision."""
        return cls(
            id=job_id,
            definition=definition,
            digest=digest,
            version=1,
            revision=1,
            state=JobState.ENABLED,
            next_slot_at=None,
            next_fire_at=None,
            settled_at=None,
            created_at=now,
            changed_at=now,
            source=source,
        ).armed(first)

    def armed(self, instant: Instant | None) -> Job:
        """The same job, due at that instant next."""
        slot_at, due_at = (None, None) if instant is None else (instant.slot_at, instant.due_at)
        return msgspec.structs.replace(self, next_slot_at=slot_at, next_fire_at=due_at)

    @property
    def is_placed(self) -> bool:
        """Whether it wants an owner: somebody has to fire it."""
        return self.state is JobState.ENABLED and not isinstance(self.definition.schedule.rule, Manual)

    @property
    def pending(self) -> Instant | None:
        if self.next_slot_at is None or self.next_fire_at is None:
            return None
        return Instant(slot_at=self.next_slot_at, due_at=self.next_fire_at)

    def is_due(self, now: datetime) -> bool:
        return self.state is JobState.ENABLED and self.next_fire_at is not None and self.next_fire_at <= now


def overlap_key(job_id: int, definition: Definition, params: dict[str, Json]) -> str:
    """Name what the runs of a job must share with others: the job itself, or the key of its definition.

    `${name}` in a key stands for that parameter of the run. A key too long for a column is named by its digest.
    """
    key = definition.overlap.key
    if key is None:
        return f"job:{job_id}"
    try:
        filled = string.Template(key).substitute({name: str(value) for name, value in params.items()})
    except KeyError as missing:
        raise InvalidInput.of("params", f"the overlap key {key!r} needs the parameter {missing}") from None
    full = f"key:{definition.tenant}/{definition.project}/{filled}"
    return full if len(full) <= KEY_MAX else f"key:{hashlib.sha256(full.encode()).hexdigest()}"
