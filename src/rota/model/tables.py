"""The tables as transactions see them: rows are plain tuples, instants are microseconds, values are encoded text.

`storage/` keeps them: the schema of the SQL stores is made of them. An index is listed here if a transaction finds rows
by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, TypeVar

R = TypeVar("R", bound=tuple[Any, ...])


@dataclass(frozen=True, eq=False, slots=True)
class Table(Generic[R]):
    """A table: the tuple that its rows are, its key, and the columns by which else rows are found or unique."""

    name: str
    row: type[R]
    key: tuple[str, ...]
    unique: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    indexes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.row._fields  # type: ignore[attr-defined,no-any-return]

    def columns_of(self, index: str) -> tuple[str, ...]:
        """The columns of an index, unique or not."""
        return self.unique[index] if index in self.unique else self.indexes[index]


class Change(NamedTuple):
    """How many rows are changed at a time, each with values of its own.

    A row of values has those of `match`, which the table's row must still have (nulls are equal), then the new ones of
    `fields`. The rest is the same for all rows: `fixed` are new values, `raised` are columns that grow by one, `where`
    are values that the table's row must have.
    """

    table: Table[Any]
    match: tuple[str, ...]
    fields: tuple[str, ...] = ()
    fixed: tuple[tuple[str, Any], ...] = ()
    raised: tuple[str, ...] = ()
    where: tuple[tuple[str, Any], ...] = ()


class MetaRow(NamedTuple):
    """What the store knows of itself: its generation, when and why that was raised, who wrote last."""

    name: str
    value: str


class CounterRow(NamedTuple):
    """Numbers that nobody gets twice."""

    name: str
    next: int


class JobRow(NamedTuple):
    """Jobs, by number; deleted ones stay."""

    id: int
    tenant: str
    project: str
    name: str
    definition: str
    digest: str
    version: int
    revision: int
    state: str
    next_slot_at: int | None
    next_fire_at: int | None
    settled_at: int | None
    created_at: int
    changed_at: int
    source: str | None


class JobVersionRow(NamedTuple):
    """Every definition that a job ever had."""

    job_id: int
    version: int
    digest: str
    definition: str
    applied_at: int
    actor: str


class OverlapRow(NamedTuple):
    """Explicit overlap keys: rows that exist to be locked."""

    key: str


class RunRow(NamedTuple):
    """Runs, also those that were skipped. The run of an assignment has the job 0."""

    id: int
    job_id: int
    version: int
    cause: str
    key: str
    overlap_key: str
    state: str
    reason: str | None
    slot_at: int | None
    last_slot_at: int | None
    slots: int
    due_at: int
    created_at: int
    ended_at: int | None
    cancel_at: int | None
    params: str
    work: str | None


class ItemRow(NamedTuple):
    """Items of runs. A live item's state is in the queue."""

    id: int
    run_id: int
    task: str
    index: int  # type: ignore[assignment]
    state: str
    not_before_at: int
    start_by_at: int
    tenant: str | None
    number: str | None
    info: str | None
    ended_at: int | None
    result: str | None
    message: str | None


class QueueRow(NamedTuple):
    """The live items. No index holds a column that changes, so that PostgreSQL updates rows in place."""

    item_id: int
    run_id: int
    job_id: int
    lane_id: int
    state: str
    start_by_at: int
    not_before_at: int
    attempt: int
    failures: int
    losses: int
    node_id: int | None
    avoid_id: int | None
    round: int | None
    assigned_at: int | None
    started_at: int | None
    expires_at: int | None
    hold_us: int
    cancel_at: int | None


class LaneRow(NamedTuple):
    """Lanes, by the digest of what they say."""

    id: int
    digest: str
    spec: str
    used_at: int | None


class LimitRow(NamedTuple):
    """Caps, weights and rates. `is_set` is 0 for rows that only remember the starts of a job with a rate."""

    name: str
    cap: int | None
    weight: int
    rate_max: int | None
    rate_us: int | None
    recent: str
    is_set: int


class DispatchRow(NamedTuple):
    """One row: the lock under which rounds are made."""

    id: int
    holder: int | None
    epoch: int
    round: int
    changes: int
    next_at: int | None


class ArrivalRow(NamedTuple):
    """What a round has to learn: items that became ready, seats that were given back."""

    id: int
    at: int
    kind: str
    data: str


class GrantRow(NamedTuple):
    """What each round gave to each node."""

    node_id: int
    round: int
    at: int
    holder: int
    data: str


class AttemptRow(NamedTuple):
    """Attempts that are over."""

    item_id: int
    attempt: int
    node: str
    round: int | None
    assigned_at: int | None
    started_at: int | None
    ended_at: int
    outcome: str
    code: int | None
    message: str | None
    log_bytes: int


class NodeRow(NamedTuple):
    """One row for every incarnation of a node."""

    id: int
    name: str
    state: str
    joined: str
    joined_at: int
    left_at: int | None


class LeaseRow(NamedTuple):
    """Until when a node is believed alive. The only row that a renewal touches. `busy` in hundredths of a percent; a
    lease that is `fenced` is not renewed any more."""

    node_id: int
    until_at: int
    beat: int
    busy: int
    fenced: int


class DrainedRow(NamedTuple):
    """The offline list. `roles` with commas between; none: all."""

    name: str
    at: int
    roles: str | None
    keep: int | None
    deadline_at: int | None


class PlacedRow(NamedTuple):
    """The jobs that want an owner: enabled, with a trigger."""

    job_id: int


class HeldRow(NamedTuple):
    """Scopes of which nothing fires. No project: the whole tenant; no tenant either: everything."""

    tenant: str
    project: str
    at: int
    actor: str


class NumberRow(NamedTuple):
    """Which node of a group has which number, for as long as the node is remembered."""

    group_name: str
    number: int
    name: str


class EventRow(NamedTuple):
    """The history: one line for each change of state."""

    id: int
    at: int
    kind: str
    actor: str
    job_id: int | None
    run_id: int | None
    item_id: int | None
    data: str


class AlarmRuleRow(NamedTuple):
    """Who wants to know of which alarms."""

    name: str
    data: str


class AlarmRow(NamedTuple):
    """What happened that somebody may want to know. `is_open`: a level that has not ended. `sorted_at`: when the rules
    were asked who shall be told."""

    id: int
    key: str
    at: int
    data: str
    is_open: int
    sorted_at: int | None


class DeliveryRow(NamedTuple):
    """An alarm on its way to whoever a rule names."""

    rule: str
    alarm_id: int
    tries: int
    not_before_at: int
    ended_at: int | None
    arrived: int
    answer: str


class SessionRow(NamedTuple):
    """Sessions of the coordinator's clients. A renewal touches this row only."""

    id: str
    until_at: int


class EntryRow(NamedTuple):
    """What the coordinator keeps. A claim has a session; all others last."""

    key: str
    folder: str
    value: str
    version: int
    session_id: str | None
    fence: int


META = Table("meta", MetaRow, key=("name",))
COUNTER = Table("counter", CounterRow, key=("name",))
JOB = Table("job", JobRow, key=("id",), unique={"name": ("tenant", "project", "name")})
JOB_VERSION = Table("job_version", JobVersionRow, key=("job_id", "version"))
OVERLAP = Table("overlap", OverlapRow, key=("key",))
RUN = Table("run", RunRow, key=("id",), unique={"key": ("job_id", "cause", "key")})
ITEM = Table(
    "item",
    ItemRow,
    key=("id",),
    unique={"place": ("run_id", "task", "index"), "number": ("tenant", "number")},
    indexes={"run": ("run_id",)},
)
QUEUE = Table("queue", QueueRow, key=("item_id",))
LANE = Table("lane", LaneRow, key=("id",), unique={"digest": ("digest",)})
LIMIT = Table("limit", LimitRow, key=("name",))
DISPATCH = Table("dispatch", DispatchRow, key=("id",))
ARRIVAL = Table("arrival", ArrivalRow, key=("id",))
GRANT = Table("grant", GrantRow, key=("node_id", "round"))
ATTEMPT = Table("attempt", AttemptRow, key=("item_id", "attempt"))
NODE = Table("node", NodeRow, key=("id",), indexes={"name": ("name",)})
LEASE = Table("lease", LeaseRow, key=("node_id",))
DRAINED = Table("drained", DrainedRow, key=("name",))
PLACED = Table("placed", PlacedRow, key=("job_id",))
HELD = Table("held", HeldRow, key=("tenant", "project"))
NUMBER = Table("number", NumberRow, key=("group_name", "number"), indexes={"group": ("group_name",)})
EVENT = Table("event", EventRow, key=("id",))
ALARM_RULE = Table("alarm_rule", AlarmRuleRow, key=("name",))
ALARM = Table("alarm", AlarmRow, key=("id",), unique={"key": ("key",)})
DELIVERY = Table("delivery", DeliveryRow, key=("rule", "alarm_id"), indexes={"rule": ("rule",)})
SESSION = Table("session", SessionRow, key=("id",))
ENTRY = Table("entry", EntryRow, key=("key",))

TABLES: tuple[Table[Any], ...] = tuple(it for it in list(globals().values()) if isinstance(it, Table))
"""All of them, in this order."""
