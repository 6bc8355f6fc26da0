"""What the product needs from the world: a durable store, a coordinator, a runner that executes, a place for logs,
and a clock. The contracts are the docstrings.

What changes the store is a function of `transactions/`, run by the store's `transact`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from rota.model.alarm import Alarm, AlarmRule, Deliveries, Message
from rota.model.cluster import Drains, Hold, Placeable
from rota.model.dispatch import Grant, Pulse
from rota.model.entry import Entry
from rota.model.job import Definition, Job, JobName
from rota.model.node import Members, Place
from rota.model.plan import JobFilter, RunFilter, Upcoming
from rota.model.run import Event, Item, Loads, LogKey, Run
from rota.model.standing import QuotaCount, Standing
from rota.model.work import Attempt, AttemptEnd, AttemptRecord, Limit, Queued
from rota.transactions.transactor import Transactor


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


class Courier(Protocol):
    """Takes messages to people. It decides nothing, and knows nothing of the store."""

    async def send(self, rule: AlarmRule, message: Message) -> str:
        """Send in bounded time; says what came back. Raises `Undelivered`. It may be called for many at a time."""
        ...


class Store(Transactor, Protocol):
    """The durable truth: it runs transactions, and answers what is asked outside of them."""

    @property
    def hears(self) -> bool:
        """Whether `listen` will tell of news."""
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

    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> int | None:
        """Prolong a lease, on a connection of its own that waits for nothing else. Returns the generation of the store;
        none: the node was given up."""
        ...

    async def drains(self) -> Drains:
        """The offline list."""
        ...

    async def holds(self) -> tuple[Hold, ...]:
        """The scopes that are held, widest first."""
        ...

    async def placeable(self, known: int) -> Placeable:
        """The jobs that need an owner: enabled, with a trigger; only if that set has changed since revision `known`."""
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

    async def queued(
        self,
        *,
        item_ids: Sequence[int] | None = None,
        node_id: int | None = None,
        expired: bool = False,
        limit: int = 1000,
    ) -> tuple[Queued, ...]:
        """Live items: by id, of a node, or those that are finished from outside and whose time is over."""
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

    def listen(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with a topic as soon as there is something to do, where the database can tell; elsewhere never.
        `dispatch`: items became ready, or something else changed for rounds; `seats`: seats were given back, nothing
        else; `node:ID`: that node was given something, or shall stop something."""
        ...

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        """Who wants to know what, by name."""
        ...

    async def alarms(self, *, unsorted: bool = False, open_: bool = False, limit: int = 100) -> tuple[Alarm, ...]:
        """The newest alarms first. `unsorted`: those about which no rule was asked yet; `open_`: the levels that have
        not ended; both oldest first."""
        ...

    async def deliveries(self, *, pending: bool = True, limit: int = 500) -> Deliveries:
        """What is on its way: of each rule so many, the oldest. Not `pending`: the newest of all, ended or not."""
        ...

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        """The newest lines of the history of a run or a job, oldest first."""
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
