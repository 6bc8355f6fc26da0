"""What differs between the databases: their clock, their locks, how many rows are written at once, which of their
errors mean what, and which of their settings would lose what was acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Protocol

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    String,
    Table,
    Text,
    any_,
    bindparam,
    literal,
    literal_column,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.exc import DBAPIError

from rota.backends.sql import schema

STATEMENT_S = 10
LOCK_S = 5
IDLE_S = 2
TCP_S = 3


class Dialect(Protocol):
    """One kind of database."""

    name: str
    retryable: frozenset[str]
    """Codes of errors after which the whole transaction may be made again."""

    def now_us(self, conn: Connection) -> int:
        """The database's clock."""
        ...

    def statement_now_us(self) -> ColumnElement[int]:
        """The database's clock when the statement began: one value, so that an index can be searched by it."""
        ...

    def among(self, column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
        """Whether a column is one of many values."""
        ...

    def locked(self, query: Select[Any], *, skip: bool = False) -> Select[Any]:
        """The same query, locking its rows; `skip` leaves out rows that others hold."""
        ...

    def insert(self, conn: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert rows that are in the order of the table's columns."""
        ...

    def insert_missing(self, conn: Connection, table: Table, keys: Sequence[str]) -> None:
        """Make sure that a table of one column has these keys."""
        ...

    def update_jobs(self, conn: Connection, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> int:
        """Set columns of jobs. A row has id, revision and next_fire_at as they were read, then the new values.
        Returns how many still were as read."""
        ...

    def code(self, error: DBAPIError) -> str:
        """The database's own code of an error."""
        ...

    def weaknesses(self, conn: Connection) -> list[str]:
        """Settings of this server with which an acknowledged write could be lost."""
        ...

    def migration_lock(self, conn: Connection) -> None:
        """Wait until no other process migrates this database; held until the connection closes."""
        ...


def _columns(table: Table) -> str:
    return ", ".join(f'"{column.name}"' for column in table.columns)


class PostgreSQL:
    name = "postgresql"
    retryable = frozenset({"40001", "40P01", "55P03", "23505"})
    session = {  # noqa: RUF012 - read only
        "statement_timeout": f"{STATEMENT_S}s",
        "lock_timeout": f"{LOCK_S}s",
        "idle_in_transaction_session_timeout": f"{IDLE_S}s",
        "tcp_user_timeout": f"{TCP_S}s",
        "timezone": "UTC",
        "application_name": "rota",
    }

    def now_us(self, conn: Connection) -> int:
        return int(conn.scalar(_PG_NOW) or 0)

    def statement_now_us(self) -> ColumnElement[int]:
        return literal_column("(extract(epoch FROM statement_timestamp()) * 1000000)::bigint", BigInteger)

    def among(self, column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
        return column == any_(bindparam(None, list(values), type_=ARRAY(column.type)))

    def locked(self, query: Select[Any], *, skip: bool = False) -> Select[Any]:
        return query.with_for_update(skip_locked=skip)

    def insert(self, conn: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            arrays = ", ".join(f"${n}::{_pg_type(column)}[]" for n, column in enumerate(table.columns, 1))
            sql = f"INSERT INTO {table.name} ({_columns(table)}) SELECT * FROM unnest({arrays})"  # noqa: S608 - no input in it
            conn.exec_driver_sql(sql, tuple(list(column) for column in zip(*rows, strict=True)))

    def insert_missing(self, conn: Connection, table: Table, keys: Sequence[str]) -> None:
        sql = f"INSERT INTO {table.name} ({_columns(table)}) SELECT * FROM unnest($1::text[]) ON CONFLICT DO NOTHING"  # noqa: S608 - no input in it
        conn.exec_driver_sql(sql, (list(keys),))

    def update_jobs(self, conn: Connection, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> int:
        arrays = tuple(list(column) for column in zip(*rows, strict=True))
        return conn.exec_driver_sql(_pg_update(columns), arrays).rowcount

    def code(self, error: DBAPIError) -> str:
        return str(getattr(error.orig, "sqlstate", None) or "")

    def weaknesses(self, conn: Connection) -> list[str]:
        found = []
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            value = conn.exec_driver_sql(f"SHOW {setting}").scalar()
            if value == "off":
                found.append(f"{setting} is off; set it to on in postgresql.conf")
        return found

    def migration_lock(self, conn: Connection) -> None:
        conn.exec_driver_sql("SET statement_timeout = 0")
        conn.exec_driver_sql("SET lock_timeout = 0")
        conn.exec_driver_sql("SELECT pg_advisory_lock(7700770077)")


_PG_NOW = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


@cache
def _pg_update(columns: tuple[str, ...]) -> str:
    types = ["bigint"] * 3 + [_pg_type(schema.job.c[name]) for name in columns]
    arrays = ", ".join(f"${n}::{kind}[]" for n, kind in enumerate(types, 1))
    names = ", ".join(f"new_{name}" for name in columns)
    new = ", ".join(f"{name} = new_{name}" for name in columns)
    return f"""
        UPDATE rota_job AS j SET {new} FROM unnest({arrays}) AS v(was_id, was_revision, was_next, {names})
        WHERE j.id = was_id AND j.revision = was_revision AND j.next_fire_at IS NOT DISTINCT FROM was_next
    """  # noqa: S608 - no input in it


def _pg_type(column: Any) -> str:
    if isinstance(column.type, String | Text):
        return "text"
    return "bigint" if isinstance(column.type, BigInteger) else "integer"


class MySQL:
    """MySQL 8 and MariaDB 10.6 or newer."""

    name = "mysql"
    retryable = frozenset({"1205", "1213", "1062", "1020"})

    def now_us(self, conn: Connection) -> int:
        return int(conn.scalar(_MYSQL_NOW) or 0)

    def statement_now_us(self) -> ColumnElement[int]:
        return literal_column("CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)", BigInteger)

    def among(self, column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
        return column.in_(list(values))

    def locked(self, query: Select[Any], *, skip: bool = False) -> Select[Any]:
        return query.with_for_update(skip_locked=skip)

    def insert(self, conn: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            columns = ", ".join(f"`{column.name}`" for column in table.columns)
            marks = ", ".join("%s" for _ in table.columns)
            conn.exec_driver_sql(f"INSERT INTO {table.name} ({columns}) VALUES ({marks})", list(rows))  # noqa: S608 - no input in it

    def insert_missing(self, conn: Connection, table: Table, keys: Sequence[str]) -> None:
        column = next(iter(table.columns)).name
        conn.exec_driver_sql(f"INSERT IGNORE INTO {table.name} (`{column}`) VALUES (%s)", [(key,) for key in keys])  # noqa: S608 - no input in it

    def update_jobs(self, conn: Connection, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> int:
        return sum(conn.exec_driver_sql(_mysql_update(columns), (text,)).rowcount for text in _texts(rows))

    def code(self, error: DBAPIError) -> str:
        arguments = getattr(error.orig, "args", ())
        return str(arguments[0]) if arguments else ""

    def weaknesses(self, conn: Connection) -> list[str]:
        found = []
        if str(conn.exec_driver_sql("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit").scalar()) != "1":
            found.append("innodb_flush_log_at_trx_commit is not 1; set it to 1 in my.cnf")
        if str(conn.exec_driver_sql("SELECT @@GLOBAL.innodb_doublewrite").scalar()) in ("0", "OFF"):
            found.append("innodb_doublewrite is off; set it to ON in my.cnf")
        return found

    def migration_lock(self, conn: Connection) -> None:
        conn.exec_driver_sql("SET SESSION lock_wait_timeout = 600 /*M! , max_statement_time = 0 */")
        if conn.exec_driver_sql("SELECT GET_LOCK(CONCAT('rota.', DATABASE()), 600)").scalar() != 1:
            raise TimeoutError("another node has been migrating this database for ten minutes")


_PACKET = 1_000_000
_MYSQL_NOW = text("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS UNSIGNED)")


@cache
def _mysql_update(columns: tuple[str, ...]) -> str:
    types = [(f"new_{name}", _mysql_type(schema.job.c[name])) for name in columns]
    known = [("was_id", "BIGINT"), ("was_revision", "BIGINT"), ("was_next", "BIGINT"), *types]
    fields = ", ".join(f"{name} {kind} PATH '$[{n}]'" for n, (name, kind) in enumerate(known))
    new = ", ".join(f"j.{name} = v.new_{name}" for name in columns)
    return f"""
        UPDATE rota_job AS j JOIN JSON_TABLE(%s, '$[*]' COLUMNS ({fields})) AS v ON v.was_id = j.id SET {new}
        WHERE j.revision = v.was_revision AND j.next_fire_at <=> v.was_next
    """  # noqa: S608 - no input in it


def _texts(rows: Sequence[tuple[Any, ...]]) -> Iterable[str]:
    """Rows as JSON arrays, none much longer than a server takes in one packet."""
    lines: list[str] = []
    size = 0
    for row in rows:
        line = json.dumps(row)
        if lines and size + len(line) > _PACKET:
            yield f"[{','.join(lines)}]"
            lines, size = [], 0
        lines.append(line)
        size += len(line)
    yield f"[{','.join(lines)}]"


def _mysql_type(column: Any) -> str:
    if isinstance(column.type, String):
        return "MEDIUMTEXT" if column.type.length is None else f"VARCHAR({column.type.length})"
    return "BIGINT"


class SQLite:
    name = "sqlite"
    retryable = frozenset({"SQLITE_BUSY_SNAPSHOT", "SQLITE_CONSTRAINT_UNIQUE"})

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us

    def now_us(self, conn: Connection) -> int:
        return self._now_us()

    def statement_now_us(self) -> ColumnElement[int]:
        return literal(self._now_us(), BigInteger)

    def among(self, column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
        return column.in_(list(values))

    def locked(self, query: Select[Any], *, skip: bool = False) -> Select[Any]:
        return query  # the transaction has the whole file for itself

    def insert(self, conn: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            marks = ", ".join("?" for _ in table.columns)
            conn.exec_driver_sql(f"INSERT INTO {table.name} ({_columns(table)}) VALUES ({marks})", list(rows))  # noqa: S608 - no input in it

    def insert_missing(self, conn: Connection, table: Table, keys: Sequence[str]) -> None:
        sql = f"INSERT OR IGNORE INTO {table.name} ({_columns(table)}) VALUES (?)"  # noqa: S608 - no input in it
        conn.exec_driver_sql(sql, [(key,) for key in keys])

    def update_jobs(self, conn: Connection, columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]) -> int:
        new = ", ".join(f"{name} = ?" for name in columns)
        sql = f"UPDATE rota_job SET {new} WHERE id = ? AND revision = ? AND next_fire_at IS ?"  # noqa: S608 - no input in it
        return conn.exec_driver_sql(sql, [(*row[3:], *row[:3]) for row in rows]).rowcount

    def code(self, error: DBAPIError) -> str:
        return str(getattr(error.orig, "sqlite_errorname", ""))

    def weaknesses(self, conn: Connection) -> list[str]:
        found = []
        if int(conn.exec_driver_sql("PRAGMA synchronous").scalar() or 0) < 2:
            found.append("synchronous is below FULL; leave it out of the URL")
        if conn.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
            found.append(
                "the journal is not a write-ahead log; put the file on a file system that allows shared memory"
            )
        return found

    def migration_lock(self, conn: Connection) -> None:
        pass  # the migration itself runs in an exclusive transaction
