"""One transaction under way, the same on every store: its locks in their order, the ids and lanes that it takes, its
lines of history, and what it tells the node that makes the rounds.

What it took is kept for the next one only if it commits. Whatever makes an item ready, or frees a seat, says so here;
it reaches the holder of the dispatch lock as arrivals, written once at the end.

A `Transactor` runs transactions: the part of a store that the functions of this package ask for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

from rota.model import tables
from rota.model.alarm import Alarm
from rota.model.dispatch import ArrivalKind, Draft, ItemEnd, Ready, Seen, TargetRow
from rota.model.readable import Readings
from rota.model.records import from_us
from rota.model.tables import Change, QueueRow, Table
from rota.model.value import Json, encode
from rota.model.work import Lane
from rota.transactions.lanes import KnownLane, look_up
from rota.transactions.locks import Order
from rota.transactions.record import alarm_of
from rota.transactions.rows import Conflict, Questions, Rows

P = ParamSpec("P")
R = TypeVar("R", bound=tuple[Any, ...])
T = TypeVar("T")

BLOCK = 1000
"""How many ids a process takes from the store at once. What it does not use is lost; ids have gaps."""
RUN = "run"
RUN_BLOCK_US = 1_000_000
"""How long a process gives away the run ids that it has taken. People read these ids, and lists are in their order:
they shall rise with time, whichever process makes a run. So a block begins with what is needed now, is doubled while
it is used up in time, and is dropped when it gets old."""
CHUNK = 1000
"""How many records one arrival holds at most."""

_INTERRUPT = Change(tables.DISPATCH, ("id",), raised=("changes",))


class Ids:
    """The ids that this process may still give away, by the name of their counter."""

    def __init__(self, run_block_max: int = 1) -> None:
        self._free: dict[str, range] = {}
        self._run_block_max = run_block_max
        self._run_block = 1
        self._run_block_at = 0

    def take(self, tx: Tx, name: str, count: int) -> Iterator[int]:
        """Take ids. What a new block leaves over goes to `tx.left`, to be kept only if the transaction commits."""
        if name == RUN and not 0 <= tx.now_us - self._run_block_at < RUN_BLOCK_US:
            self._free.pop(RUN, None)
            self._run_block, self._run_block_at = 1, tx.now_us
        free = self._free.pop(name, range(0))
        if len(free) >= count:
            self._free[name] = free[count:]
            return iter(free[:count])
        lacking = count - len(free)
        size = max(lacking, BLOCK if name != RUN else self._run_block)
        if name == RUN:
            self._run_block = min(2 * size, self._run_block_max)
        start = tx.reserve(name, size)
        tx.left.put(name, range(start + lacking, start + size))
        return chain(free, range(start, start + lacking))

    def lacks(self, name: str, count: int) -> bool:
        return len(self._free.get(name, range(0))) < count

    def keep(self, left: Ids) -> None:
        for name, free in left._free.items():
            self.put(name, free)

    def put(self, name: str, free: range) -> None:
        """Have these ids, unless there are more already."""
        if len(free) > len(self._free.get(name, range(0))):
            self._free[name] = free


class ProcessMemory:
    """What a process keeps between its transactions."""

    def __init__(self, actor: str, run_block_max: int = 1) -> None:
        self.actor = actor
        self._run_block_max = run_block_max
        self.readings = Readings()
        self.ids = Ids(run_block_max)
        self.lanes: dict[Lane, KnownLane] = {}
        self.is_settled = True
        """Whether no node executes what the store has lost, as far as the last round under the lock knows."""

    def forget(self) -> None:
        """Forget what was taken from a store that went back: ids, and ids of lanes."""
        self.ids, self.lanes = Ids(self._run_block_max), {}

    def keep(self, tx: Tx) -> None:
        """A transaction was committed: keep what it took and did not use."""
        self.ids.keep(tx.left)
        if tx.new_lanes:
            still = {lane: it for lane, it in self.lanes.items() if it.holds(tx.now_us)}
            self.lanes = still | tx.new_lanes


class Tx:
    """What the functions of this package work with."""

    def __init__(
        self, rows: Rows, ask: Questions, memory: ProcessMemory, *, attempt: int = 1, also: Conflict | None = None
    ) -> None:
        self.rows = rows
        self.ask = ask
        self.memory = memory
        self.attempt = attempt
        """Which try this is; an earlier one was rolled back."""
        self._also = also
        self._order = Order()
        self._queue: dict[int, QueueRow] | None = None
        self.left = Ids()
        self.new_lanes: dict[Lane, KnownLane] = {}
        self.now_us = 0
        """The store's clock, as it was last read."""
        self._lines: list[tuple[Any, ...]] = []
        self.ready: list[Ready] = []
        self.ended: list[int] = []
        self.gone: list[int] = []
        self.outside: list[tuple[int, int]] = []
        self.is_news = False
        """Whether a round may find something to do although no item changed."""
        self.woken: set[int] = set()
        """Nodes that have something to read."""
        self.jobs_changed = False
        """Whether jobs may be due earlier than schedulers know."""
        self.happened: list[Alarm] = []
        """What people may want to know of."""

    @property
    def actor(self) -> str:
        return self.memory.actor

    @property
    def readings(self) -> Readings:
        return self.memory.readings

    @property
    def now(self) -> datetime:
        return from_us(self.now_us)

    def read_clock(self) -> datetime:
        """The store's clock, for decisions: after everything is locked that they depend on."""
        self.now_us = self.rows.now_us()
        return from_us(self.now_us)

    def lock(self, table: Table[R], keys: Iterable[Any], *, skip: bool = False) -> list[R]:
        """Lock rows, in the order that all transactions keep."""
        wanted = sorted(set(keys))
        if not wanted:
            return []
        self._order.lock(table, wanted, skip=skip)
        return self.rows.lock(table, wanted, skip=skip)

    def lock_jobs(self, job_ids: Iterable[int], *, skip: bool = False) -> list[tables.JobRow]:
        """Lock jobs, with those that an earlier try found to be missing."""
        more = self._also.jobs if self._also is not None else frozenset()
        return self.lock(tables.JOB, {*job_ids, *more}, skip=skip and not more)

    def lock_queue(self, item_ids: Iterable[int]) -> list[QueueRow]:
        """Lock live items. What is found to be needed later is locked with the others by the next try."""
        wanted = set(item_ids)
        if self._queue is None:
            more = self._also.items if self._also is not None else frozenset()
            self._queue = {row.item_id: row for row in self.lock(tables.QUEUE, wanted | more)}
            self._locked = wanted | more
        elif wanted - self._locked:
            raise Conflict("more items must be locked", items=wanted)
        return [self._queue[it] for it in sorted(wanted) if it in self._queue]

    def interrupt_rounds(self) -> None:
        """Take the dispatch lock, to change what rounds rest on: limits, and who is a member. A round that was decided
        on before that, without the lock, finds the row changed and is not written."""
        self._order.lock(tables.DISPATCH, [1])
        self.rows.changed(_INTERRUPT, [(1,)])

    def reserve(self, counter: str, count: int) -> int:
        """Numbers that nobody else gets; returns the first of them."""
        self._order.count(counter)
        return self.rows.reserve(counter, count)

    def reserve_node(self) -> int:
        """The id of a node that joins. Until this transaction ends, nobody else joins."""
        self._order.mutex()
        return self.rows.reserve("node", 1)

    def ids(self, name: str, count: int) -> Iterator[int]:
        return self.memory.ids.take(self, name, count)

    def lane_ids(self, wanted: Iterable[Lane]) -> Mapping[Lane, int]:
        """The ids of lanes. New ones are made: they never change, and few are."""
        wanted = set(wanted)
        lanes = self.memory.lanes
        known = {lane: it.id for lane in wanted if (it := lanes.get(lane)) and it.holds(self.now_us)}
        missing = [lane for lane in wanted if lane not in known and lane not in self.new_lanes]
        if missing:
            if not self.now_us:
                self.read_clock()
            self.new_lanes |= look_up(self, missing)
        return {lane: known.get(lane) or self.new_lanes[lane].id for lane in wanted}

    def record(self, kind: str, data: dict[str, Json], *, job_id: int | None = None, run_id: int | None = None) -> None:
        """Add a line to the history."""
        self._lines.append((self.now_us, kind, self.actor, job_id, run_id, None, encode(data)))
        if (alarm := alarm_of(kind, data, from_us(self.now_us), job_id, run_id)) is not None:
            self.happened.append(alarm)

    def write_lines(self) -> None:
        """Write the lines of history, and the arrivals for the next round: the last step before the commit."""
        if self._lines:
            ids = self.ids("row", len(self._lines))
            self.rows.insert(tables.EVENT, [(next(ids), *line) for line in self._lines])
        arrivals = list(self._arrivals())
        if arrivals:
            at = self.now_us or self.rows.now_us()
            ids = self.ids("row", len(arrivals))
            self.rows.insert(tables.ARRIVAL, [(next(ids), at, str(kind), encode(data)) for kind, data in arrivals])

    @property
    def topics(self) -> list[str]:
        """Whom to wake when this is committed."""
        told = self.ready or self.ended or self.gone or self.outside or self.is_news
        topic = "dispatch" if self.ready or self.gone or self.is_news else "seats"
        jobs = ["jobs"] if self.jobs_changed else []
        return [*([topic] if told else []), *jobs, *(f"node:{it}" for it in sorted(self.woken))]

    def _arrivals(self) -> Iterator[tuple[ArrivalKind, Sequence[object]]]:
        for kind, records in (
            (ArrivalKind.READY, self.ready),
            (ArrivalKind.ENDED, self.ended),
            (ArrivalKind.GONE, self.gone),
            (ArrivalKind.OUTSIDE, self.outside),
        ):
            yield from ((kind, records[at : at + CHUNK]) for at in range(0, len(records), CHUNK))
        if self.is_news:
            yield ArrivalKind.ENDED, []


class RoundIO(Protocol):
    """How a round is read and written."""

    takes_over: bool
    """Whether a round may be made by who did not make the last one, or after limits or members have changed; and
    whether the starts that rates remember are written."""

    def look(self, tx: Tx) -> Seen | None:
        """None: this round is not to be made any more, for another node has made one."""

    def targets(self, tx: Tx, seen: Seen) -> tuple[int, Sequence[TargetRow]]:
        """The clock, and the nodes that may be given something: after everything else was read."""

    def write(self, tx: Tx, seen: Seen, draft: Draft) -> Collection[int] | None:
        """Write a round; returns the items that were still there. None: nothing was written, somebody else has made a
        round or changed what this one rests on."""


class Shortcuts(NamedTuple):
    """What a database can do in fewer statements than the plain functions need."""

    round: RoundIO | None = None
    end_items: Callable[[Tx, Sequence[ItemEnd]], set[int]] | None = None
    """Write plain ends in one statement; returns the items that were ended."""


class Transactor(ABC):
    """Runs functions of a transaction. Each may be repeated after `StoreUnavailable` or `CommitUnknown`: what was
    already done is found done."""

    memory: ProcessMemory
    shortcuts: Shortcuts

    @abstractmethod
    async def transact(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` in a transaction and commit it durably; again, from the start, if it lost a race. So `work`
        changes nothing but through what it is given."""

    async def write_once(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """The same for `work` that locks nothing and writes once, at its end: a database may need fewer messages."""
        return await self.transact(work, *args, **kwargs)

    @abstractmethod
    async def look(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` that only reads. It is no transaction: each statement sees what is committed when it is made."""

    async def reserve_rows(self, count: int) -> None:  # noqa: B027 - where nobody waits, there is nothing to do
        """Have the ids of so many rows at hand, so that nobody waits for the counter while they are written."""
