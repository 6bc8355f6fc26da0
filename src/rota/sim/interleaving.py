"""Transactions of the simulated store that are under way at the same time.

    begin ──> primitive ──> primitive ──> … ──> commit        others go on at every arrow
                │ held by another: waits, or is left out         │ fault: rolled back, or nobody knows
                └ waits in a circle: the one that closes it is rolled back and made again

A transaction runs in a greenlet, which stops before everything that it does with rows. What holds on every database is
modelled, and nothing more: a read sees what is committed when it is made, and what its own transaction wrote; what was
locked or written stays locked until the end; a key or unique value that somebody writes can be written by nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from greenlet import getcurrent, greenlet  # type: ignore[import-untyped]

from rota.errors import StoreUnavailable
from rota.model import tables
from rota.model.tables import Change, Table
from rota.ports import Clock
from rota.sim.history import Counts
from rota.sim.link import asking_host
from rota.sim.loop import Dice
from rota.storage.memory import MemoryStore
from rota.storage.memory.questions import MemoryQuestions
from rota.storage.memory.rows import MemoryRows, Tables
from rota.storage.memory.store import TRIES_MAX
from rota.transactions.alarms import note_alarms
from rota.transactions.rows import Columns, Conflict, Questions, Values, Where
from rota.transactions.tx import Tx

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R", bound=tuple[Any, ...])

STEP_S = 0.003
"""How long a statement takes at most, when others go on meanwhile."""
SOMETIMES = 0.35
"""How often others go on meanwhile."""
FAULTY = 0.0005
"""How often the connection of a transaction is lost at one of its statements."""
IDLE_S = 2.0
"""After so long the server ends a transaction whose client stands still."""

Name = tuple[Any, ...]
"""What is locked: a row by its table and key, or a unique value by its table, index and value."""


class Locks:
    """Who holds what, and who waits for whom."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.holders: dict[Name, SharedRows] = {}
        self.waiting: dict[SharedRows, SharedRows] = {}
        self._ended: dict[SharedRows, list[asyncio.Future[None]]] = {}

    def wait(self, owner: SharedRows, holder: SharedRows) -> asyncio.Future[None]:
        """A future that is done when the holder lets go. Raises Conflict if the holder waits for the owner."""
        at: SharedRows | None = holder
        while at is not None:
            if at is owner:
                raise Conflict("two transactions wait for each other")
            at = self.waiting.get(at)
        self.waiting[owner] = holder
        done: asyncio.Future[None] = self._loop.create_future()  # of its own: who gives up cancels what it waits for
        self._ended.setdefault(holder, []).append(done)
        return done

    def release(self, owner: SharedRows) -> None:
        """Let go of everything, and wake those who wait for it."""
        self.waiting.pop(owner, None)
        for name in [name for name, holder in self.holders.items() if holder is owner]:
            del self.holders[name]
        for done in self._ended.pop(owner, ()):
            if not done.done():
                done.set_result(None)


class SharedRows(MemoryRows):
    """The rows of one of several transactions."""

    def __init__(self, committed: Tables, clock: Clock, locks: Locks, chance: Dice, counts: Counts) -> None:
        super().__init__(committed, clock)
        self._locks = locks
        self._chance = chance
        self._counts = counts
        self.quiet = 0
        """Above 0 in the middle of a statement: nobody goes on meanwhile."""

    def pause(self, until: Any = None) -> None:
        """Let others go on: for a moment sometimes, or until something is over."""
        if self.quiet and until is None:
            return
        if until is not None or self._chance.random() < SOMETIMES:
            parent = getcurrent().parent
            assert parent is not None, "a transaction runs in a greenlet of its own"
            parent.switch(until)
        if self._chance.random() < FAULTY:
            self._counts.lost_connections += 1
            raise StoreUnavailable("the connection was lost in the middle of a transaction")

    def now_us(self) -> int:
        self.pause()
        return super().now_us()

    def read(self, table: Table[R], keys: Iterable[Any]) -> list[R]:
        self.pause()
        return super().read(table, keys)

    def find(self, table: Table[R], index: str, values: Iterable[Any]) -> list[R]:
        self.pause()
        return super().find(table, index, values)

    def all(self, table: Table[R]) -> list[R]:
        self.pause()
        return super().all(table)

    def lock(self, table: Table[R], keys: Iterable[Any], *, skip: bool = False) -> list[R]:
        self.pause()
        there = [key for key in keys if self.get(table, key) is not None]
        got = [key for key in there if self._owns((table, key), skip=skip)]
        rows = [row for key in got if (row := self.get(table, key)) is not None]
        self.lock_us = super().now_us() if rows else None
        return rows

    def insert(self, table: Table[Any], rows: Values, columns: Columns = None, *, missing: bool = False) -> None:
        if rows:
            self.pause()
        for row in self.filled(table, rows, columns):
            self._owns((table, self.key_of(table, row)))
            for index, value in self.unique_values(table, row):
                self._owns((table, index, value))
        super().insert(table, rows, columns, missing=missing)

    def changed(self, change: Change, rows: Values) -> set[Any]:
        if rows:
            self.pause()
        size = len(change.table.key)
        for row in rows:
            self._owns((change.table, row[0] if size == 1 else row[:size]))
        return super().changed(change, rows)

    def remove(self, table: Table[Any], keys: Sequence[Any], *, where: Where = (), exact: bool = False) -> None:
        if keys:
            self.pause()
        for key in keys:
            self._owns((table, key))
        super().remove(table, keys, where=where, exact=exact)

    def reserve(self, counter: str, count: int) -> int:
        self.pause()
        self._owns((tables.COUNTER, counter))
        self.quiet += 1
        try:
            return super().reserve(counter, count)
        finally:
            self.quiet -= 1

    def _owns(self, name: Name, *, skip: bool = False) -> bool:
        """Lock something, waiting for it. False: another has it, and it is to be skipped."""
        while (holder := self._locks.holders.get(name)) not in (None, self):
            if skip:
                return False
            assert holder is not None
            self._counts.lock_waits += 1
            until = self._locks.wait(self, holder)
            try:
                self.pause(until)
            finally:
                self._locks.waiting.pop(self, None)
        self._locks.holders[name] = self
        return True


class SharedQuestions:
    """The questions of such a transaction: each is one statement, during which nobody goes on."""

    def __init__(self, rows: SharedRows) -> None:
        self._rows = rows
        self._inner = MemoryQuestions(rows)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        question, rows = getattr(self._inner, name), self._rows

        def asked(*args: Any) -> Any:
            rows.pause()
            rows.quiet += 1
            try:
                return question(*args)
            finally:
                rows.quiet -= 1

        return asked


class InterleavedStore(MemoryStore):
    """The store in memory; with a loop, its transactions are under way at the same time."""

    def __init__(self, clock: Clock, loop: asyncio.AbstractEventLoop | None, chance: Dice, counts: Counts) -> None:
        super().__init__(clock, actor="sim")
        self._locks = None if loop is None else Locks(loop)
        self._dice = chance
        self._counted = counts

    async def transact(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._locks is None:
            return await super().transact(work, *args, **kwargs)
        also: Conflict | None = None
        for attempt in range(1, TRIES_MAX + 1):
            rows = SharedRows(self.tables, self._clock, self._locks, self._dice, self._counted)
            tx = Tx(rows, cast("Questions", SharedQuestions(rows)), self.memory, attempt=attempt, also=also)
            try:
                done = await self._between_others(rows, partial(_whole, tx, partial(work, tx, *args, **kwargs)))
            except Conflict as conflict:
                also = conflict if also is None else also.with_those_of(conflict)
                await self._clock.sleep(0.005 * attempt * (0.5 + self._dice.random()))
                continue
            self.tell(tx)
            return done
        raise StoreUnavailable(f"the store refused a transaction {TRIES_MAX} times: {also}")

    async def _between_others(self, rows: SharedRows, work: Callable[[], T]) -> T:
        """Run a transaction to its end, letting others go on where it pauses; commit it."""
        assert self._locks is not None
        inner, host = greenlet(work), asking_host.get()
        try:
            until = inner.switch()
            while not inner.dead:
                if until is not None:
                    await until
                else:
                    await self._clock.sleep(self._dice.random() * STEP_S)
                if host is not None and host.stands_still:
                    await self._clock.sleep(IDLE_S)
                    raise StoreUnavailable("the server has ended a transaction whose client stood still")
                until = inner.switch()
            rows.commit()
        finally:
            if not inner.dead:
                inner.throw()
            self._locks.release(rows)
        done: T = until
        return done


def _whole(tx: Tx, work: Callable[[], T]) -> T:
    done = work()
    note_alarms(tx)
    tx.write_lines()
    return done
