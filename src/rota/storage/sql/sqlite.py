"""SQLite: a file, of which a transaction that writes has all for itself."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, CursorResult, Select, Text, bindparam, func, select
from sqlalchemy.exc import DBAPIError, OperationalError

from rota.model.value import decode, encode
from rota.ports import Clock
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.sets import SQLiteSets

_LOOK_AGAIN_S, _LOOK_AGAIN_MAX_S = 0.0002, 0.002
_BUSY = ("SQLITE_BUSY", "SQLITE_BUSY_RECOVERY", "SQLITE_BUSY_TIMEOUT")
"""Another process has the file, or puts it in order after one that was killed."""


def when_free(do: Callable[[], object], patience_s: float, clock: Clock) -> None:
    """Do something as soon as no other process has the file."""
    until_s, pause_s = clock.monotonic() + patience_s, _LOOK_AGAIN_S
    while True:
        try:
            do()
        except (OperationalError, sqlite3.OperationalError) as error:
            if _name_of(error) not in _BUSY or clock.monotonic() >= until_s:
                raise
        else:
            return
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _LOOK_AGAIN_MAX_S)


def _name_of(error: BaseException) -> str:
    """SQLite's name of an error, of which the driver or SQLAlchemy tells."""
    return str(getattr(getattr(error, "orig", error), "sqlite_errorname", ""))


class SQLite(SQLiteSets, Dialect):
    name = "sqlite"
    row_lock = ""
    run_block_max = 1
    retryable = frozenset({"SQLITE_BUSY_SNAPSHOT", "SQLITE_CONSTRAINT_UNIQUE"})

    def __init__(self, now_us: Callable[[], int]) -> None:
        self._now_us = now_us

    def now_us(self, conn: Connection) -> int:
        return self._now_us()

    def statement_now_us(self) -> ColumnElement[int]:
        return bindparam(None, callable_=self._now_us, type_=BigInteger)

    def among(self, column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
        texts: ColumnElement[str] = bindparam(None, encode(list(values)))
        return column.in_(select(func.json_each(texts).table_valued("value").c.value))

    def among_named(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        texts: ColumnElement[str] = bindparam(name, type_=Text)
        return column.in_(select(func.json_each(texts).table_valued("value").c.value))

    def listed(self, values: Iterable[Any]) -> str:
        return encode(list(values))

    def locked(self, query: Select[Any], *, skip: bool = False) -> Select[Any]:
        return query  # the transaction has the whole file for itself

    def whole(self, query: Select[Any]) -> Select[Any]:
        """All rows as one: between two rows the driver lets go of the interpreter, and another thread takes it."""
        rows = query.subquery()
        return select(func.json_group_array(func.json_array(*rows.c)))

    def fetched(self, found: CursorResult[Any]) -> Sequence[Sequence[Any]]:
        return decode(found.scalar_one(), list)

    def code(self, error: DBAPIError) -> str:
        return _name_of(error)

    def has_refused(self, error: DBAPIError) -> bool:
        return True  # it is a part of this process

    def weaknesses(self, conn: Connection) -> list[str]:
        found = []
        if int(conn.exec_driver_sql("PRAGMA synchronous").scalar() or 0) < 2:
            found.append("synchronous is below FULL; leave it out of the URL")
        if conn.exec_driver_sql("PRAGMA journal_mode").scalar() != "wal":
            found.append(
                "the journal is not a write-ahead log; put the file on a file system that allows shared memory"
            )
        return found
