"""SQLite: a file, of which a transaction that writes has all for itself."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, TypeVar, assert_never

import msgspec
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    CursorResult,
    Engine,
    Select,
    Text,
    bindparam,
    func,
    select,
)
from sqlalchemy.exc import DBAPIError, OperationalError

from rota.model.tables import Change
from rota.model.value import decode, encode
from rota.ports import Clock
from rota.storage.sql import sets
from rota.storage.sql.database import Database, Work, again
from rota.storage.sql.dialect import LOCK_S, OneByOne, taken_topics
from rota.storage.sql.sets import Insert, Remove, Rows, Write
from rota.storage.sql.wake_sockets import WakeSockets

T = TypeVar("T")

EXCLUSIVE_S = 600.0
"""How long a process waits while another migrates."""
_CHUNKS = (500, 250, 100, 50, 25, 10, 5, 2, 1)
"""A full batch is one statement, any other a few."""
_LOOK_AGAIN_S, _SOON_S, _AT_LAST_S = 0.0001, 0.00025, 0.1
"""How long to wait before looking again: at first, after some looks, and after seconds, for each look costs processor
time and to have waited for a fiftieth longer costs nobody."""
_BUSY = ("SQLITE_BUSY", "SQLITE_BUSY_RECOVERY", "SQLITE_BUSY_TIMEOUT")
"""Another process has the file, or puts it in order after one that was killed."""


def when_free(do: Callable[[], T], patience_s: float, clock: Clock) -> T:
    """Do something as soon as no other process has the file. SQLite by itself would look again only after up to 0.1 s,
    and meanwhile another process may let go of the file and take it many times."""
    began_s, pause_s = clock.monotonic(), _LOOK_AGAIN_S
    while True:
        try:
            return do()
        except (OperationalError, sqlite3.OperationalError) as error:
            waited_s = clock.monotonic() - began_s
            if _name_of(error) not in _BUSY or waited_s >= patience_s:
                raise
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, max(_SOON_S, waited_s / 50), _AT_LAST_S)


def _name_of(error: BaseException) -> str:
    """SQLite's name of an error, of which the driver or SQLAlchemy tells."""
    return str(getattr(getattr(error, "orig", error), "sqlite_errorname", ""))


class SQLite(OneByOne):
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

    def now(self, conn: Connection, change: Change, rows: Rows) -> set[Any]:
        return {
            key
            for chunk in _chunks(rows)
            for key in sets.keys_in(conn.exec_driver_sql(_sqlite_now(change, len(chunk)), _flat(chunk)))
        }

    def written(self, conn: Connection, write: Write, rows: Rows) -> int:
        match write:
            case Insert(missing=True):
                return conn.exec_driver_sql(sets.insert_text("INSERT OR IGNORE", '"', "?", write), list(rows)).rowcount
            case Insert():
                statements = [(_sqlite_insert(write, len(chunk)), _flat(chunk)) for chunk in _chunks(rows)]
            case Remove():
                statements = [_sqlite_delete(write, rows)]
            case Change():
                statements = [(_sqlite_update(write, len(chunk)), _flat(chunk)) for chunk in _chunks(rows)]
            case _:
                assert_never(write)
        return sum(conn.exec_driver_sql(sql, values).rowcount for sql, values in statements)

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


def _sqlite_delete(gone: Remove, rows: Rows) -> tuple[str, tuple[Any, ...]]:
    if len(gone.table.key) == 1:
        values = msgspec.json.encode([value for (value,) in rows]).decode()
        return sets.delete_text(gone, "IN (SELECT value FROM json_each(?))"), (values,)
    marks = ", ".join(sets.marks("?", gone.table.key) for _ in rows)
    return sets.delete_text(gone, f"IN (VALUES {marks})"), _flat(rows)


def _flat(rows: Rows) -> tuple[Any, ...]:
    return tuple(value for row in rows for value in row)


def _chunks(rows: Rows) -> Iterable[Rows]:
    """Chunks of few sizes, so that their statements are prepared once."""
    start = 0
    for size in _CHUNKS:
        while start + size <= len(rows):
            yield rows[start : start + size]
            start += size


@cache
def _sqlite_insert(new: Insert, count: int) -> str:
    head, _, marks = sets.insert_text("INSERT", '"', "?", new).partition(" VALUES ")
    return f"{head} VALUES {', '.join(marks for _ in range(count))}"


def _sqlite_values(change: Change, count: int) -> str:
    marks = ", ".join(f"({', '.join('?' for _ in sets.names_of(change))})" for _ in range(count))
    named = ", ".join(f"column{n} AS {name}" for n, name in enumerate(sets.names_of(change), 1))
    return f"(SELECT {named} FROM (VALUES {marks})) AS v"  # noqa: S608 - no input in it


@cache
def _sqlite_update(change: Change, count: int) -> str:
    """It begins with its verb, or the driver would not tell how many rows it changed."""
    return f"""
        UPDATE {sets.full_name(change.table)} AS t SET {sets.assignments(change)}
        FROM {_sqlite_values(change, count)} WHERE {sets.condition(change, "IS")}
    """  # noqa: S608 - no input in it


@cache
def _sqlite_now(change: Change, count: int) -> str:
    keys, where = ", ".join(f"t.{name}" for name in change.table.key), sets.is_now(change, "IS")
    return f"""
        SELECT {keys} FROM {sets.full_name(change.table)} AS t, {_sqlite_values(change, count)} WHERE {where}
    """  # noqa: S608 - no input in it


class FileDatabase(Database):
    """An SQLite file. Writes run in one thread of this process, a whole transaction at a time; reads in another."""

    def __init__(self, dialect: SQLite, engine: Engine, sockets: WakeSockets, clock: Clock) -> None:
        self.dialect = dialect
        self._engine = engine
        self._sockets = sockets
        self._clock = clock
        self._writer = _Line(engine, "rota-sqlite-write", busy_s=0)
        self._reader = _Line(engine, "rota-sqlite-read")

    async def read(self, work: Work[T]) -> T:
        return await again(partial(self._reader.run, work), self.dialect, self._clock)

    async def write(self, work: Work[T]) -> T:
        return await self._write(LOCK_S, work)

    async def beat(self, work: Work[T]) -> T:
        """Its statements commit by themselves, as on a server. They stand in the way of all other writes, so they wait
        for the file as those do; what was done before the file was busy is done again, which a renewal may be."""
        return await again(
            partial(self._writer.run, lambda conn: when_free(partial(work, conn), LOCK_S, self._clock)),
            self.dialect,
            self._clock,
        )

    async def exclusively(self, work: Work[T]) -> T:
        return await self._write(EXCLUSIVE_S, work)

    @property
    def hears(self) -> bool:
        return self._sockets.can_hear

    def listen(self, wake: Callable[[str], None]) -> None:
        self._sockets.listen(wake)

    async def close(self) -> None:
        self._sockets.close()
        await self._reader.close()
        await self._writer.close()
        self._engine.dispose()

    async def _write(self, patience_s: float, work: Work[T]) -> T:
        return await again(
            partial(self._writer.run, partial(self._transaction, patience_s, work)), self.dialect, self._clock
        )

    def _transaction(self, patience_s: float, work: Work[T], conn: Connection) -> T:
        when_free(lambda: conn.exec_driver_sql("BEGIN IMMEDIATE"), patience_s, self._clock)
        try:
            result = work(conn)
            conn.exec_driver_sql("COMMIT")
        except BaseException:
            taken_topics(conn)
            if _raw(conn).in_transaction:
                conn.exec_driver_sql("ROLLBACK")
            raise
        self._sockets.tell(taken_topics(conn))
        return result


class _Line:
    """A thread with a connection of its own."""

    def __init__(self, engine: Engine, name: str, *, busy_s: int = LOCK_S) -> None:
        """`busy_s`: how long SQLite itself waits for a file that another process has."""
        self._busy_s = busy_s
        self._engine = engine
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=name)
        self._conn: Connection | None = None

    async def run(self, work: Work[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._with_connection, work)

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    def _with_connection(self, work: Work[T]) -> T:
        if self._conn is None:
            self._conn = self._engine.connect()
            _raw(self._conn).execute(f"PRAGMA busy_timeout = {self._busy_s * 1000}")
        return work(self._conn)

    def _disconnect(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None


def _raw(conn: Connection) -> Any:
    return conn.connection.dbapi_connection
