"""What the product needs from the world: a durable store, a coordinator, a runner that executes, a place for logs,
and a clock. The contracts are the docstrings.

What changes the store is a function of `transactions/`, run by the store's `transact`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from rota.model.alarm import AlarmRule, Message
from rota.model.entry import Entry
from rota.model.node import Place
from rota.model.run import LogKey
from rota.model.work import Attempt, AttemptEnd
from rota.transactions.reads import Reads


class Clock(Protocol):
    """Time and chance. Nothing else in the product reads either."""

    def monotonic(self) -> float:
        """Seconds that only rise; for durations."""

    def boottime(self) -> float:
        """Seconds since the machine started, those asleep included: what the switches of process trees go by."""

    def wall(self) -> datetime:
        """This host's idea of UTC. Only embedded stores, which have no clock of their own, may decide by it."""

    async def sleep(self, seconds: float) -> None:
        """Let others work for so long."""

    def chance(self) -> float:
        """A random number in [0, 1)."""

    def token(self) -> str:
        """A random name that nobody else has."""


class Courier(Protocol):
    """Takes messages to people. It decides nothing, and knows nothing of the store."""

    async def send(self, rule: AlarmRule, message: Message) -> str:
        """Send in bounded time; says what came back. Raises `Undelivered`. It may be called for many at a time."""


class Store(Reads):
    """The durable truth: it runs transactions, and answers what is asked outside of them."""

    hears: bool
    """Whether `listen` will tell of all news."""
    is_called: bool
    """Whether `listen` will tell that something happened, by the topic `look`, though not what; and nothing of seats
    that were given back."""

    @abstractmethod
    async def migrate(self) -> None:
        """Bring the schema up to this release; safe when several nodes do it at once. Refuses a newer schema."""

    @abstractmethod
    async def check(self) -> None:
        """Raise `StoreRefused` if this store would lose what it acknowledged, or has another release's schema."""

    @abstractmethod
    async def weaknesses(self) -> tuple[str, ...]:
        """Why this store could lose what it has acknowledged, also if it is used all the same."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of every connection."""

    @abstractmethod
    async def probe(self) -> None:
        """Write something that changes nothing. Raises StoreUnavailable if the store is away, or takes no writes."""

    @abstractmethod
    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> int | None:
        """Prolong a lease, on a connection of its own that waits for nothing else. Returns the generation of the store;
        none: the node was given up."""

    @abstractmethod
    async def evict(self) -> int | None:
        """End connections of this cluster that have hung in the middle of a message, with locks, for longer than a
        transaction may be idle; says how many. None: here the database's own timeouts see to it."""

    @abstractmethod
    async def raise_generation(self, why: str, *, above: int | None = None) -> int:
        """Say that the store was restored from a backup, or lost its latest history otherwise: no id, round or token
        that was ever given comes again. With `above`, only if it is not higher than that. Returns what it is."""

    @abstractmethod
    def listen(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with a topic as soon as there is something to do, where the database can tell; elsewhere never.
        `dispatch`: items became ready, or something else changed for rounds; `seats`: seats were given back, nothing
        else; `jobs`: jobs may be due earlier than they were; `node:ID`: that node was given something, or shall stop
        something."""


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

    @property
    def believed_until_s(self) -> float:
        """Until when (monotonic) nobody else can have got a claim of this session: its last confirmed renewal, counted
        from when it was sent, plus `ttl_s`."""

    async def join(self) -> str:
        """Begin a session; one that this client still has is ended with its claims."""

    async def renew(self) -> bool:
        """Prolong the session. False: it is over."""

    async def leave(self) -> None:
        """End the session and its claims at once."""

    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        """Make claims of keys that nobody has; says which were won, with their fences. Keys that this session has
        already are told with the fence they have; their values stay."""

    async def release(self, fences: Mapping[str, int]) -> None:
        """Give up claims of this session, each only if it still has that fence."""

    async def update(self, key: str, fence: int, value: str) -> bool:
        """Change the value of a claim of this session. False: it has it no more."""

    async def get(self, key: str) -> Entry | None:
        """One entry."""

    async def read(self, folder: str) -> tuple[Entry, ...]:
        """The entries directly in a folder, by key."""

    async def keys(self, folder: str) -> frozenset[str]:
        """The keys directly in a folder: cheaper than to read it."""

    async def put(self, key: str, value: str, *, version: int | None = None) -> int | None:
        """Write an entry that lasts; says its new version. With `version`, only over that one (0: over none); none: the
        entry had another, or is a claim."""

    async def delete(self, key: str, version: int) -> bool:
        """Remove an entry, also a claim of another session, if it has this version."""

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        """Call `wake` soon after an entry directly in the folder, or the folder's own entry, has changed, and after
        changes may have been missed. It may be called for nothing."""

    async def close(self) -> None:
        """Leave, and let go of every connection."""


class Listener(Protocol):
    """What a runner tells the executor, from the event loop's thread, in batches."""

    def started(self, attempts: Sequence[tuple[int, int, float]]) -> None:
        """Attempts (item, attempt, CLOCK_MONOTONIC) whose first line has run."""

    def ended(self, ends: Sequence[AttemptEnd]) -> None:
        """Attempts that are over: every process of them was seen gone, or, in a warm worker, the function has
        returned and left no process behind."""

    def warned(self, item_id: int, attempt: int, message: str) -> None:
        """An attempt takes longer than it was expected to."""


class Runner(Protocol):
    """Executes attempts in processes of their own, inside boundaries. Decides nothing about them."""

    boundary: str

    async def open(self, listener: Listener) -> None:
        """Get ready. What earlier incarnations left on this host was swept when this returns."""

    def here(self) -> Place:
        """Where this process runs."""

    def gone(self, place: Place) -> bool:
        """Whether a process of this very host is seen gone, with everything it had started. What cannot be seen is not
        gone."""

    def renew(self, until_s: float) -> None:
        """Every process dies by its own switch at `until_s` (CLOCK_BOOTTIME) plus its `hold_s`, whatever becomes of the
        agent; a past instant starts nothing."""

    def unable(self) -> str:
        """Why nothing can be started at present; nothing if all is well."""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        """Start attempts as soon as may be. Each is reported as ended exactly once, whatever happens."""

    def cancel(self, item_ids: Sequence[int]) -> None:
        """Ask attempts to end (TERM, then KILL after their grace). They are reported as cancelled."""

    def drop(self, attempts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """Kill attempts (item, token) at once; they are reported as lost. Returns those that are not gone yet."""

    async def close(self) -> None:
        """Kill what is left, see it gone, report it as lost, and let go of everything."""


class LogStore(Protocol):
    """Where the output of attempts is kept: chunks by offset, so that writing twice changes nothing."""

    def append(self, key: LogKey, offset: int, data: bytes) -> None:
        """Keep a chunk of output, whole or not at all. Raises LogGap if what was before it is gone."""

    def read(self, key: LogKey, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes from there on; nothing at the end. Raises LogUnreadable."""

    def close_log(self, key: LogKey, total: int) -> None:
        """Say how many bytes there were in all, so that a gap at the end can be told from an end."""

    def total(self, key: LogKey) -> int | None:
        """What `close_log` said; none while the attempt runs, or when its host died."""

    def runs(self, after_id: int, limit: int) -> Sequence[int]:
        """Runs of which there may be output here, by rising ids: the first so many after that one."""

    def prune(self, run_ids: Sequence[int]) -> None:
        """Forget the output of these runs."""
