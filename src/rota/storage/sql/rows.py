"""Rows of a transaction in a SQL database: what is written is kept, and sent in as few statements as the database
allows: before anything is read, and at the latest at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, bindparam, select, tuple_

from rota.model import tables
from rota.model.tables import Change, Table
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.receipts import Receipt, receipts_of
from rota.storage.sql.schema import metadata
from rota.storage.sql.sets import Insert, Remove, Wanted, Write, WritePart, full_name
from rota.transactions.rows import Columns, Conflict, Values, Where

R = TypeVar("R", bound=tuple[Any, ...])

_LARGE = (tables.QUEUE, tables.ITEM)
"""Tables of which thousands of rows are read at a time."""
_TOGETHER = 512
"""How many values of several columns one statement looks for."""


class SqlRows:
    def __init__(self, conn: Connection, dialect: Dialect) -> None:
        self._conn = conn
        self.dialect = dialect
        self.lock_us: int | None = None
        self.is_sent = False
        """Whether something that was kept is on its way."""
        self.receipts: list[Receipt] = []
        self._kept: dict[tuple[Write, bool], list[tuple[Any, ...]]] = {}
        self._tables: dict[Table[Any], tuple[Write, bool]] = {}
        self._disjoint: set[Table[Any]] = set()

    @property
    def conn(self) -> Connection:
        """The connection. Whoever uses it finds everything written."""
        self.flush()
        return self._conn

    def now_us(self) -> int:
        return self.dialect.now_us(self.conn)

    def read(self, table: Table[R], keys: Iterable[Any]) -> list[R]:
        wanted = list(keys)
        if not wanted:
            return []
        if len(table.key) > 1:
            return self._found(table, table.key, wanted)
        found = self.conn.execute(_by_key(self.dialect, table), {"keys": self.dialect.listed(wanted)})
        rows = self.dialect.fetched(found) if table in _LARGE else found
        return [table.row(*row) for row in rows]

    def lock(self, table: Table[R], keys: Iterable[Any], *, skip: bool = False) -> list[R]:
        wanted = list(keys)
        assert len(table.key) == 1, f"rows of {table.name} are not locked"
        found = self.conn.execute(_locked(self.dialect, table, skip), {"keys": self.dialect.listed(wanted)})
        rows = self.dialect.fetched(found) if table in _LARGE else found.all()
        self.lock_us = int(rows[0][-1]) if rows else None
        self._reach_every_member(table, [row[0] for row in rows])
        return [table.row(*row[:-1]) for row in rows]

    def _reach_every_member(self, table: Table[Any], keys: Sequence[Any]) -> None:
        """Jobs and keys are locked for what others count; on a Galera cluster that needs a write."""
        if table is tables.JOB:
            self.dialect.touch(self._conn, [f"job:{key}" for key in keys])
        elif table is tables.OVERLAP:
            self.dialect.touch(self._conn, keys)

    def find(self, table: Table[R], index: str, values: Iterable[Any]) -> list[R]:
        wanted, columns = list(values), table.columns_of(index)
        if not wanted:
            return []
        if len(columns) > 1:
            return self._found(table, columns, wanted)
        query = _by_column(self.dialect, table, columns[0])
        found = self.conn.execute(query, {"keys": self.dialect.listed(wanted)})
        return [table.row(*row) for row in found]

    def _found(self, table: Table[R], columns: tuple[str, ...], values: Sequence[tuple[Any, ...]]) -> list[R]:
        """By several columns. Numbers of values are rounded up, so that few statements are prepared."""
        rows: list[R] = []
        some = iter(values)
        while part := list(islice(some, _TOGETHER)):
            part += [part[-1]] * ((1 << (len(part) - 1).bit_length()) - len(part))
            rows += [table.row(*row) for row in self.conn.execute(_by_columns(table, columns), {"keys": part})]
        place = [table.columns.index(name) for name in table.key]
        return sorted(rows, key=lambda row: [row[n] for n in place])

    def all(self, table: Table[R]) -> list[R]:
        return [table.row(*row) for row in self.conn.execute(_every(table))]

    def insert(self, table: Table[Any], rows: Values, columns: Columns = None, *, missing: bool = False) -> None:
        self._keep(Insert(table, columns, missing), rows)
        self.receipts.extend(receipts_of(table, rows))

    def change(self, change: Change, rows: Values, *, exact: bool = False) -> None:
        self._keep(change, rows, exact=exact)

    def changed(self, change: Change, rows: Values) -> set[Any]:
        if not rows:
            return set()
        if change.table in self._tables:
            self.flush()
        found = self._send([*self._parts(), WritePart(change, rows, Wanted.KEYS)])[-1]
        assert isinstance(found, set)
        return found

    def remove(self, table: Table[Any], keys: Sequence[Any], *, where: Where = (), exact: bool = False) -> None:
        rows = [(key,) for key in keys] if len(table.key) == 1 else list(keys)
        self._keep(Remove(table, where), rows, exact=exact)

    def disjoint(self, *tables: Table[Any]) -> None:
        if any(table in self._tables for table in set(tables) - self._disjoint):
            self.flush()
        self._disjoint.update(tables)

    def reserve(self, counter: str, count: int) -> int:
        return self.dialect.reserve(self._conn, counter, count)

    def _keep(self, write: Write, rows: Values, *, exact: bool = False) -> None:
        """Write rows soon, after everything that was to be written to that table before."""
        if not rows:
            return
        table = write.table
        if table not in self._disjoint and self._tables.get(table, (write, exact)) != (write, exact):
            self.flush()
        self._tables[table] = (write, exact)
        self._kept.setdefault((write, exact), []).extend(rows)

    def flush(self, topics: Sequence[str] = ()) -> None:
        """Write what is kept, and wake those who listen to these topics when the transaction commits."""
        if self._kept or topics:
            self._send(self._parts(), topics)

    def _parts(self) -> list[WritePart]:
        kept, self._kept, self._tables = self._kept, {}, {}
        return [WritePart(it, rows, Wanted.COUNT if exact else Wanted.NOTHING) for (it, exact), rows in kept.items()]

    def _send(self, parts: Sequence[WritePart], topics: Sequence[str] = ()) -> list[int | set[Any]]:
        self.is_sent = True
        found = self.dialect.write(self._conn, parts, topics)
        for part, count in zip(parts, found, strict=True):
            if part.wanted is Wanted.COUNT and count != len(part.rows):
                raise Conflict(f"rows of {part.write.table.name} were changed by someone else")
        return found


@lru_cache
def _every(table: Table[Any]) -> Select[Any]:
    t = metadata.tables[full_name(table)]
    return select(t).order_by(*(t.c[name] for name in table.key))


@lru_cache
def _by_key(dialect: Dialect, table: Table[Any]) -> Select[Any]:
    query = _by_column(dialect, table, table.key[0])
    return dialect.whole(query) if table in _LARGE else query


@lru_cache
def _by_column(dialect: Dialect, table: Table[Any], column: str) -> Select[Any]:
    return _every(table).where(dialect.among_named(metadata.tables[full_name(table)].c[column], "keys"))


@lru_cache
def _by_columns(table: Table[Any], columns: tuple[str, ...]) -> Select[Any]:
    t = metadata.tables[full_name(table)]
    return select(t).where(tuple_(*(t.c[name] for name in columns)).in_(bindparam("keys", expanding=True)))


@lru_cache
def _locked(dialect: Dialect, table: Table[Any], skip: bool) -> Select[Any]:
    t = metadata.tables[full_name(table)]
    now = dialect.statement_now_us().label("now")
    wanted = select(t, now).where(dialect.among_named(t.c[table.key[0]], "keys")).order_by(t.c[table.key[0]])
    locked = dialect.locked(wanted, skip=skip)
    return dialect.whole(locked) if table in _LARGE else locked
