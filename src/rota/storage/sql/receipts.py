"""What the store has acknowledged to this process lately. If the store loses its latest history, this says what was in
it.

Runs that were made, and attempts that ended. Others have receipts of their own.

A row may also be gone because somebody pruned it. A store that goes back loses what was committed last: whatever is
older than something that is still there was pruned, and so was, most likely, what is older than an hour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from rota.model import tables
from rota.model.tables import Table
from rota.storage.sql import schema
from rota.storage.sql.dialect import Dialect

KEPT_MAX = 20_000
KEPT_US = 3_600_000_000
ACK_US = 15_000_000
"""How much later than others a commit may have been acknowledged to us that came before them."""

_ENDED = tables.ATTEMPT.columns.index("ended_at")
_NAMES: dict[Table[Any], Callable[[Any], tuple[int, ...]]] = {
    tables.RUN: lambda row: row[:1],
    tables.ATTEMPT: lambda row: (row[0], row[1], row[_ENDED]),
}
"""What names a row. An attempt that a store has forgotten may end there once more, otherwise: as lost with its node."""

Receipt = tuple[Table[Any], tuple[int, ...]]
Kept = tuple[int, Receipt]
"""With the time of the store when it came."""


class LostRecords(NamedTuple):
    """What the store no longer has: runs by id, ends of attempts by item and attempt."""

    runs: Sequence[int]
    attempts: Sequence[tuple[int, int]]


class Receipts:
    """The latest of them."""

    def __init__(self) -> None:
        self._kept: deque[Kept] = deque(maxlen=KEPT_MAX)
        self._doubted: list[Kept] = []

    def keep(self, receipts: Iterable[Receipt], now_us: int) -> None:
        self._kept.extend((now_us, it) for it in receipts)

    def doubt(self) -> None:
        """The store may have lost any of these."""
        self._doubted += self._kept
        self._kept.clear()

    def take_doubted(self) -> list[Kept]:
        """Those that somebody has to look for, which is whoever takes them."""
        doubted, self._doubted = self._doubted, []
        return doubted

    def put_back(self, doubted: Sequence[Kept]) -> None:
        """Nobody could look for them."""
        self._doubted += doubted


def lost_of(doubted: Sequence[Kept], conn: Connection, dialect: Dialect, now_us: int) -> LostRecords:
    """Those that the store does not have any more, and that nobody has pruned."""
    there = _there({it for _, it in doubted}, conn, dialect)
    newest_us = max((at for at, it in doubted if it in there), default=0)
    since_us = max(newest_us - ACK_US, now_us - KEPT_US)
    lost = {it for at, it in doubted if at >= since_us and it not in there}
    runs = sorted(key[0] for table, key in lost if table is tables.RUN)
    return LostRecords(runs, sorted((key[0], key[1]) for table, key in lost if table is tables.ATTEMPT))


def _there(receipts: set[Receipt], conn: Connection, dialect: Dialect) -> set[Receipt]:
    runs = {key[0] for table, key in receipts if table is tables.RUN}
    items = {key[0] for table, key in receipts if table is tables.ATTEMPT}
    r, a = schema.run.c, schema.attempt.c
    found: set[Receipt] = set()
    if runs:
        found |= {(tables.RUN, (it,)) for it in conn.scalars(select(r.id).where(dialect.among(r.id, runs)))}
    if items:
        ended = conn.execute(select(a.item_id, a.attempt, a.ended_at).where(dialect.among(a.item_id, items)))
        found |= {(tables.ATTEMPT, tuple(row)) for row in ended}
    return found


def receipts_of(table: Table[Any], rows: Sequence[tuple[Any, ...]]) -> Iterable[Receipt]:
    """What to keep of rows that were inserted."""
    name = _NAMES.get(table)
    return () if name is None else ((table, name(row)) for row in rows)


def end_receipts(ends: Iterable[tuple[int, int]], ended_us: int) -> Iterable[Receipt]:
    """The same for attempts (item, attempt) that ended in a statement of its own."""
    return ((tables.ATTEMPT, (*it, ended_us)) for it in ends)
