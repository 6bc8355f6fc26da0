"""Open a SQL database from its URL, with the session settings that the promises need."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import URL, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from rota.backends.sql.database import READERS, TURN_S, WRITERS, Database, Engines, FileDatabase, ServerDatabase
from rota.backends.sql.dialect import IDLE_S, LOCK_S, STATEMENT_S, MySQL, PostgreSQL, SQLite
from rota.backends.sql.rows import to_us
from rota.errors import InvalidInput, StoreRefused
from rota.ports import Clock

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "9p", "afs", "ceph", "glusterfs", "fuse.sshfs", "lustre", "gfs")
_CONNECT_S = 5


def connect(url: str, clock: Clock) -> Database:
    """Open the database that a store URL names. Nothing is sent to it yet."""
    parsed = _parse(url)
    match parsed.get_backend_name():
        case "sqlite":
            return _open_file(parsed, clock)
        case "postgresql":
            return _open_postgresql(parsed, clock)
        case "mysql" | "mariadb":
            return _open_mysql(parsed, clock)
        case other:
            raise InvalidInput.of("store", f"{other!r} is not a store that rota knows; use {_FORMS}")


_FORMS = "sqlite:///path, postgresql://user@host/database or mysql://user@host/database"


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number is a plain ValueError
        raise InvalidInput.of("store", f"this is not a store URL; use {_FORMS}") from None


def _open_file(url: URL, clock: Clock) -> Database:
    if url.host or not url.database or url.database == ":memory:":
        raise InvalidInput.of(
            "store", "an SQLite store needs a path: sqlite:///rota.db, or sqlite:////absolute/rota.db"
        )
    synchronous = str(url.query.get("synchronous", "FULL")).upper()
    if synchronous not in ("OFF", "NORMAL", "FULL", "EXTRA") or set(url.query) - {"synchronous"}:
        raise InvalidInput.of("store", "an SQLite URL takes only ?synchronous=FULL or EXTRA")
    path = Path(url.database).absolute()
    _refuse_network_file_system(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(URL.create("sqlite", database=str(path)), isolation_level="AUTOCOMMIT")

    @event.listens_for(engine, "connect")
    def prepare(conn: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        conn.execute(f"PRAGMA busy_timeout = {LOCK_S * 1000}")
        conn.execute("PRAGMA journal_mode = WAL")
        conn.execute(f"PRAGMA synchronous = {synchronous}")
        conn.execute("PRAGMA wal_autocheckpoint = 4000")

    return FileDatabase(SQLite(lambda: to_us(clock.wall())), engine, clock)


def _open_postgresql(url: URL, clock: Clock) -> Database:
    _refuse_options(url, {"ssl"})
    settings = {"server_settings": PostgreSQL.session, "timeout": _CONNECT_S}
    engines = _engines(url.set(drivername="postgresql+asyncpg"), settings)
    return ServerDatabase(PostgreSQL(), engines, clock)


def _open_mysql(url: URL, clock: Clock) -> Database:
    _refuse_options(url, set())
    settings = {"connect_timeout": _CONNECT_S, "init_command": _mysql_session()}
    engines = _engines(url.set(drivername="mysql+asyncmy", query={"charset": "utf8mb4"}), settings)
    return ServerDatabase(MySQL(), engines, clock)


def _refuse_options(url: URL, known: set[str]) -> None:
    """Options go to the driver, which has dangerous ones."""
    if unknown := sorted(set(url.query) - known):
        allowed = f"only {', '.join(sorted(known))}" if known else "none"
        raise InvalidInput.of("store", f"{', '.join(unknown)} cannot be set in this URL; allowed: {allowed}")


def _mysql_session() -> str:
    """Executable comments keep the settings of MariaDB away from MySQL."""
    return (
        f"SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_S}, wait_timeout = 600"
        f" /*M!100604 , idle_transaction_timeout = {IDLE_S}, max_statement_time = {STATEMENT_S} */"
    )


def _engines(url: URL, settings: dict[str, Any]) -> Engines:
    from sqlalchemy.ext.asyncio import create_async_engine  # heavy, and no SQLite store needs it

    def single(size: int) -> AsyncEngine:
        return create_async_engine(
            url,
            connect_args=settings,
            isolation_level="AUTOCOMMIT",
            pool_size=size,
            max_overflow=0,
            pool_timeout=TURN_S,
            pool_reset_on_return=None,
            skip_autocommit_rollback=True,  # half of what an idle node asks of MariaDB would be rollbacks of nothing
        )

    try:
        writer = create_async_engine(
            url, connect_args=settings, isolation_level="READ COMMITTED", pool_size=WRITERS, max_overflow=0
        )
        return Engines(writer=writer, reader=single(READERS), beat=single(1), ear=single(1))
    except ModuleNotFoundError as error:
        extra = "postgres" if "asyncpg" in str(error) else "mysql"
        raise StoreRefused(f"the driver of this store is not installed: pip install 'rota[{extra}]'") from None


def _refuse_network_file_system(path: Path) -> None:
    """Locks and shared memory of SQLite cannot be trusted over a network."""
    kind = _file_system(path)
    if kind.startswith(_NETWORK_FILE_SYSTEMS):
        raise StoreRefused(
            f"{path} is on a network file system ({kind}), where SQLite may lose data. "
            "Use a local path, or a PostgreSQL or MySQL store."
        )


def _file_system(path: Path) -> str:
    """The type of the file system that a path is on, as Linux tells it; elsewhere nothing is known."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return ""
    real, best, kind = os.path.realpath(path), "", ""
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        point = left.split(" ")[4].encode().decode("unicode_escape")
        if os.path.commonpath([real, point]) == point and len(point) >= len(best):
            best, kind = point, right.split(" ")[0]
    return kind
