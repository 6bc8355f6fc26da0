"""Write many rows in few statements, as each database does it best.

PostgreSQL takes one array for each column, as text: its driver looks at each element of a list several times, and that
costs more than the server needs to read it. What is written to several tables is one statement there: a round trip
costs more than a small batch. MariaDB takes many rows in one INSERT, and a JSON table for updates. SQLite
takes rows in chunks: each statement lets go of the interpreter once, and waiting for it costs more than a row does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec
from sqlalchemy import BigInteger, Column, Connection, String, Table, Text

Rows = Sequence[tuple[Any, ...]]

_CHUNKS = (250, 50, 10, 1)
_PACKET = 1_000_000


class Insert(NamedTuple):
    """New rows. A row has the values of these columns, or of all of the table's."""

    table: Table
    columns: tuple[str, ...] | None = None


class Remove(NamedTuple):
    """Rows that go. A row of values has the one of this column."""

    table: Table
    column: str


class Change(NamedTuple):
    """An update of many rows, each with values of its own.

    A row of values has those of `match`, which the table's row must still have, then the new ones of `fields`. `fixed`
    (assignments) and `where` (a condition) are SQL about the row `t`, the same for all.
    """

    table: Table
    match: tuple[str, ...]
    fields: tuple[str, ...]
    fixed: str = ""
    where: str = ""

    @property
    def names(self) -> list[str]:
        """Names for the values of a row."""
        return [f"was_{name}" for name in self.match] + [f"new_{name}" for name in self.fields]

    @property
    def columns(self) -> list[Column[Any]]:
        return [self.table.c[name] for name in (*self.match, *self.fields)]

    @property
    def assignments(self) -> str:
        own = [f"{name} = new_{name}" for name in self.fields]
        return ", ".join([*own, self.fixed] if self.fixed else own)

    def condition(self, same: str) -> str:
        """`same` compares so that nulls are equal."""
        equal = [f"t.{name} {same if self.table.c[name].nullable else '='} was_{name}" for name in self.match]
        return " AND ".join([*equal, self.where] if self.where else equal)


Write: TypeAlias = Insert | Remove | Change


class PostgreSQLSets:
    def insert(self, conn: Connection, table: Table, rows: Rows, columns: tuple[str, ...] | None = None) -> None:
        if rows:
            self.write(conn, {Insert(table, columns): rows})

    def insert_missing(self, conn: Connection, table: Table, rows: Rows) -> None:
        conn.exec_driver_sql(f"{_pg_insert(Insert(table), 1)} ON CONFLICT DO NOTHING", _arrays(rows))

    def update(self, conn: Connection, change: Change, rows: Rows) -> int:
        return conn.exec_driver_sql(_pg_update(change, 1), _arrays(rows)).rowcount if rows else 0

    def write(self, conn: Connection, writes: Mapping[Write, Rows], topics: Sequence[str] = ()) -> int:
        arrays = [array for rows in writes.values() for array in _arrays(rows)]
        if topics:
            arrays.append(array_text(topics))
        return conn.exec_driver_sql(_pg_write(tuple(writes), bool(topics)), tuple(arrays)).rowcount


class MySQLSets:
    def insert(self, conn: Connection, table: Table, rows: Rows, columns: tuple[str, ...] | None = None) -> None:
        if rows:
            conn.exec_driver_sql(_insert("INSERT", "`", "%s", table, columns or _all(table)), list(rows))

    def remove(self, conn: Connection, gone: Remove, rows: Rows) -> int:
        marks = ", ".join("%s" for _ in rows)
        sql = f"DELETE FROM {gone.table.name} WHERE {gone.column} IN ({marks})"  # noqa: S608 - no input in it
        return conn.exec_driver_sql(sql, tuple(value for (value,) in rows)).rowcount

    def write(self, conn: Connection, writes: Mapping[Write, Rows], topics: Sequence[str] = ()) -> int:
        return _one_by_one(self, conn, writes)

    def insert_missing(self, conn: Connection, table: Table, rows: Rows) -> None:
        conn.exec_driver_sql(_insert("INSERT IGNORE", "`", "%s", table, _all(table)), list(rows))

    def update(self, conn: Connection, change: Change, rows: Rows) -> int:
        return sum(conn.exec_driver_sql(_mysql_update(change), (part,)).rowcount for part in _packets(rows))


class SQLiteSets:
    def remove(self, conn: Connection, gone: Remove, rows: Rows) -> int:
        values = msgspec.json.encode([value for (value,) in rows]).decode()
        sql = f"DELETE FROM {gone.table.name} WHERE {gone.column} IN (SELECT value FROM json_each(?))"  # noqa: S608 - no input in it
        return conn.exec_driver_sql(sql, (values,)).rowcount

    def write(self, conn: Connection, writes: Mapping[Write, Rows], topics: Sequence[str] = ()) -> int:
        return _one_by_one(self, conn, writes)

    def insert(self, conn: Connection, table: Table, rows: Rows, columns: tuple[str, ...] | None = None) -> None:
        for chunk in _chunks(rows):
            sql = _sqlite_insert(table, columns or _all(table), len(chunk))
            conn.exec_driver_sql(sql, tuple(value for row in chunk for value in row))

    def insert_missing(self, conn: Connection, table: Table, rows: Rows) -> None:
        conn.exec_driver_sql(_insert("INSERT OR IGNORE", '"', "?", table, _all(table)), list(rows))

    def update(self, conn: Connection, change: Change, rows: Rows) -> int:
        return sum(
            conn.exec_driver_sql(
                _sqlite_update(change, len(chunk)), tuple(value for row in chunk for value in row)
            ).rowcount
            for chunk in _chunks(rows)
        )


def _one_by_one(sets: MySQLSets | SQLiteSets, conn: Connection, writes: Mapping[Write, Rows]) -> int:
    count = 0
    for write, rows in writes.items():
        match write:
            case Insert(table, columns):
                sets.insert(conn, table, rows, columns)
                count = len(rows)
            case Remove():
                count = sets.remove(conn, write, rows)
            case Change():
                count = sets.update(conn, write, rows)
    return count


@cache
def _all(table: Table) -> tuple[str, ...]:
    return tuple(column.name for column in table.columns)


def _arrays(rows: Rows) -> tuple[str, ...]:
    return tuple(map(array_text, zip(*rows, strict=True)))


def array_text(values: Iterable[Any]) -> str:
    """An array as PostgreSQL writes it: like JSON, but for its brackets and most of its escapes."""
    values = list(values)
    text = msgspec.json.encode(values).decode()
    if "\\" in text and "\\" in text.replace("\\\\", "").replace('\\"', ""):
        text = f" {','.join(map(_element, values))} "
    return f"{{{text[1:-1]}}}"


def _element(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    return "NULL" if value is None else str(value)


def _chunks(rows: Rows) -> Iterable[Rows]:
    """Chunks of few sizes, so that their statements are prepared once."""
    start = 0
    for size in _CHUNKS:
        while start + size <= len(rows):
            yield rows[start : start + size]
            start += size


def _packets(rows: Rows) -> Iterable[str]:
    """Rows as JSON arrays, none much longer than a server takes in one packet."""
    if not rows:
        return
    whole = msgspec.json.encode(rows)
    if len(whole) <= _PACKET or len(rows) == 1:
        yield whole.decode()
        return
    half = len(rows) // 2
    yield from _packets(rows[:half])
    yield from _packets(rows[half:])


@cache
def _insert(verb: str, quote: str, mark: str, table: Table, columns: tuple[str, ...]) -> str:
    names = ", ".join(f"{quote}{name}{quote}" for name in columns)
    return f"{verb} INTO {table.name} ({names}) VALUES ({', '.join(mark for _ in columns)})"


@cache
def _pg_write(writes: tuple[Write, ...], is_told: bool) -> str:
    """All of it as one statement: no table comes twice, so it does not matter that its parts do not see each other."""
    parts, place = [], 1
    for write in writes:
        match write:
            case Insert(table, columns):
                parts.append(_pg_insert(write, place))
                place += len(columns or _all(table))
            case Remove():
                parts.append(_pg_delete(write, place))
                place += 1
            case Change():
                parts.append(_pg_update(write, place))
                place += len(write.columns)
    if is_told:
        parts.append(f"SELECT pg_notify('rota', topic) FROM unnest(${place}::text::text[]) AS topic")  # noqa: S608 - no input in it
    *first, last = parts
    named = ", ".join(f"part_{n} AS ({part})" for n, part in enumerate(first))
    return f"WITH {named} {last}" if first else last


@cache
def _pg_insert(new: Insert, place: int) -> str:
    columns = new.columns or _all(new.table)
    names = ", ".join(f'"{name}"' for name in columns)
    arrays = ", ".join(f"${n}::text::{_pg_type(new.table.c[name])}[]" for n, name in enumerate(columns, place))
    return f"INSERT INTO {new.table.name} ({names}) SELECT * FROM unnest({arrays})"  # noqa: S608 - no input in it


@cache
def _pg_delete(gone: Remove, place: int) -> str:
    among = _pg_among(gone.table.c[gone.column], place)
    return f"DELETE FROM {gone.table.name} WHERE {gone.column} {among}"  # noqa: S608 - no input in it


def _pg_among(column: Column[Any], place: int) -> str:
    """One of the values of an array, which is read once: a mere cast would be made again for every row looked at."""
    kind = f"{_pg_type(column)}[]"
    return f"= ANY((SELECT ${place}::text::{kind})::{kind})"


@cache
def _pg_update(change: Change, place: int) -> str:
    arrays = ", ".join(f"${n}::text::{_pg_type(column)}[]" for n, column in enumerate(change.columns, place))
    source = f"FROM unnest({arrays}) AS v({', '.join(change.names)})"
    condition = change.condition("IS NOT DISTINCT FROM")
    return f"UPDATE {change.table.name} AS t SET {change.assignments} {source} WHERE {condition}"  # noqa: S608 - no input in it


@cache
def _mysql_update(change: Change) -> str:
    named = zip(change.names, change.columns, strict=True)
    fields = ", ".join(f"{name} {_mysql_type(column)} PATH '$[{n}]'" for n, (name, column) in enumerate(named))
    return f"""
        UPDATE {change.table.name} AS t JOIN JSON_TABLE(%s, '$[*]' COLUMNS ({fields})) AS v
        SET {change.assignments} WHERE {change.condition("<=>")}
    """  # noqa: S608 - no input in it


@cache
def _sqlite_insert(table: Table, columns: tuple[str, ...], count: int) -> str:
    head, _, marks = _insert("INSERT", '"', "?", table, columns).partition(" VALUES ")
    return f"{head} VALUES {', '.join(marks for _ in range(count))}"


@cache
def _sqlite_update(change: Change, count: int) -> str:
    """It begins with its verb, or the driver would not tell how many rows it changed."""
    marks = ", ".join(f"({', '.join('?' for _ in change.names)})" for _ in range(count))
    named = ", ".join(f"column{n} AS {name}" for n, name in enumerate(change.names, 1))
    return f"""
        UPDATE {change.table.name} AS t SET {change.assignments}
        FROM (SELECT {named} FROM (VALUES {marks})) AS v WHERE {change.condition("IS")}
    """  # noqa: S608 - no input in it


def _pg_type(column: Column[Any]) -> str:
    if isinstance(column.type, String | Text):
        return "text"
    return "bigint" if isinstance(column.type, BigInteger) else "integer"


def _mysql_type(column: Column[Any]) -> str:
    if isinstance(column.type, String):
        return "MEDIUMTEXT" if column.type.length is None else f"VARCHAR({column.type.length})"
    return "BIGINT"
