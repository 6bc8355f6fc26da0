"""What the product needs from the world: a durable store, a coordinator, a runner that executes, a place for logs,
and a clock. The contracts are the docstrings.

Every verb of the store may be repeated after `StoreUnavailable` or `CommitUnknown`: what was already done is found
done. Verbs that decide are shaped *locked read -> pure decision -> fenced write*; the rule they are given may be
called more than once, because a transaction that lost a race is rolled back and made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, Protocol, TypeVar

from rota.model.alarm import Alarm, AlarmRule, Deliveries, Delivery, Message, Settled
from rota.model.cluster import Drain, Drains, Hold, Placeable, Role
from rota.model.dispatch import Board, Finished, Grant, ItemEnd, ItemStart, Pulse, Ready, Round, Seated, TargetRow
from rota.model.entry import Entry
from rota.model.job import Definition, Job, JobName
from rota.model.node import Joined, Members, NewNode, Place
from rota.model.plan import Committed, JobFilter, Rule, RunFilter, Upcoming
from rota.model.run import Event, Item, Loads, LogKey, Run
from rota.model.standing import Cancelled, Closed, Pruned, QuotaCount, Retention, Standing
from rota.model.states import Cause
from rota.model.tables import Change, ItemRow, QueueRow, RunRow, Table
from rota.model.work import Assignment, Attempt, AttemptEnd, AttemptRecord, Limit, Queued, SuspectedOverlap

R = TypeVar("R", bound=tuple[Any, ...])


class Clock(Protocol):
    """Time and chance. Nothing else in the product reads either."""

    def monotonic(self) -> float:
        """Seconds that only rise; for durations."""
        ...

    def boottime(self) -> float:
        """Seconds since the machine started, those asleep included: what the switches of process trees go by."""
        ...

    def wall(self) -> datetime:
        """This host's idea of UTC. Only embedded stores, which have no clock of their own, may decide by it."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Let others work for so long."""
        ...

    def chance(self) -> float:
        """A random number in [0, 1)."""
        ...

    def token(self) -> str:
        """A random name that nobody else has."""
        ...


class AlarmStore(Protocol):
    """What a store keeps of alarms. Its other transactions raise those that are lines of history, too."""

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        """Who wants to know what, by name."""
        ...

    async def set_alarm_rule(self, rule: AlarmRule) -> AlarmRule:
        """Make a rule, or change the one of that name. A new one is told of what happens from now on."""
        ...

    async def remove_alarm_rule(self, name: str) -> bool:
        """Forget a rule and what is on its way by it. False: there was none."""
        ...

    async def raise_alarms(self, alarms: Sequence[Alarm], ended: Sequence[str] = ()) -> None:
        """Write alarms whose keys are not there yet. `ended` are keys of levels: each that is still open is closed, and
        its recovery is raised; the same key may begin anew."""
        ...

    async def alarms(self, *, unsorted: bool = False, open_: bool = False, limit: int = 100) -> tuple[Alarm, ...]:
        """The newest alarms first. `unsorted`: those about which no rule was asked yet; `open_`: the levels that have
        not ended; both oldest first."""
        ...

    async def sort_alarms(self, told: Sequence[tuple[Alarm, Sequence[str]]]) -> None:
        """Write what was found out about alarms, and a delivery for each rule that is to be told. Once each."""
        ...

    async def deliveries(self, *, pending: bool = True, limit: int = 500) -> Deliveries:
        """What is on its way: of each rule so many, the oldest. Not `pending`: the newest of all, ended or not."""
        ...

    async def take_deliveries(self, deliveries: Sequence[Delivery], *, lease_s: float) -> bool:
        """Begin to send these, unless somebody else has begun with one of them since they were read; nobody else will
        for `lease_s`."""
        ...

    async def settle_deliveries(self, settled: Sequence[Settled]) -> None:
        """Write what became of deliveries that were taken."""
        ...


class Courier(Protocol):
    """Takes messages to people. It decides nothing, and knows nothing of the store."""

    async def send(self, rule: AlarmRule, message: Message) -> str:
        """Send in bounded time; says what came back. Raises `Undelivered`. It may be called for many at a time."""
        ...


class Store(AlarmStore, Protocol):
    """The durable truth."""

    @property
    def hears(self) -> bool:
        """Whether `listen` will tell of all news."""
        ...

    @property
    def is_called(self) -> bool:
        """Whether `listen` will tell that something happened, by the topic `look`, though not what; and nothing of
        seats that were given back."""
        ...

    @property
    def unread(self) -> Mapping[str, str]:
        """Records that were met and that this release cannot read, and why. Lists leave them out."""
        ...

    async def migrate(self) -> None:
        """Bring the schema up to this release; safe when several nodes do it at once. Refuses a newer schema."""
        ...

    async def check(self) -> None:
        """Raise `StoreRefused` if this store would lose what it acknowledged, or has another release's schema."""
        ...

    async def weaknesses(self) -> tuple[str, ...]:
        """Why this store could lose what it has acknowledged, also if it is used all the same."""
        ...

    async def close(self) -> None:
        """Let go of every connection."""
        ...

    async def now(self) -> datetime:
        """The store's clock: the only one that decides."""
        ...

    async def probe(self) -> None:
        """Write something that changes nothing. Raises StoreUnavailable if the store is away, or takes no writes."""
        ...

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        """The enabled jobs that are due by now + `within_s`, earliest first. Not locked: a hint for the caller."""
        ...

    async def fire(self, job_ids: Sequence[int], rule: Rule) -> Committed:
        """Lock those of the jobs that nobody else holds, let the rule decide on them, commit its plan.

        Jobs held by another transaction are left out of the facts instead of being waited for.
        """
        ...

    async def change(
        self,
        names: Sequence[JobName],
        rule: Rule,
        *,
        known: Sequence[tuple[JobName, str]] = (),
        cause: Cause = Cause.MANUAL,
        waiting: bool = False,
    ) -> Committed:
        """Lock the jobs of these names that exist (deleted ones too), waiting for them; decide; commit.

        `known` names runs of one cause (job and key) that the facts shall show if they exist already; an empty plan
        brings them back. With `waiting`, the overlap keys under which runs of these jobs wait are locked and shown too.
        """
        ...

    async def named(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        """Those of the named jobs that exist, deleted ones too, in order of their creation."""
        ...

    async def jobs(self, wanted: JobFilter) -> tuple[Job, ...]:
        """A page of jobs."""
        ...

    async def run(self, run_id: int) -> Run | None:
        """One run."""
        ...

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        """A page of runs."""
        ...

    async def items(self, run_id: int) -> tuple[Item, ...]:
        """The items of a run, by task and index."""
        ...

    async def join(self, node: NewNode, *, lease_s: float) -> Joined:
        """Give a node its id and its first lease. A node of the same name that is still believed alive is fenced: it
        cannot renew any more, but its items stay its own until they are rescued. It also gets its number within its
        group; Refused: the one that it asks for is another's whose lease lasts."""
        ...

    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> int | None:
        """Prolong a lease, on a connection of its own that waits for nothing else. Returns the generation of the store;
        none: the node was given up."""
        ...

    async def settle(self, node_id: int, ended: Sequence[tuple[int, int]]) -> None:
        """Say that a node has nothing in hand that the store does not know of, after the generation was raised; `ended`
        are the attempts (item, attempt) that it had to end for that. Until all nodes have said so, for as long as a
        lease at most, rounds give nothing to anybody: what executes unknown to the store counts against the caps."""
        ...

    async def advertise(self, node_id: int, handlers: Sequence[str], digests: Mapping[str, str]) -> None:
        """Change what a node says it can run."""
        ...

    async def retire(self, node_id: int) -> None:
        """Give this incarnation no more items: it is draining, finishes what it has, and leaves."""
        ...

    async def leave(self, node_id: int, *, rule: Rule | None = None) -> None:
        """A clean stop: the node is offline; its lease is over. Items that it still has go back, ready, at no cost.
        Those that were asked to stop are over: the rule says what follows for the runs of jobs."""
        ...

    async def drain(self, drains: Sequence[Drain]) -> None:
        """Put nodes, by name, on the offline list, in these roles too if they are there already. It lasts."""
        ...

    async def undrain(self, names: Sequence[str], roles: Sequence[Role]) -> None:
        """Take nodes off it, in these roles."""
        ...

    async def drains(self) -> Drains:
        """The offline list."""
        ...

    async def hold(self, tenant: str = "", project: str = "") -> None:
        """Let nothing of a scope fire: of a project of a tenant, of a tenant, of all. It lasts; when this returns,
        nothing of it fires any more, whatever a node has read before."""
        ...

    async def unhold(self, tenant: str = "", project: str = "") -> bool:
        """End that; says whether it was held. What fell due meanwhile follows the misfire policies of the jobs."""
        ...

    async def holds(self) -> tuple[Hold, ...]:
        """The scopes that are held, widest first."""
        ...

    async def placeable(self, known: int) -> Placeable:
        """The jobs that need an owner: enabled, with a trigger; only if that set has changed since revision `known`."""
        ...

    async def misplaced(self, *, repair: bool = False) -> int:
        """How many jobs `placeable` tells of wrongly, or not at all; and put that right if asked to."""
        ...

    async def busy_jobs(self, job_ids: Sequence[int]) -> frozenset[int]:
        """Those of the jobs that have a live run."""
        ...

    async def nodes(self, *, gone: bool = False) -> Members:
        """The nodes that are believed alive, with their leases; `gone`: all that ever joined and are still kept."""
        ...

    async def limits(self) -> tuple[Limit, ...]:
        """All limits that were set."""
        ...

    async def set_limits(self, limits: Sequence[Limit], removed: Sequence[str] = ()) -> None:
        """Set limits (cap, weight and rate; what is remembered of starts stays) and remove others, under the dispatch
        lock. A cap below what runs stops new starts only."""
        ...

    async def assign(self, wanted: Assignment, *, quota_must_exist: bool = True) -> Run:
        """Make one run of an assignment, its items ready. The same key makes it once. Raises InvalidInput when a number
        is taken, Refused when the quota was never set."""
        ...

    async def dispatch(self, node_id: int, board: Board, *, batch_max: int) -> Round:
        """One round: lock, learn, decide, write the grants. Any failure leaves the board forgetful."""
        ...

    async def pulse(self, node_id: int) -> Pulse:
        """Whether there is something to do."""
        ...

    async def granted(self, node_id: int, after_round: int) -> tuple[Grant, ...]:
        """What later rounds gave to a node, in their order."""
        ...

    async def loads(self, item_ids: Sequence[int], run_ids: Sequence[int] = ()) -> Loads:
        """Items and runs by id, in any order, for execution. Their states are as they were written last: a live item's
        is in the queue, and a run of an assignment stays open for a while after its last item."""
        ...

    async def runs_of(self, run_ids: Sequence[int]) -> Sequence[Run]:
        """Runs by id, in any order."""
        ...

    async def definitions(self, versions: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], Definition]:
        """The definitions of (job, version)."""
        ...

    async def finish(
        self,
        ends: Sequence[ItemEnd],
        starts: Sequence[ItemStart] = (),
        *,
        rule: Rule | None = None,
        notices: Mapping[int, Sequence[Assignment]] = {},
    ) -> Finished:
        """Write ends and starts of attempts, only those that are still current. Runs of jobs whose items changed are
        locked first, and the rule says what follows for them (`Facts.runs`, `Facts.items`), in the same transaction.
        The notices of items (by id) whose end counted are assigned in it too."""
        ...

    async def suspect_overlap(self, overlaps: Sequence[SuspectedOverlap]) -> None:
        """Add a line to the history of a run for each of these attempts (`item.overlap_suspected`)."""
        ...

    async def rescue(
        self,
        node_id: int,
        beat: int,
        ends: Sequence[ItemEnd],
        *,
        rule: Rule,
        margin_s: float,
        seen_gone: bool = False,
        notices: Mapping[int, Sequence[Assignment]] = {},
    ) -> bool:
        """Take items from a node whose lease has been over for `margin_s` by the store's clock, and whose renewals have
        not gone beyond `beat`; `seen_gone`: whose processes were seen gone instead. When it has none left, the node is
        disconnected. False: it was alive after all."""
        ...

    async def queued(
        self,
        *,
        item_ids: Sequence[int] | None = None,
        node_id: int | None = None,
        expired: bool = False,
        ahead_s: float = 0.0,
        limit: int = 1000,
    ) -> tuple[Queued, ...]:
        """Live items: by id, of a node, or those that are finished from outside and whose time is over, or will be in
        `ahead_s`."""
        ...

    async def extend(self, item_id: int, attempt: int, seconds: float) -> datetime | None:
        """Give an item that is finished from outside more time, from now; none: it is not there any more."""
        ...

    async def cancel(self, run_ids: Sequence[int], *, rule: Rule) -> Cancelled:
        """Cancel what of these runs has not started (and what is finished from outside); ask the rest to stop."""
        ...

    async def asked_to_cancel(self, item_ids: Sequence[int]) -> tuple[int, ...]:
        """Those of the live items that were asked to stop."""
        ...

    async def attempts(self, run_id: int) -> tuple[AttemptRecord, ...]:
        """The attempts at a run's items that are over, oldest first."""
        ...

    async def standing(self, run_id: int) -> Standing:
        """What `explain` needs to know about a run that waits."""
        ...

    async def statistics(self) -> tuple[QuotaCount, ...]:
        """How many items are ready and executing, by quota."""
        ...

    async def unstarted(self, run_ids: Sequence[int]) -> frozenset[int]:
        """Those of the running runs of which no item was given to a node yet."""
        ...

    async def seats_taken(self) -> Mapping[int, int]:
        """How many seats of each node (by id) are taken."""
        ...

    async def close_runs(self, *, after_id: int = 0, limit: int) -> Closed:
        """Look at the next open runs of assignments, and close those whose items have all ended."""
        ...

    async def settle_runs(self, rule: Rule, *, after_id: int = 0, limit: int) -> Closed:
        """Decide what follows for runs of jobs whose items have all ended and that are still open: a node that could
        not read them or their jobs has ended the items. Some at a time, in the order of their ids."""
        ...

    async def live_runs(self, tenant: str, *, after_id: int = 0, limit: int = 1000) -> tuple[int, ...]:
        """The runs (ids, rising) of a tenant that have not ended: with live items, or waiting for their turn."""
        ...

    async def evict(self) -> int | None:
        """End connections of this cluster that have hung in the middle of a message, with locks, for longer than a
        transaction may be idle; says how many. None: here the database's own timeouts see to it."""
        ...

    async def generation(self) -> int:
        """The high part of every token: rises when the store has lost the latest part of its history."""
        ...

    async def raised(self) -> tuple[datetime, str] | None:
        """When the generation was raised last, and why; none if it never was."""
        ...

    async def raise_generation(self, why: str, *, above: int | None = None) -> int:
        """Say that the store was restored from a backup, or lost its latest history otherwise: no id, round or token
        that was ever given comes again. With `above`, only if it is not higher than that. Returns what it is."""
        ...

    async def forgotten(self, run_ids: Sequence[int]) -> Sequence[int]:
        """Those of the runs that were here once and were forgotten. Ids that were never given are not of this store."""
        ...

    async def prune(self, wanted: Retention, *, limit: int) -> Pruned:
        """Forget a small batch of what is older, or more, than shall be kept."""
        ...

    def listen(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with a topic as soon as there is something to do, where the database can tell; elsewhere never.
        `dispatch`: items became ready, or something else changed for rounds; `seats`: seats were given back, nothing
        else; `jobs`: jobs may be due earlier than they were; `node:ID`: that node was given something, or shall stop
        something."""
        ...

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        """The newest lines of the history of a run or a job, oldest first."""
        ...


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
        ...

    def read(self, table: Table[R], keys: Iterable[Any]) -> list[R]:
        """Rows by their keys, in the order of the keys; those that are not there are left out."""
        ...

    def lock(self, table: Table[R], keys: Iterable[Any], *, skip: bool = False) -> list[R]:
        """The same, locked until the transaction ends. It waits for others; `skip` leaves out what they hold."""
        ...

    def find(self, table: Table[R], index: str, values: Iterable[Any]) -> list[R]:
        """Rows by the values of an index that the table declares, in the order of the keys."""
        ...

    def all(self, table: Table[R]) -> list[R]:
        """Every row of a small table, in the order of the keys."""
        ...

    def insert(
        self,
        table: Table[Any],
        rows: Sequence[tuple[Any, ...]],
        columns: tuple[str, ...] | None = None,
        *,
        missing: bool = False,
    ) -> None:
        """New rows of these columns, or of all; the others are null. A key or unique value that is there already is a
        `Conflict`; `missing` leaves such rows out."""
        ...

    def change(self, change: Change, rows: Sequence[tuple[Any, ...]], *, exact: bool = False) -> None:
        """Change rows. One that is no longer as it was read stays as it is; if `exact`, that is a `Conflict`."""
        ...

    def changed(self, change: Change, rows: Sequence[tuple[Any, ...]]) -> set[Any]:
        """Change rows at once, and return the keys of those that still were as they were read. It locks them."""
        ...

    def remove(
        self,
        table: Table[Any],
        keys: Sequence[Any],
        *,
        where: tuple[tuple[str, Any], ...] = (),
        exact: bool = False,
    ) -> None:
        """Remove rows that still have these values; if `exact`, one that is not there or has others is a `Conflict`."""
        ...

    def disjoint(self, *tables: Table[Any]) -> None:
        """Promise that no row of these tables is written twice in what follows: then one statement may do it all."""
        ...

    def reserve(self, counter: str, count: int) -> int:
        """Numbers that nobody else gets; returns the first of them."""
        ...


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


class PruneQuestions(Protocol):
    """What is old, and how it is forgotten: in a few statements each, as the database does it best."""

    def old_runs(self, ended_us: int, numbers_us: int, limit: int) -> list[int]:
        """Runs that were made and ended before then, oldest first; those of assignments before the second instant."""
        ...

    def surplus_runs(self, runs_max: int, limit: int, known: set[int]) -> list[int]:
        """The oldest ended runs of jobs that have more than so many of them, without those that are known."""
        ...

    def item_counts(self, run_ids: Sequence[int]) -> tuple[dict[int, int], set[int]]:
        """How many items each of the runs has, and which of the runs have a live one."""
        ...

    def forget_runs(self, run_ids: Sequence[int]) -> int:
        """Remove runs with their items, attempts and history; says how many rows, as the others do."""
        ...

    def forget_grants(self, before_us: int, limit: int) -> int: ...

    def forget_lines(self, before_us: int, limit: int) -> int:
        """Lines of history that are not about a run: those go with it."""
        ...

    def forget_alarms(self, before_us: int, limit: int) -> int:
        """Old alarms, however they were told; an open level stays."""
        ...

    def forget_keys(self, limit: int) -> int:
        """Overlap keys under which nothing is live. Who holds one, or waits for it, makes it anew if need be."""
        ...

    def forget_nodes(self, before_us: int, limit: int) -> int:
        """Nodes that left before then and have no items; and the numbers of names that no node has any more."""
        ...

    def forget_lanes(self, now_us: int, before_us: int, limit: int) -> int:
        """Lanes that nobody has used since then."""
        ...


class Questions(PruneQuestions, Protocol):
    """What is asked of a store inside a transaction and is no look-up of rows. One statement each, nothing locked."""

    def due_jobs(self, tenant: str, project: str, until_us: int) -> list[int]:
        """The jobs of a scope that are due by then, by rising ids."""
        ...

    def crowds(self, keys: Sequence[str]) -> tuple[int, list[CrowdCount]]:
        """The clock, and how many runs of jobs are live under these overlap keys."""
        ...

    def named_runs(self, keys: Sequence[str]) -> list[NamedRun]:
        """Those runs, oldest first."""
        ...

    def live_counts(self, job_ids: Sequence[int]) -> dict[int, int]:
        """How many live runs each of the jobs has."""
        ...

    def waiting_keys(self, job_ids: Sequence[int]) -> list[str]:
        """The overlap keys under which runs of these jobs wait."""
        ...

    def last_ends(self, job_id: int, since_us: int, states: Sequence[str], limit: int) -> list[str]:
        """The states of the last runs of a job that were made since then and ended in one of these, newest first."""
        ...

    def live_items(self, run_ids: Sequence[int]) -> list[LiveItem]:
        """The items of runs, by run, task and index."""
        ...

    def fired_with(self, run_ids: Sequence[int]) -> list[FiredWith]:
        """The versions that runs were fired with."""
        ...

    def tally(self, run_ids: Sequence[int]) -> list[Tally]:
        """The items of runs, counted."""
        ...

    def assignment(self, key: str, quota: str) -> AssignmentFacts:
        """What is known of an assignment by its full key, and of a limit by its name."""
        ...

    def ready(self) -> list[Ready]:
        """All that waits for its turn."""
        ...

    def seated(self) -> list[Seated]:
        """All that holds a seat, or counts against limits without one."""
        ...

    def queue_of(self, node_id: int) -> list[QueueRow]:
        """What a node has been given, by rising ids."""
        ...

    def take_arrivals(self) -> list[tuple[str, str]]:
        """Remove and return all arrivals (kind, data) that are committed, oldest first, waiting for no others."""
        ...

    def targets(self) -> tuple[int, list[TargetRow]]:
        """The clock, and the nodes that may be given something."""
        ...

    def living_names(self, now_us: int) -> set[str]:
        """The names of the nodes whose leases last."""
        ...


class Coordinator(Protocol):
    """Says who should try: a session, claims that end with it, entries that last, and a word when something changed.

    One object is one client with at most one session at a time. Verbs raise `CoordinatorUnavailable` when there is no
    answer in bounded time; what was asked may then have been done, and every verb may be repeated. Those that need a
    session raise `SessionLost` without a living one. What was done before a verb is seen by every later one, whichever
    client asks. Below a claim there are no entries.
    """

    ttl_s: float
    """How long a session lives after its last renewal."""

    @property
    def session(self) -> str | None:
        """The name of the session; none before `join`, and once it was seen to be over."""
        ...

    @property
    def believed_until_s(self) -> float:
        """Until when (monotonic) nobody else can have got a claim of this session: its last confirmed renewal, counted
        from when it was sent, plus `ttl_s`."""
        ...

    async def join(self) -> str:
        """Begin a session; one that this client still has is ended with its claims."""
        ...

    async def renew(self) -> bool:
        """Prolong the session. False: it is over."""
        ...

    async def leave(self) -> None:
        """End the session and its claims at once."""
        ...

    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        """Make claims of keys that nobody has; says which were won, with their fences. Keys that this session has
        already are told with the fence they have; their values stay."""
        ...

    async def release(self, fences: Mapping[str, int]) -> None:
        """Give up claims of this session, each only if it still has that fence."""
        ...

    async def update(self, key: str, fence: int, value: str) -> bool:
        """Change the value of a claim of this session. False: it has it no more."""
        ...

    async def get(self, key: str) -> Entry | None:
        """One entry."""
        ...

    async def read(self, folder: str) -> tuple[Entry, ...]:
        """The entries directly in a folder, by key."""
        ...

    async def keys(self, folder: str) -> frozenset[str]:
        """The keys directly in a folder: cheaper than to read it."""
        ...

    async def put(self, key: str, value: str, *, version: int | None = None) -> int | None:
        """Write an entry that lasts; says its new version. With `version`, only over that one (0: over none); none: the
        entry had another, or is a claim."""
        ...

    async def delete(self, key: str, version: int) -> bool:
        """Remove an entry, also a claim of another session, if it has this version."""
        ...

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        """Call `wake` soon after an entry directly in the folder, or the folder's own entry, has changed, and after
        changes may have been missed. It may be called for nothing."""
        ...

    async def close(self) -> None:
        """Leave, and let go of every connection."""
        ...


class Listener(Protocol):
    """What a runner tells the executor, from the event loop's thread, in batches."""

    def started(self, attempts: Sequence[tuple[int, int, float]]) -> None:
        """Attempts (item, attempt, CLOCK_MONOTONIC) whose first line has run."""
        ...

    def ended(self, ends: Sequence[AttemptEnd]) -> None:
        """Attempts that are over: every process of them was seen gone, or, in a warm worker, the function has
        returned and left no process behind."""
        ...

    def warned(self, item_id: int, attempt: int, message: str) -> None:
        """An attempt takes longer than it was expected to."""
        ...


class Runner(Protocol):
    """Executes attempts in processes of their own, inside boundaries. Decides nothing about them."""

    boundary: str

    async def open(self, listener: Listener) -> None:
        """Get ready. What earlier incarnations left on this host was swept when this returns."""
        ...

    def here(self) -> Place:
        """Where this process runs."""
        ...

    def gone(self, place: Place) -> bool:
        """Whether a process of this very host is seen gone, with everything it had started. What cannot be seen is not
        gone."""
        ...

    def renew(self, until_s: float) -> None:
        """Every process dies by its own switch at `until_s` (CLOCK_BOOTTIME) plus its `hold_s`, whatever becomes of the
        agent; a past instant starts nothing."""
        ...

    def unable(self) -> str:
        """Why nothing can be started at present; nothing if all is well."""
        ...

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Start attempts as soon as may be. Each is reported as ended exactly once, whatever happens."""
        ...

    def cancel(self, item_ids: Sequence[int]) -> None:
        """Ask attempts to end (TERM, then KILL after their grace). They are reported as cancelled."""
        ...

    def drop(self, attempts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Kill attempts (item, token) at once; they are reported as lost. Returns those that are not gone yet."""
        ...

    async def close(self) -> None:
        """Kill what is left, see it gone, report it as lost, and let go of everything."""
        ...


class LogStore(Protocol):
    """Where the output of attempts is kept: chunks by offset, so that writing twice changes nothing."""

    def append(self, key: LogKey, offset: int, data: bytes) -> None:
        """Keep a chunk of output, whole or not at all. Raises LogGap if what was before it is gone."""
        ...

    def read(self, key: LogKey, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from there on; nothing at the end. Raises LogUnreadable."""
        ...

    def close_log(self, key: LogKey, total: int) -> None:
        """Say how many bytes there were in all, so that a gap at the end can be told from an end."""
        ...

    def total(self, key: LogKey) -> int | None:
        """What `close_log` said; none while the attempt runs, or when its host died."""
        ...

    def runs(self, after_id: int, limit: int) -> Sequence[int]:
        """Runs of which there may be output here, by rising ids: the first so many after that one."""
        ...

    def prune(self, run_ids: Sequence[int]) -> None:
        """Forget the output of these runs."""
        ...
