"""What differs between the databases: their clock, their locks, how many rows are written at once, which of their
errors mean what, and which of their settings would lose what was acknowledged."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import msgspec
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    CursorResult,
    Select,
    Text,
    any_,
    bindparam,
    cast,
    delete,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError, OperationalError

from rota.model.tables import Change
from rota.storage.sql import schema, sets
from rota.storage.sql.sets import Found, Insert, Remove, Rows, Wanted, Write, WritePart, array_text, keys_in, packets

STATEMENT_S = 10
LOCK_S = 5
IDLE_S = 2
TCP_S = 3


class Dialect(ABC):
    """One kind of database. What is not abstract is what most of them do."""

    name: str
    retryable: frozenset[str]
    """Codes of errors after which the whole transaction may be made again."""
    denied = frozenset[str]()
    """Codes that say that the server lets nobody in with this URL."""
    moved = frozenset[str]()
    """Codes that say that this server takes no writes any more."""
    row_lock = " FOR UPDATE"
    """What locks the rows of a query that is text."""
    writes_in_one = False
    """Whether `write` is one statement, so that it needs no transaction around it."""
    run_block_max = 1000
    """How many run ids a process may take at once. One, where there is one writer at a time anyway."""

    @property
    def attempts_max(self) -> int:
        """How often a transaction that lost a race is made."""
        return 10

    @abstractmethod
    def now_us(self, conn: Connection) -> int:
        """The database's clock."""

    @abstractmethod
    def statement_now_us(self) -> ColumnElement[int]:
        """The database's clock when the statement began: one value, so that an index can be searched by it."""

    def among(self, column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
        """Whether a column is one of many values."""
        return column.in_(list(values))

    def among_named(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        """The same in a statement that is made once: the values come by name, as `listed` writes them."""
        return column.in_(bindparam(name, expanding=True))

    def listed(self, values: Iterable[Any]) -> Any:
        return list(values)

    def locked(self, query: Select[Any], *, skip: bool = False) -> Select[Any]:
        """The same query, locking its rows; `skip` leaves out rows that others hold."""
        return query.with_for_update(skip_locked=skip)

    def touch(self, conn: Connection, keys: Iterable[str]) -> None:  # noqa: B027 - most have nothing to do
        """Write something for each of these keys that were locked, where a lock alone does not keep all others out."""

    def whole(self, query: Select[Any]) -> Select[Any]:
        """The same query, made for `fetched`, where many rows are read at a time."""
        return query

    def fetched(self, found: CursorResult[Any]) -> Sequence[Sequence[Any]]:
        return found.all()

    def reserve(self, conn: Connection, name: str, count: int) -> int:
        """Reserve numbers that nobody else will get; returns the first."""
        c = schema.counter.c
        start: int = conn.scalars(self.locked(select(c.next).where(c.name == name))).one()
        conn.execute(update(schema.counter).where(c.name == name).values(next=start + count))
        return start

    def taken_arrivals(self, conn: Connection) -> Sequence[tuple[str, str]]:
        """Take all arrivals (kind, data) that are committed, waiting for no others: by id, for a scan that deletes
        would wait for rows that are not committed."""
        a = schema.arrival.c
        found = conn.execute(select(a.id, a.kind, a.data).order_by(a.id)).all()
        if found:
            conn.execute(delete(schema.arrival).where(self.among(a.id, [row.id for row in found])))
        return [(row.kind, row.data) for row in found]

    @abstractmethod
    def write(self, conn: Connection, parts: Sequence[WritePart], topics: Sequence[str] = ()) -> Found:
        """Write to several tables, no row of them twice; and wake those who listen to these topics when this
        transaction commits, where the database can. Returns for each part what is wanted of it."""

    @abstractmethod
    def code(self, error: DBAPIError) -> str:
        """The database's own code of an error."""

    @abstractmethod
    def has_refused(self, error: DBAPIError) -> bool:
        """Whether the server itself said that it has not done what would have committed."""

    def evict(self, conn: Connection) -> int | None:
        """End connections that hang in the middle of a message; none: the server does so itself."""
        return None

    @abstractmethod
    def weaknesses(self, conn: Connection) -> list[str]:
        """Settings of this server with which an acknowledged write could be lost."""

    def migration_lock(self, conn: Connection) -> None:  # noqa: B027 - most have nothing to do
        """Wait until no other process migrates this database; held until it is given back or the connection closes."""

    def migration_unlock(self, conn: Connection) -> None:  # noqa: B027 - most have nothing to do
        """Give that back, where the end of the connection does not."""


class OneByOne(Dialect):
    """Writes to each table with statements of its own."""

    def write(self, conn: Connection, parts: Sequence[WritePart], topics: Sequence[str] = ()) -> Found:
        if topics:
            conn.info.setdefault(_TOPICS, []).extend(topics)
        return [self._one(conn, part) for part in parts]

    def _one(self, conn: Connection, part: WritePart) -> int | set[Any]:
        """Write one part. A statement does not tell which rows it has changed: if not all, those are asked for that are
        now as it makes them."""
        count = self.written(conn, part.write, part.rows)
        if part.wanted is not Wanted.KEYS:
            return count
        assert isinstance(part.write, Change), "only of changes the keys are asked for"
        if count == len(part.rows):
            size = len(part.write.table.key)
            return set(keys_in(row[:size] for row in part.rows))
        return self.now(conn, part.write, part.rows)

    @abstractmethod
    def written(self, conn: Connection, write: Write, rows: Rows) -> int:
        """Write rows; says how many were."""

    @abstractmethod
    def now(self, conn: Connection, change: Change, rows: Rows) -> set[Any]:
        """The keys of those rows that are as a change makes them."""


_TOPICS = "rota_topics"


def taken_topics(conn: Connection) -> list[str]:
    """Whom to tell of what a transaction has written, now that it is committed, each once. After one that was rolled
    back nobody is told; for the next nothing is left."""
    return list(dict.fromkeys(conn.info.pop(_TOPICS, ())))


class PostgreSQL(Dialect):
    name = "postgresql"
    writes_in_one = True
    retryable = frozenset({"40001", "40P01", "55P03", "23505"})
    denied = frozenset({"28000", "28P01", "3D000"})
    moved = frozenset({"25006"})
    session = {  # noqa: RUF012 - read only
        "statement_timeout": f"{STATEMENT_S}s",
        "lock_timeout": f"{LOCK_S}s",
        "idle_in_transaction_session_timeout": f"{IDLE_S}s",
        "tcp_user_timeout": f"{TCP_S}s",
        "timezone": "UTC",
        "application_name": "rota",
        # Every statement has its index. A planner that knows little, or has seen few runs of very many items, would
        # rather read tables from end to end, and have helpers and a compiler do so faster.
        "enable_seqscan": "off",
        "max_parallel_workers_per_gather": "0",
        "jit": "off",
    }

    def now_us(self, conn: Connection) -> int:
        return int(conn.scalar(_PG_NOW) or 0)

    def statement_now_us(self) -> ColumnElement[int]:
        return literal_column("(extract(epoch FROM statement_timestamp()) * 1000000)::bigint", BigInteger)

    def among(self, column: ColumnElement[Any], values: Iterable[Any]) -> ColumnElement[bool]:
        return column == any_(_pg_array(bindparam(None, array_text(values), type_=Text), column))

    def among_named(self, column: ColumnElement[Any], name: str) -> ColumnElement[bool]:
        return column == any_(_pg_array(bindparam(name, type_=Text), column))

    def listed(self, values: Iterable[Any]) -> str:
        return array_text(values)

    def taken_arrivals(self, conn: Connection) -> Sequence[tuple[str, str]]:
        found = conn.exec_driver_sql("DELETE FROM rota_arrival RETURNING id, kind, data").all()
        return [(kind, data) for _, kind, data in sorted(tuple(row) for row in found)]

    def write(self, conn: Connection, parts: Sequence[WritePart], topics: Sequence[str] = ()) -> Found:
        """All of it as one statement. Its parts do not see each other: no row may come in two of them."""
        arrays = [array_text(column) for part in parts for column in zip(*part.rows, strict=True)]
        if topics:
            arrays.append(array_text(topics))
        sql = sets.pg_write(tuple((part.write, part.wanted) for part in parts), bool(topics))
        answer = conn.exec_driver_sql(sql, tuple(arrays))
        told = iter(answer.one() if answer.returns_rows else ())
        found: Found = []
        for part in parts:
            match part.wanted:
                case Wanted.NOTHING:
                    found.append(0)
                case Wanted.COUNT:
                    found.append(int(next(told)))
                case Wanted.KEYS:
                    found.append(set(keys_in(msgspec.json.decode(next(told)))))
        return found

    def code(self, error: DBAPIError) -> str:
        return str(getattr(error.orig, "sqlstate", None) or "")

    def has_refused(self, error: DBAPIError) -> bool:
        """A server that is stopped (57P0x) says so even of what it has committed, if it waited for a standby."""
        code = self.code(error)
        return bool(code) and not code.startswith(("57P", "08")) and not error.connection_invalidated

    def reserve(self, conn: Connection, name: str, count: int) -> int:
        """In one statement, for it may commit by itself."""
        counted = update(schema.counter).where(schema.counter.c.name == name)
        c = schema.counter.c
        return int(conn.scalars(counted.values(next=c.next + count).returning(c.next)).one()) - count

    def evict(self, conn: Connection) -> int | None:
        """To prepare a statement takes two messages, and between them a server waits without any timeout."""
        return int(conn.exec_driver_sql(_PG_EVICT).scalar() or 0)

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


_PG_EVICT = f"""
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE datname = current_database() AND usename = current_user AND application_name = 'rota'
    AND state = 'active' AND wait_event = 'ClientRead' AND pid <> pg_backend_pid()
    AND greatest(xact_start, state_change) < clock_timestamp() - interval '{IDLE_S} seconds'
"""  # noqa: S608 - no input in it

_PG_NOW = text("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")


def _pg_array(text_: ColumnElement[str], column: ColumnElement[Any]) -> ColumnElement[Any]:
    """An array from its text, read once for the statement: a mere cast would be made again for every row looked at."""
    kind = ARRAY(column.type)
    return cast(select(cast(text_, kind)).scalar_subquery(), kind)


class MySQL(OneByOne):
    """MySQL 8 and MariaDB 10.6 or newer."""

    name = "mysql"
    retryable = frozenset({"1205", "1213", "1062", "1020"})
    denied = frozenset({"1044", "1045", "1049", "1698", "3159"})
    moved = frozenset({"1047", "1290", "1836"})

    @property
    def attempts_max(self) -> int:
        """Who loses a race against another member has done all the work in vain, and waits for nobody's lock."""
        return 40 if self.certifies else 10

    def __init__(self) -> None:
        self.certifies = False
        """Whether it is a Galera cluster. A member knows nothing of the locks of others, neither of rows nor of names.
        The members compare what transactions wrote: of two that wrote the same row, the later one is undone and made
        again. So whatever rests on a lock also writes."""

    def now_us(self, conn: Connection) -> int:
        return int(conn.scalar(_MYSQL_NOW) or 0)

    def statement_now_us(self) -> ColumnElement[int]:
        return literal_column("CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)", BigInteger)

    def reserve(self, conn: Connection, name: str, count: int) -> int:
        """In one statement: others wait for the counter. The reply to it carries what `LAST_INSERT_ID` was given."""
        done = conn.exec_driver_sql(_MYSQL_RESERVE, (count, name))
        assert done.rowcount == 1, f"there is no counter {name}"
        return int(done.lastrowid)

    def touch(self, conn: Connection, keys: Iterable[str]) -> None:
        if self.certifies:
            _galera_touch(conn, keys)

    def now(self, conn: Connection, change: Change, rows: Rows) -> set[Any]:
        return {key for part in packets(rows) for key in keys_in(conn.exec_driver_sql(sets.mysql_now(change), (part,)))}

    def written(self, conn: Connection, write: Write, rows: Rows) -> int:
        match write:
            case Insert():
                verb = "INSERT IGNORE" if write.missing else "INSERT"
                return conn.exec_driver_sql(sets.insert_text(verb, "`", "%s", write), list(rows)).rowcount
            case Remove():
                marks = ", ".join(sets.marks("%s", write.table.key) for _ in rows)
                condition = sets.delete_text(write, f"IN ({marks})")
                return conn.exec_driver_sql(condition, tuple(value for row in rows for value in row)).rowcount
            case Change():
                return sum(conn.exec_driver_sql(sets.mysql_update(write), (part,)).rowcount for part in packets(rows))

    def code(self, error: DBAPIError) -> str:
        arguments = getattr(error.orig, "args", ())
        return str(arguments[0]) if arguments else ""

    def has_refused(self, error: DBAPIError) -> bool:
        return self.code(error) in self.retryable and not error.connection_invalidated

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
        if self.certifies:
            _galera_lock(conn)

    def migration_unlock(self, conn: Connection) -> None:
        if self.certifies:
            conn.exec_driver_sql(_GIVE_BACK)


_MYSQL_NOW = text("SELECT CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS UNSIGNED)")
_MYSQL_RESERVE = "UPDATE rota_counter SET next = LAST_INSERT_ID(next) + %s WHERE name = %s"
TOUCHED_MAX = 256
"""How many rows all keys share: two keys that meet in one cost a repeat now and then."""
MIGRATING_S = 600
"""For how long a process that died while it migrated keeps others from it."""
LOOK_S = 0.2

_TABLE = "CREATE TABLE IF NOT EXISTS rota_migrating (id INT PRIMARY KEY, until_at BIGINT NOT NULL) ENGINE=InnoDB"
_ROW = "INSERT IGNORE INTO rota_migrating (id, until_at) VALUES (1, 0)"
_TAKE = f"""
    UPDATE rota_migrating SET until_at = UNIX_TIMESTAMP() + {MIGRATING_S} WHERE id = 1 AND until_at < UNIX_TIMESTAMP()
"""  # noqa: S608 - no input in it
_GIVE_BACK = "UPDATE rota_migrating SET until_at = 0 WHERE id = 1"
_CONFLICTS = (1205, 1213, 1062)


def _galera_touch(conn: Connection, keys: Iterable[str]) -> None:
    """Write something for each key that this transaction has locked."""
    numbers = sorted({crc32(key.encode()) % TOUCHED_MAX for key in keys})
    if numbers:
        rows = ", ".join(f"('lock:{number}', 1)" for number in numbers)
        conn.exec_driver_sql(
            f"INSERT INTO rota_counter (name, next) VALUES {rows} ON DUPLICATE KEY UPDATE next = next + 1"  # noqa: S608
        )


def _galera_lock(conn: Connection) -> None:
    """Wait until no process on any member migrates. The connection commits each statement by itself."""
    conn.exec_driver_sql(_TABLE)
    for _ in range(round(MIGRATING_S / LOOK_S)):
        try:
            conn.exec_driver_sql(_ROW)
            if conn.exec_driver_sql(_TAKE).rowcount == 1:
                return
        except OperationalError as error:
            if error.orig is None or error.orig.args[0] not in _CONFLICTS:
                raise
        conn.exec_driver_sql(f"SELECT SLEEP({LOOK_S})")
    raise TimeoutError("another node has been migrating this database for ten minutes")
