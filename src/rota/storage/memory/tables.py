"""Tables in memory: rows by their keys, and by the indexes that transactions and questions find them by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, TypeVar

from rota.model import tables
from rota.model.tables import TABLES, Table

R = TypeVar("R", bound=tuple[Any, ...])

LIVE_KEY, LIVE_JOB = "live by key", "live by job"
_MORE: dict[Table[Any], dict[str, tuple[tuple[str, ...], Callable[[Any], bool]]]] = {
    tables.RUN: {
        LIVE_KEY: (("overlap_key",), lambda row: row.ended_at is None and row.job_id != 0),
        LIVE_JOB: (("job_id",), lambda row: row.ended_at is None),
    },
}
"""Indexes of some rows only, which questions need."""


def getter(table: Table[Any], columns: tuple[str, ...]) -> Callable[[Any], Any]:
    """A function that returns the values of these columns of a row: one value, or a tuple."""
    return itemgetter(*(table.columns.index(name) for name in columns))


class Index:
    """The keys of the rows that have a value."""

    def __init__(self, value: Callable[[Any], Any], has: Callable[[Any], bool] | None = None) -> None:
        self.value = value
        self.has = has
        self.keys: dict[Any, dict[Any, None]] = {}

    def add(self, key: Any, row: Any) -> None:
        if self.has is None or self.has(row):
            self.keys.setdefault(self.value(row), {})[key] = None

    def drop(self, key: Any, row: Any) -> None:
        if self.has is None or self.has(row):
            found = self.keys[self.value(row)]
            del found[key]
            if not found:
                del self.keys[self.value(row)]


class MemoryTable:
    """The committed rows of one table."""

    def __init__(self, table: Table[Any]) -> None:
        self.key = getter(table, table.key)
        self.rows: dict[Any, Any] = {}
        self.unique = {name: Index(getter(table, columns)) for name, columns in table.unique.items()}
        self.indexes = self.unique | {name: Index(getter(table, columns)) for name, columns in table.indexes.items()}
        for name, (columns, has) in _MORE.get(table, {}).items():
            self.indexes[name] = Index(getter(table, columns), has)

    def put(self, key: Any, row: Any) -> None:
        """Set, or with none remove, a row."""
        was = self.rows.pop(key, None)
        if was is not None:
            for index in self.indexes.values():
                index.drop(key, was)
        if row is not None:
            self.rows[key] = row
            for index in self.indexes.values():
                index.add(key, row)


class Tables:
    """All that there is."""

    def __init__(self) -> None:
        self._tables = {table: MemoryTable(table) for table in TABLES}
        self._fill(tables.META, [("generation", "1")])
        self._fill(tables.COUNTER, [(name, 1) for name in ("job", "placed", "lane", "run", "row", "node")])
        self._fill(tables.DISPATCH, [(1, None, 0, 0, 0, None)])

    def _fill(self, table: Table[Any], rows: Iterable[tuple[Any, ...]]) -> None:
        for row in rows:
            self.put(table, table.row(*row))

    def of(self, table: Table[Any]) -> MemoryTable:
        return self._tables[table]

    def put(self, table: Table[R], row: R) -> None:
        """Set a row outside any transaction."""
        kept = self._tables[table]
        kept.put(kept.key(row), row)

    def get(self, table: Table[R], key: Any) -> R | None:
        found: R | None = self._tables[table].rows.get(key)
        return found

    def rows(self, table: Table[R]) -> Iterator[R]:
        """Every row, in the order in which they came."""
        return iter(self._tables[table].rows.values())

    def found(self, table: Table[R], index: str, value: Any) -> list[R]:
        """The rows of an index that have this value."""
        kept = self._tables[table]
        return [kept.rows[key] for key in kept.indexes[index].keys.get(value, ())]
