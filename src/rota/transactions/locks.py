"""The order of locks, which every transaction keeps on every store: so no two of them wait for each other.

A transaction takes the locks of one rank in one statement, by rising keys, and never goes back to an earlier rank. Two
things stand outside the order: a lock that skips what others hold waits for nobody; and tables that rows are only added
to need no lock.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from rota.model import tables
from rota.model.tables import Table


class Rank(IntEnum):
    """What is locked, in this order."""

    JOINING = 1
    """The counter of nodes: they join one after the other."""
    DISPATCH = 2
    """The row under which rounds are made, and what rounds rest on is changed: limits, members, the offline list."""
    JOB = 3
    OVERLAP = 4
    RUN = 5
    QUEUE = 6
    NODE = 7
    """Leases and nodes."""
    ALARM = 8
    """Rules of alarms, alarms, deliveries."""
    COUNTER = 9
    """Numbers that nobody gets twice. Blocks of ids are taken before a transaction begins, where that is possible."""


RANKS: dict[Table[Any], Rank] = {
    tables.DISPATCH: Rank.DISPATCH,
    tables.JOB: Rank.JOB,
    tables.OVERLAP: Rank.OVERLAP,
    tables.RUN: Rank.RUN,
    tables.QUEUE: Rank.QUEUE,
    tables.LEASE: Rank.NODE,
    tables.NODE: Rank.NODE,
    tables.ALARM_RULE: Rank.ALARM,
    tables.ALARM: Rank.ALARM,
    tables.DELIVERY: Rank.ALARM,
}
COUNTERS = ("lane", "job", "placed", "run", "row")
"""The order among counters."""


class OutOfOrder(AssertionError):
    """A transaction takes its locks in another order than all others: two of them could wait for each other."""


class Order:
    """The locks that one transaction has taken so far."""

    def __init__(self) -> None:
        self._last: tuple[int, int] = (0, 0)
        self._tables: set[Table[Any]] = set()
        self._counters: set[str] = set()

    def lock(self, table: Table[Any], keys: list[Any], *, skip: bool = False) -> None:
        """Note a lock. Raises OutOfOrder."""
        if skip:
            return
        if keys != sorted(keys):
            raise OutOfOrder(f"rows of {table.name} are not locked by rising keys")
        if table in self._tables:
            raise OutOfOrder(f"rows of {table.name} are locked twice")
        self._tables.add(table)
        self._rise((RANKS[table], 0), table.name)

    def mutex(self) -> None:
        """Note that this transaction joins a node."""
        self._rise((Rank.JOINING, 0), "the counter of nodes")

    def count(self, counter: str) -> None:
        """Note that numbers are taken from a counter. To take more of one that is held already waits for nobody."""
        if counter not in self._counters:
            self._counters.add(counter)
            self._rise((Rank.COUNTER, COUNTERS.index(counter)), f"the counter {counter!r}")

    def _rise(self, place: tuple[int, int], name: str) -> None:
        if place < self._last:
            raise OutOfOrder(f"{name} is locked after {Rank(self._last[0]).name}")
        self._last = place
