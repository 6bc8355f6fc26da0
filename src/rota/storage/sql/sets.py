"""Write many rows in few statements, as each database does it best.

PostgreSQL takes one array for each column, as text: its driver looks at each element of a list several times, and that
costs more than the server needs to read it. What is written to several tables is one statement there: a round trip
costs more than a small batch. MariaDB takes many rows in one INSERT, and a JSON table for updates. SQLite
takes rows in chunks: each statement lets go of the interpreter once, and waiting for it costs more than a row does.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import msgspec
from sqlalchemy import BigInteger, Column, String, Text

from rota.model.tables import Change, Table
from rota.storage.sql.schema import metadata

Rows = Sequence[tuple[Any, ...]]

_PACKET = 1_000_000
_WORD = re.compile(r"[a-z_]+")


class Insert(NamedTuple):
    """New rows. A row has the values of these columns, or of all of the table's; the other columns are null. `missing`:
    rows whose key, or another unique column, is there already are left out."""

    table: Table[Any]
    columns: tuple[str, ...] | None = None
    missing: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.columns or self.table.columns


class Remove(NamedTuple):
    """Rows that go, by their keys; only those that have these values still."""

    table: Table[Any]
    where: tuple[tuple[str, Any], ...] = ()


Write: TypeAlias = Insert | Remove | Change


class Wanted(Enum):
    """What the caller wants to know of a write: how many rows it touched, or which."""

    NOTHING = 0
    COUNT = 1
    KEYS = 2


class WritePart(NamedTuple):
    write: Write
    rows: Rows
    wanted: Wanted = Wanted.NOTHING


Found: TypeAlias = list[int | set[Any]]


def keys_in(found: Iterable[Any]) -> Iterable[Any]:
    return (row[0] if len(row) == 1 else tuple(row) for row in found)


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


def packets(rows: Rows) -> Iterable[str]:
    """Rows as JSON arrays, none much longer than a server takes in one packet."""
    if not rows:
        return
    whole = msgspec.json.encode(rows)
    if len(whole) <= _PACKET or len(rows) == 1:
        yield whole.decode()
        return
    half = len(rows) // 2
    yield from packets(rows[:half])
    yield from packets(rows[half:])


def full_name(table: Table[Any]) -> str:
    return f"rota_{table.name}"


def column_of(table: Table[Any], name: str) -> Column[Any]:
    return metadata.tables[full_name(table)].c[name]


def _literal(value: object) -> str:
    """A constant of our own as SQL."""
    if isinstance(value, str):
        assert _WORD.fullmatch(value), f"{value!r} is no word"
        return f"'{value}'"
    return "NULL" if value is None else str(int(value))  # type: ignore[call-overload]


def _where(where: tuple[tuple[str, Any], ...], row: str = "t") -> list[str]:
    return [f"{row}.{name} IS NULL" if it is None else f"{row}.{name} = {_literal(it)}" for name, it in where]


def names_of(change: Change) -> list[str]:
    """Names for the values of a row."""
    return [f"was_{name}" for name in change.match] + [f"new_{name}" for name in change.fields]


def _columns_of(change: Change) -> list[Column[Any]]:
    return [column_of(change.table, name) for name in (*change.match, *change.fields)]


def assignments(change: Change, row: str = "") -> str:
    """`row` stands before the names, where the database allows it; where it does, a name may be a word of SQL."""
    own = [f"{row}{name} = new_{name}" for name in change.fields]
    own += [f"{row}{name} = {_literal(value)}" for name, value in change.fixed]
    return ", ".join([*own, *(f"{row}{name} = t.{name} + 1" for name in change.raised)])


def condition(change: Change, same: str) -> str:
    """`same` compares so that nulls are equal."""
    nullable = {name: column_of(change.table, name).nullable for name in change.match}
    equal = [f"t.{name} {same if nullable[name] else '='} was_{name}" for name in change.match]
    return " AND ".join([*equal, *_where(change.where)])


def is_now(change: Change, same: str) -> str:
    """The condition that a row is as a change makes it."""
    own = [f"t.{name} = was_{name}" for name in change.table.key]
    own += [f"t.{name} {same} new_{name}" for name in change.fields]
    return " AND ".join([*own, *_where(change.fixed)])


def marks(mark: str, columns: tuple[str, ...]) -> str:
    return mark if len(columns) == 1 else f"({', '.join(mark for _ in columns)})"


@cache
def delete_text(gone: Remove, among: str) -> str:
    table = full_name(gone.table)  # without a short name: MariaDB takes none here
    names = ", ".join(f"{table}.{name}" for name in gone.table.key)
    key = names if len(gone.table.key) == 1 else f"({names})"
    conditions = " AND ".join([f"{key} {among}", *_where(gone.where, table)])
    return f"DELETE FROM {table} WHERE {conditions}"  # noqa: S608 - no input in it


@cache
def insert_text(verb: str, quote: str, mark: str, new: Insert) -> str:
    names = ", ".join(f"{quote}{name}{quote}" for name in new.names)
    return f"{verb} INTO {full_name(new.table)} ({names}) VALUES ({', '.join(mark for _ in new.names)})"


@cache
def pg_write(writes: tuple[tuple[Write, Wanted], ...], is_told: bool) -> str:
    parts, counts, place = [], [], 1
    for number, (write, wanted) in enumerate(writes):
        sql, width = _pg_part(write, place)
        place += width
        match wanted:
            case Wanted.NOTHING:
                parts.append(sql)
            case Wanted.COUNT:
                parts.append(f"{sql} RETURNING 1")
                counts.append(f"(SELECT count(*) FROM part_{number})")  # noqa: S608 - no input in it
            case Wanted.KEYS:
                keys = ", ".join(f"t.{name}" for name in write.table.key)
                named = ", ".join(write.table.key)
                parts.append(f"{sql} RETURNING {keys}")
                listed = f"json_agg(json_build_array({named}))"
                counts.append(f"(SELECT coalesce({listed}, '[]')::text FROM part_{number})")  # noqa: S608 - no input in it
    if len(parts) == 1 and not counts and not is_told:
        return parts[0]
    if is_told:
        counts.append(f"(SELECT count(pg_notify('rota', topic)) FROM unnest(${place}::text::text[]) AS topic)")  # noqa: S608 - no input in it
    first = ", ".join(f"part_{n} AS ({part})" for n, part in enumerate(parts))
    last = f"SELECT {', '.join(counts) or '1'}"
    return f"WITH {first} {last}" if first else last


def _pg_part(write: Write, place: int) -> tuple[str, int]:
    """The SQL of a write whose first array has that place, and how many arrays it takes."""
    match write:
        case Insert():
            return _pg_insert(write, place), len(write.names)
        case Remove():
            return _pg_delete(write, place), len(write.table.key)
        case Change():
            return _pg_update(write, place), len(names_of(write))


@cache
def _pg_insert(new: Insert, place: int) -> str:
    names = ", ".join(f'"{name}"' for name in new.names)
    arrays = ", ".join(f"${n}::text::{_pg_type(column_of(new.table, it))}[]" for n, it in enumerate(new.names, place))
    missing = " ON CONFLICT DO NOTHING" if new.missing else ""
    return f"INSERT INTO {full_name(new.table)} ({names}) SELECT * FROM unnest({arrays}){missing}"  # noqa: S608 - no input in it


@cache
def _pg_delete(gone: Remove, place: int) -> str:
    key = [column_of(gone.table, name) for name in gone.table.key]
    if len(key) == 1:
        return delete_text(gone, _pg_among(key[0], place))
    arrays = ", ".join(f"${n}::text::{_pg_type(column)}[]" for n, column in enumerate(key, place))
    return delete_text(gone, f"IN (SELECT * FROM unnest({arrays}))")  # noqa: S608 - no input in it


def _pg_among(column: Column[Any], place: int) -> str:
    """One of the values of an array, which is read once: a mere cast would be made again for every row looked at."""
    kind = f"{_pg_type(column)}[]"
    return f"= ANY((SELECT ${place}::text::{kind})::{kind})"


@cache
def _pg_update(change: Change, place: int) -> str:
    arrays = ", ".join(f"${n}::text::{_pg_type(column)}[]" for n, column in enumerate(_columns_of(change), place))
    source = f"FROM unnest({arrays}) AS v({', '.join(names_of(change))})"
    key = change.table.key[0]
    keys = _pg_among(column_of(change.table, key), place + change.match.index(key))  # whatever the planner believes
    where = f"t.{key} {keys} AND {condition(change, 'IS NOT DISTINCT FROM')}"
    return f"UPDATE {full_name(change.table)} AS t SET {assignments(change)} {source} WHERE {where}"  # noqa: S608 - no input in it


def _mysql_values(change: Change) -> str:
    named = zip(names_of(change), _columns_of(change), strict=True)
    fields = ", ".join(f"{name} {_mysql_type(column)} PATH '$[{n}]'" for n, (name, column) in enumerate(named))
    return f"JSON_TABLE(%s, '$[*]' COLUMNS ({fields})) AS v"


@cache
def mysql_update(change: Change) -> str:
    return f"""
        UPDATE {full_name(change.table)} AS t JOIN {_mysql_values(change)}
        SET {assignments(change, "t.")} WHERE {condition(change, "<=>")}
    """  # noqa: S608 - no input in it


@cache
def mysql_now(change: Change) -> str:
    keys = ", ".join(f"t.{name}" for name in change.table.key)
    return f"""
        SELECT {keys} FROM {full_name(change.table)} AS t JOIN {_mysql_values(change)} WHERE {is_now(change, "<=>")}
    """  # noqa: S608 - no input in it


def _pg_type(column: Column[Any]) -> str:
    if isinstance(column.type, String | Text):
        return "text"
    return "bigint" if isinstance(column.type, BigInteger) else "integer"


def _mysql_type(column: Column[Any]) -> str:
    if isinstance(column.type, String):
        return "MEDIUMTEXT" if column.type.length is None else f"VARCHAR({column.type.length})"
    return "BIGINT"
