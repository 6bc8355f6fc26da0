"""The cluster: schedulers as they tell of themselves, and whose turn it is."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from rota.model.job import JobName
from rota.model.value import Value

UNREACHABLE_AFTER = 3
"""So many requests to a node must fail in a row (S1.17)."""


class Placement(StrEnum):
    """How the schedulers of a cluster share the jobs."""

    CLAIM = "claim"
    SCOPE = "scope"
    BEAT = "beat"


class Strategy(StrEnum):
    """How the leader of placement `scope` cuts the jobs into parts."""

    SCOPE = "scope"
    BALANCED = "balanced"
    STABLE = "stable"


class Role(StrEnum):
    """What a node does; by default all of it."""

    SCHEDULER = "scheduler"
    EXECUTOR = "executor"


class Drain(Value, frozen=True, kw_only=True):
    """A line of the offline list: this node, by name, takes nothing more in these roles."""

    name: str
    roles: tuple[Role, ...] = (Role.SCHEDULER, Role.EXECUTOR)
    keep: int | None = None
    """How many jobs a scheduler keeps; when it has no more, it is off the list again."""
    deadline_at: datetime | None = None
    """When it gives up also the jobs whose runs are not over."""

    def is_over(self, now: datetime) -> bool:
        """Whether the deadline has passed."""
        return self.deadline_at is not None and self.deadline_at <= now


class Drains(Value, frozen=True, kw_only=True):
    """The offline list, and the store's clock when it was read."""

    now: datetime
    drains: tuple[Drain, ...] = ()


class Hold(Value, frozen=True, kw_only=True):
    """A scope of which nothing fires: a project of a tenant, a whole tenant, or, without either, everything."""

    tenant: str = ""
    project: str = ""
    held_at: datetime | None = None
    actor: str = ""

    def covers(self, name: JobName) -> bool:
        """Whether a job is in this scope."""
        return self.tenant in ("", name.tenant) and self.project in ("", name.project)

    def __str__(self) -> str:
        if not self.tenant:
            return "everything"
        return f"project {self.tenant}/{self.project}" if self.project else f"tenant {self.tenant}"


class Handover(Value, frozen=True, kw_only=True):
    """A job on its way to a receiver, who takes it also above its limit if a person insists."""

    to: str
    force: bool = False


class Placeable(Value, frozen=True, kw_only=True):
    """The jobs that are placed: stored, enabled, with a trigger. None: as they were at that revision."""

    revision: int
    jobs: tuple[int, ...] | None = None


class Peer(Value, frozen=True, kw_only=True):
    """A living scheduler, as it describes itself in its session. Symbols of placement claim: `faults` is n, `held` X,
    `limit` N, `alarm` M."""

    name: str
    incarnation: str
    address: str = ""
    version: str = ""
    placement: Placement | None = None
    weight: float = 1.0
    faults: int = 1
    alarm: int | None = None
    held: int = 0
    limit: int = 0
    busy: float = 0.0
    epoch: int = 0
    """The newest plan that it has read and acts by."""
    unreachable: tuple[str, ...] = ()
    """The peers that it could not reach, several times in a row."""
    range: str = ""
    """Its part of the jobs, where a plan gives it one."""


class Part(Value, frozen=True, kw_only=True):
    """The jobs of one scheduler: creation numbers from `first` to `last`, both included. None: without end."""

    name: str
    first: int
    last: int | None = None

    def __contains__(self, job_id: object) -> bool:
        return isinstance(job_id, int) and self.first <= job_id and (self.last is None or job_id <= self.last)

    def __str__(self) -> str:
        return f"{self.first}-" if self.last is None else f"{self.first}-{self.last}"


class ScopePlan(Value, frozen=True, kw_only=True):
    """Who has which jobs, from an epoch on. `parts` in the order of the nodes' addresses; with strategy `stable` there
    are no ranges: each job belongs to the node among `names` that its hash prefers."""

    epoch: int
    strategy: Strategy
    names: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    parts: tuple[Part, ...] = ()

    @property
    def is_sound(self) -> bool:
        """Whether it says of every job whose it is, once."""
        if len(self.weights) != len(self.names):
            return False
        if self.strategy is Strategy.STABLE or not self.names:
            return not self.parts
        starts = [part.first for part in self.parts]
        ends = [1, *(part.last + 1 for part in self.parts[:-1] if part.last is not None)]
        return tuple(part.name for part in self.parts) == self.names and starts == ends and self.parts[-1].last is None


class Repair(Value, frozen=True, kw_only=True):
    """Something that a scheduler found lost or wrong in the coordinator, and put right."""

    at: datetime
    what: str
