"""Tables in memory, and the rows of a transaction: what it writes is a set of its own, applied when it commits and
dropped when it does not. Nothing else happens meanwhile, so there is nothing to wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Any, TypeVar

from rota.model import tables
from rota.model.moment import micros
from rota.model.tables import TABLES, Change, Table
from rota.ports import Clock
from rota.transactions.rows import Columns, Conflict, Values, Where

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


class MemoryRows:
    def __init__(self, committed: Tables, clock: Clock) -> None:
        self._tables = committed
        self._clock = clock
        self._written: dict[Table[Any], dict[Any, Any]] = {}
        self.lock_us: int | None = None

    def now_us(self) -> int:
        return micros(self._clock.wall())

    def get(self, table: Table[R], key: Any) -> R | None:
        written = self._written.get(table)
        if written is not None and key in written:
            found: R | None = written[key]
            return found
        return self._tables.get(table, key)

    def read(self, table: Table[R], keys: Iterable[Any]) -> list[R]:
        return [row for key in keys if (row := self.get(table, key)) is not None]

    def lock(self, table: Table[R], keys: Iterable[Any], *, skip: bool = False) -> list[R]:
        rows = self.read(table, keys)
        self.lock_us = self.now_us() if rows else None
        return rows

    def find(self, table: Table[R], index: str, values: Iterable[Any]) -> list[R]:
        kept, written = self._tables.of(table), self._written.get(table, {})
        by = kept.indexes[index]
        wanted = dict.fromkeys(values)
        keys = {key for value in wanted for key in by.keys.get(value, ()) if key not in written}
        rows = [kept.rows[key] for key in keys]
        new = [row for row in written.values() if row is not None and (by.has is None or by.has(row))]
        rows += [row for row in new if by.value(row) in wanted]
        return sorted(rows, key=kept.key)

    def all(self, table: Table[R]) -> list[R]:
        return sorted(self.every(table), key=self._tables.of(table).key)

    def every(self, table: Table[R]) -> list[R]:
        """Every row, in no order that matters."""
        written = self._written.get(table)
        if not written:
            return list(self._tables.rows(table))
        kept = [row for key, row in self._tables.of(table).rows.items() if key not in written]
        return kept + [row for row in written.values() if row is not None]

    def insert(self, table: Table[Any], rows: Values, columns: Columns = None, *, missing: bool = False) -> None:
        written = self._written.setdefault(table, {})
        new = {it for row in written.values() if row is not None for it in self.unique_values(table, row)}
        for row in self.filled(table, rows, columns):
            key, values = self.key_of(table, row), self.unique_values(table, row)
            if self.get(table, key) is None and not any(it in new or self._is_kept(table, *it) for it in values):
                written[key] = row
                new.update(values)
            elif not missing:
                raise Conflict(f"{table.name} has a row {key} already")

    def _is_kept(self, table: Table[Any], index: str, value: Any) -> bool:
        """Whether a row that this transaction has not changed has a value that no other may have."""
        written = self._written.get(table, {})
        return any(key not in written for key in self._tables.of(table).indexes[index].keys.get(value, ()))

    def filled(self, table: Table[R], rows: Values, columns: tuple[str, ...] | None) -> list[R]:
        """Whole rows; columns that are not given are null."""
        if columns is None:
            return [table.row(*values) for values in rows]
        given = [dict(zip(columns, values, strict=True)) for values in rows]
        return [table.row._make(map(row.get, table.columns)) for row in given]  # type: ignore[attr-defined]

    def key_of(self, table: Table[Any], row: Any) -> Any:
        return self._tables.of(table).key(row)

    def unique_values(self, table: Table[Any], row: Any) -> list[tuple[str, Any]]:
        """The values of a row that no other row may have, by their index. Nulls are not compared."""
        found = [(name, index.value(row)) for name, index in self._tables.of(table).unique.items()]
        return [(name, it) for name, it in found if None not in (it if isinstance(it, tuple) else (it,))]

    def change(self, change: Change, rows: Values, *, exact: bool = False) -> None:
        if len(self.changed(change, rows)) < len(rows) and exact:
            raise Conflict(f"rows of {change.table.name} were changed by someone else")

    def changed(self, change: Change, rows: Values) -> set[Any]:
        table, width, size = change.table, len(change.match), len(change.table.key)
        assert change.match[:size] == table.key, "rows are changed by their keys"
        same = [(table.columns.index(name), n) for n, name in enumerate(change.match)]
        where = [(table.columns.index(name), value) for name, value in change.where]
        done = set()
        for values in rows:
            key = values[0] if size == 1 else values[:size]
            row = self.get(table, key)
            if row is None or any(row[at] != values[n] for at, n in same) or any(row[at] != it for at, it in where):
                continue
            new = dict(zip(change.fields, values[width:], strict=True)) | dict(change.fixed)
            new |= {name: getattr(row, name) + 1 for name in change.raised}
            self._written.setdefault(table, {})[key] = row._replace(**new)
            done.add(key)
        return done

    def remove(self, table: Table[Any], keys: Sequence[Any], *, where: Where = (), exact: bool = False) -> None:
        for key in keys:
            row = self.get(table, key)
            if row is not None and all(getattr(row, name) == value for name, value in where):
                self._written.setdefault(table, {})[key] = None
            elif exact:
                raise Conflict(f"{table.name} has no such row {key} any more")

    def disjoint(self, *tables: Table[Any]) -> None:
        pass  # what is written here is there at once

    def reserve(self, counter: str, count: int) -> int:
        row = self.get(tables.COUNTER, counter)
        assert row is not None, f"there is no counter {counter!r}"
        self.change(_COUNT, [(counter, row.next + count)])
        return row.next

    def commit(self) -> None:
        """Let everybody see what was written."""
        for table, written in self._written.items():
            kept = self._tables.of(table)
            for key, row in written.items():
                kept.put(key, row)


_COUNT = Change(tables.COUNTER, ("name",), ("next",))
