"""What transactions need of a store: its rows, some questions, and a word when what they rest on has changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from rota.model.dispatch import Pulse, Ready, Seated, TargetRow
from rota.model.plan import JobFilter, RunFilter
from rota.model.tables import (
    AlarmRow,
    AttemptRow,
    Change,
    DeliveryRow,
    EventRow,
    ItemRow,
    JobRow,
    LeaseRow,
    NodeRow,
    QueueRow,
    RunRow,
    Table,
)

R = TypeVar("R", bound=tuple[Any, ...])

Values = Sequence[tuple[Any, ...]]
"""Rows of values, in the order of some columns."""
Columns = tuple[str, ...] | None
Where = tuple[tuple[str, Any], ...]
"""Values that columns must have."""


class Conflict(Exception):
    """What a transaction rests on has changed, or is not locked yet: it is rolled back and made again. `jobs` and
    `items` are what it then locks too, in the right order."""

    def __init__(self, why: str, *, jobs: Iterable[int] = (), items: Iterable[int] = ()) -> None:
        super().__init__(why)
        self.jobs = frozenset(jobs)
        self.items = frozenset(items)

    def with_those_of(self, other: Conflict) -> Conflict:
        """The same, with what another try has found to be missing."""
        return Conflict(str(other), jobs=self.jobs | other.jobs, items=self.items | other.items)


class Rows(Protocol):
    """The rows of a store inside one transaction. It keeps and finds; it decides nothing.

    A key is a value, or a tuple for a key of several columns. Writes are deferred: they reach the store together,
    before the next read and at the latest before the commit. A read sees what this transaction wrote.
    """

    lock_us: int | None
    """The store's clock when the last lock statement began, which may be before it got its locks; none if it found no
    row. It stamps what was written; it never decides whether something is due."""

    def now_us(self) -> int:
        """The store's clock now: a statement of its own."""

    def read(self, table: Table[R], keys: Iterable[Any]) -> list[R]:
        """Rows by their keys, in the order of the keys; those that are not there are left out."""

    def lock(self, table: Table[R], keys: Iterable[Any], *, skip: bool = False) -> list[R]:
        """The same, locked until the transaction ends. It waits for others; `skip` leaves out what they hold."""

    def find(self, table: Table[R], index: str, values: Iterable[Any]) -> list[R]:
        """Rows by the values of an index that the table declares, in the order of the keys."""

    def all(self, table: Table[R]) -> list[R]:
        """Every row of a small table, in the order of the keys."""

    def insert(self, table: Table[Any], rows: Values, columns: Columns = None, *, missing: bool = False) -> None:
        """New rows of these columns, or of all; the others are null. A key or unique value that is there already is a
        `Conflict`; `missing` leaves such rows out."""

    def change(self, change: Change, rows: Values, *, exact: bool = False) -> None:
        """Change rows. One that is no longer as it was read stays as it is; if `exact`, that is a `Conflict`."""

    def changed(self, change: Change, rows: Values) -> set[Any]:
        """Change rows at once, and return the keys of those that still were as they were read. It locks them."""

    def remove(self, table: Table[Any], keys: Sequence[Any], *, where: Where = (), exact: bool = False) -> None:
        """Remove rows that still have these values; if `exact`, one that is not there or has others is a `Conflict`."""

    def disjoint(self, *tables: Table[Any]) -> None:
        """Promise that no row of these tables is written twice in what follows: then one statement may do it all."""

    def reserve(self, counter: str, count: int) -> int:
        """Numbers that nobody else gets; returns the first of them."""


class CrowdCount(NamedTuple):
    """How many live runs there are under an overlap key, in one state."""

    key: str
    state: str
    size: int


class NamedRun(NamedTuple):
    """A live run under an overlap key. `started`: a node was given one of its items."""

    id: int
    job_id: int
    state: str
    key: str
    started: bool


class LiveItem(NamedTuple):
    """An item, and the state that the queue has of it; none if it is not there."""

    item: ItemRow
    live: str | None


class FiredWith(NamedTuple):
    """The version that a run was fired with, and when it was."""

    job_id: int
    version: int
    definition: str
    id: int
    created_at: int
    due_at: int


class Tally(NamedTuple):
    """Of a run: in which states its items are, the last end of any, and whether one has not ended."""

    run_id: int
    states: frozenset[str]
    ended_at: int | None
    is_open: bool


class AssignmentFacts(NamedTuple):
    """What decides about an assignment: its run, if it was made before, and whether its quota was ever set."""

    now_us: int
    run: RunRow | None
    has_quota: bool


class FoundNode(NamedTuple):
    """A node, its lease if it has one, and whether it is on the offline list as an executor."""

    node: NodeRow
    lease: LeaseRow | None
    drained: bool


class Questions(Protocol):
    """What is asked of a store and is no look-up of rows. One statement each, nothing locked."""

    def due_jobs(self, tenant: str, project: str, until_us: int) -> list[int]:
        """The jobs of a scope that are due by then, by rising ids."""

    def crowds(self, keys: Sequence[str]) -> tuple[int, list[CrowdCount]]:
        """The clock, and how many runs of jobs are live under these overlap keys."""

    def named_runs(self, keys: Sequence[str]) -> list[NamedRun]:
        """Those runs, oldest first."""

    def live_counts(self, job_ids: Sequence[int]) -> dict[int, int]:
        """How many live runs each of the jobs has."""

    def waiting_keys(self, job_ids: Sequence[int]) -> list[str]:
        """The overlap keys under which runs of these jobs wait."""

    def last_ends(self, job_id: int, since_us: int, states: Sequence[str], limit: int) -> list[str]:
        """The states of the last runs of a job that were made since then and ended in one of these, newest first."""

    def live_items(self, run_ids: Sequence[int]) -> list[LiveItem]:
        """The items of runs, by run, task and index."""

    def fired_with(self, run_ids: Sequence[int]) -> list[FiredWith]:
        """The versions that runs were fired with."""

    def tally(self, run_ids: Sequence[int]) -> list[Tally]:
        """The items of runs, counted."""

    def open_assignments(self, after_id: int, limit: int) -> Sequence[int]:
        """The next runs of assignments that nobody has closed, by rising ids."""

    def unsettled_runs(self) -> Sequence[int]:
        """The runs of jobs whose items have all ended and that are still open, in any order."""

    def assignment(self, key: str, quota: str) -> AssignmentFacts:
        """What is known of an assignment by its full key, and of a limit by its name."""

    def ready(self) -> list[Ready]:
        """All that waits for its turn."""

    def seated(self) -> list[Seated]:
        """All that holds a seat, or counts against limits without one."""

    def queue_of(self, node_id: int) -> list[QueueRow]:
        """What a node has been given, by rising ids."""

    def take_arrivals(self) -> list[tuple[str, str]]:
        """Remove and return all arrivals (kind, data) that are committed, oldest first, waiting for no others."""

    def targets(self) -> tuple[int, list[TargetRow]]:
        """The clock, and the nodes that may be given something."""

    def living_names(self, now_us: int) -> set[str]:
        """The names of the nodes whose leases last."""

    # What is asked outside transactions, for the reads of `ports.Store`, which say what is wanted.

    def upcoming(self, within_us: int, limit: int) -> tuple[int, int, list[tuple[int, int]]]:
        """The clock, the revision of the jobs that want an owner, and those that are due by then (job, instant),
        earliest first, without what is held."""

    def job_page(self, wanted: JobFilter) -> list[JobRow]: ...

    def run_page(self, wanted: RunFilter, job_ids: Sequence[int] | None) -> list[RunRow]:
        """Runs by their stored states, newest first; of these jobs only, if any are given."""

    def live_runs(self, tenant: str, after_id: int, limit: int) -> Sequence[int]: ...

    def unstarted(self, run_ids: Sequence[int]) -> Sequence[int]: ...

    def kept_runs(self, run_ids: Sequence[int]) -> Sequence[int]:
        """Those of the runs that are there."""

    def loads(self, item_ids: Sequence[int], run_ids: Sequence[int]) -> tuple[Values, Values]:
        """Rows of items, each with a null for its live state, and rows of runs."""

    def attempts_of(self, run_id: int) -> list[AttemptRow]: ...

    def last_lines(self, run_id: int | None, job_id: int | None, limit: int) -> list[EventRow]:
        """The newest lines of history first."""

    def queued(
        self, item_ids: Sequence[int] | None, node_id: int | None, expired_us: int | None, *, limit: int
    ) -> list[QueueRow]:
        """Live items; with `expired_us` those finished from outside whose time is over in so many microseconds."""

    def asked_to_cancel(self, item_ids: Sequence[int]) -> Sequence[int]: ...

    def queue_counts(self) -> list[tuple[int, str, int]]:
        """How many live items there are, by lane and state."""

    def line(self) -> list[tuple[int, int]]:
        """The items (with their lanes) that may start now, in their order."""

    def seats_taken(self) -> dict[int, int]: ...

    def pulse(self, node_id: int) -> Pulse: ...

    def grants(self, node_id: int, after_round: int) -> list[tuple[int, int, str]]:
        """Round, instant and data of what later rounds gave to a node, in their order."""

    def members(self, *, gone: bool) -> tuple[int, list[FoundNode]]:
        """The clock, and the nodes that have a lease; `gone`: all."""

    def alarms(self, *, unsorted: bool, open_: bool, limit: int) -> list[AlarmRow]: ...

    def deliveries(self, limit: int, *, pending: bool) -> list[tuple[DeliveryRow, AlarmRow]]: ...

    # What is old, and how it is forgotten: in a few statements each, as the database does it best.

    def old_runs(self, ended_us: int, numbers_us: int, limit: int) -> list[int]:
        """Runs that were made and ended before then, oldest first; those of assignments before the second instant."""

    def surplus_runs(self, runs_max: int, limit: int, known: set[int]) -> list[int]:
        """The oldest ended runs of jobs that have more than so many of them, without those that are known."""

    def item_counts(self, run_ids: Sequence[int]) -> tuple[dict[int, int], set[int]]:
        """How many items each of the runs has, and which of the runs have a live one."""

    def forget_runs(self, run_ids: Sequence[int]) -> int:
        """Remove runs with their items, attempts and history; says how many rows, as the others do."""

    def forget_grants(self, before_us: int, limit: int) -> int: ...

    def forget_lines(self, before_us: int, limit: int) -> int:
        """Lines of history that are not about a run: those go with it."""

    def forget_alarms(self, before_us: int, limit: int) -> int:
        """Old alarms, however they were told; an open level stays."""

    def forget_keys(self, limit: int) -> int:
        """Overlap keys under which nothing is live. Who holds one, or waits for it, makes it anew if need be."""

    def forget_nodes(self, before_us: int, limit: int) -> int:
        """Nodes that left before then and have no items; and the numbers of names that no node has any more."""

    def forget_lanes(self, now_us: int, before_us: int, limit: int) -> int:
        """Lanes that nobody has used since then."""
