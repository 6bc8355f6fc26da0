"""Open a SQL database from its URL, with the session settings that the promises need.

    postgresql://user:password@one:5432,two:5432/database?sslmode=verify-full&sslrootcert=/etc/ca.pem

The names of the options are PostgreSQL's, also for MySQL and MariaDB. Messages repeat nothing of a password.
"""

from __future__ import annotations

import os
import re
import sqlite3
import ssl
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from sqlalchemy import URL, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from rota import system
from rota.errors import InvalidInput, StoreRefused
from rota.model.node import is_this_host
from rota.model.records import to_us
from rota.ports import Clock
from rota.server_url import host_and_port
from rota.storage.sql.database import READERS, TURN_S, WRITERS, Database, Engines, ServerDatabase
from rota.storage.sql.dialect import IDLE_S, LOCK_S, STATEMENT_S, MySQL, PostgreSQL
from rota.storage.sql.servers import MySQLDriver, PostgreSQLDriver, Servers
from rota.storage.sql.sqlite import FileDatabase, SQLite, when_free
from rota.storage.sql.wake_sockets import WakeSockets

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

_NETWORK_FILE_SYSTEMS = tuple("nfs cifs smb 9p afp afs webdav ceph glusterfs fuse.sshfs lustre gfs".split())
_CONNECT_S = 5


def connect(url: str, clock: Clock) -> Database:
    """Open the database that a store URL names. Nothing is sent to it yet."""
    kind = url.partition("://")[0].partition("+")[0]
    match kind:
        case "postgresql" | "postgres":
            return _open_postgresql(read_store_url(url, port=5432, form=_FORMS), clock)
        case "mysql" | "mariadb":
            return _open_mysql(read_store_url(url, port=3306, form=_FORMS), clock)
    parsed = _parse(url)
    if parsed.get_backend_name() != "sqlite":
        raise InvalidInput.of("store", f"{kind!r} is not a store that rota knows; use {_FORMS}")
    return _open_file(parsed, clock)


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
    with suppress(FileExistsError):  # the files beside it get the same permissions
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    engine = create_engine(URL.create("sqlite", database=str(path)), isolation_level="AUTOCOMMIT")

    @event.listens_for(engine, "connect")
    def prepare(conn: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        conn.execute(f"PRAGMA busy_timeout = {LOCK_S * 1000}")
        # SQLite waits for nobody who opens a new file at the same time
        when_free(lambda: conn.execute("PRAGMA journal_mode = WAL"), LOCK_S, clock)
        conn.execute(f"PRAGMA synchronous = {synchronous}")
        conn.execute("PRAGMA wal_autocheckpoint = 4000")

    return FileDatabase(SQLite(lambda: to_us(clock.wall())), engine, WakeSockets(path, clock), clock)


def _open_postgresql(url: StoreUrl, clock: Clock) -> Database:
    settings = {"server_settings": PostgreSQL.session, "timeout": _CONNECT_S, "ssl": tls_of(url) or False}
    servers = Servers(PostgreSQLDriver(), url.hosts)
    return ServerDatabase(PostgreSQL(), _engines(_bare(url, "postgresql+asyncpg"), settings, servers), servers, clock)


def _open_mysql(url: StoreUrl, clock: Clock) -> Database:
    settings = {"connect_timeout": _CONNECT_S, "init_command": _mysql_session(), "ssl": tls_of(url)}
    dialect = MySQL()
    servers = Servers(MySQLDriver(dialect), url.hosts)
    return ServerDatabase(dialect, _engines(_bare(url, "mysql+asyncmy"), settings, servers), servers, clock)


def _bare(url: StoreUrl, driver: str) -> URL:
    """The URL without its hosts, of which one is chosen for each connection."""
    query = {"charset": "utf8mb4"} if driver.startswith("mysql") else {}
    return URL.create(driver, url.user or None, url.password or None, database=url.database, query=query)


def _mysql_session() -> str:
    """Executable comments keep the settings of MariaDB away from MySQL."""
    return (
        f"SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = {LOCK_S}, wait_timeout = 600"
        f" /*M!100604 , idle_transaction_timeout = {IDLE_S}, max_statement_time = {STATEMENT_S} */"
    )


def _engines(url: URL, settings: dict[str, Any], servers: Servers) -> Engines:
    settings = {**settings, "async_creator_fn": servers.connect}
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
        return Engines(writer=writer, reader=single(READERS), beat=single(1), listener=single(1))
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
    """The type of the file system that a path is on; nothing if that is not known."""
    return kind_at(path, _mounts() if system.IS_LINUX else mounts_told(_said_of_mounts()))


def kind_at(path: Path, mounts: Iterable[tuple[str, str]]) -> str:
    real, best, kind = os.path.realpath(path), "", ""
    for point, its_kind in mounts:
        if os.path.commonpath([real, point]) == point and len(point) >= len(best):
            best, kind = point, its_kind
    return kind


def _mounts() -> Iterator[tuple[str, str]]:
    """Where which type of file system is mounted, as Linux shows it."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text()
    except OSError:
        return
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        yield left.split(" ")[4].encode().decode("unicode_escape"), right.split(" ")[0]


def mounts_told(told: str) -> Iterator[tuple[str, str]]:
    """The same by the words of `mount` of macOS and BSD: `/dev/disk1 on / (apfs, local, journaled)`."""
    for found in re.finditer(r"^.*? on (/.*) \(([^,()]+)[^()]*\)$", told, re.MULTILINE):
        yield found[1], found[2]


def _said_of_mounts() -> str:
    try:
        return subprocess.run(("/sbin/mount",), capture_output=True, text=True, check=False, errors="replace").stdout
    except OSError:
        return ""


MODES = ("disable", "require", "verify-ca", "verify-full")
OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
WRITABLE = ("target_session_attrs", ("read-write", "primary"))
"""Others write this for several hosts; a store is never read from a standby, so nothing else can be asked for."""


class StoreUrl(NamedTuple):
    """What a URL says."""

    hosts: tuple[tuple[str, int], ...]
    """Without a name it is the server that the driver finds on this host."""
    user: str
    password: str
    database: str
    options: Mapping[str, str]


def read_store_url(url: str, *, port: int, form: str) -> StoreUrl:
    """Take a URL apart. `form` tells people what it should look like."""
    try:
        parts = urlsplit(url)
        pairs = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise wrong(f"this is not a store URL; use {form}") from None
    who, _, where = parts.netloc.rpartition("@")
    user, _, password = who.partition(":")
    hosts = tuple(host_and_port(each, port) for each in where.split(",")) if where else (("", port),)
    database = unquote(parts.path.removeprefix("/"))
    if parts.fragment or None in hosts or not database or "/" in database:
        raise wrong(f"this is not a store URL; use {form}")
    return StoreUrl(
        tuple(it for it in hosts if it is not None), unquote(user), unquote(password), database, _options(pairs)
    )


def tls_of(url: StoreUrl) -> ssl.SSLContext | None:
    """How to talk to the servers; none: as plain text. That is the default on this host only: elsewhere it must be
    asked for, and without a CA to believe a server is not asked who it is."""
    given = url.options
    mode = given.get("sslmode") or _default_mode(url)
    if mode == "disable":
        if named := sorted(set(given) & {"sslrootcert", "sslcert", "sslkey"}):
            raise wrong(f"{', '.join(named)} does not go with sslmode=disable")
        return None
    if ("sslcert" in given) != ("sslkey" in given):
        raise wrong("sslcert and sslkey go together")
    try:
        context = ssl.create_default_context(cafile=given.get("sslrootcert"))
        if "sslcert" in given:
            context.load_cert_chain(given["sslcert"], given["sslkey"])
    except OSError as error:  # an SSLError is one, too
        raise wrong(f"its certificates cannot be used: {error}") from None
    context.check_hostname = mode == "verify-full"
    if mode == "require" and "sslrootcert" not in given:
        context.verify_mode = ssl.CERT_NONE
    return context


def wrong(reason: str) -> InvalidInput:
    """What is wrong with the URL."""
    return InvalidInput.of("store", reason)


def _default_mode(url: StoreUrl) -> str:
    if "sslrootcert" in url.options:
        return "verify-full"
    return "disable" if all(is_this_host(host) for host, _ in url.hosts) else "require"


def _options(pairs: list[tuple[str, str]]) -> dict[str, str]:
    options = dict(pairs)
    if "ssl" in options and "sslmode" not in options:
        options["sslmode"] = options.pop("ssl")
    name, allowed = WRITABLE
    if options.pop(name, allowed[0]) not in allowed:
        raise wrong(f"{name} can only be {' or '.join(allowed)}: nodes write")
    if unknown := sorted(set(options) - set(OPTIONS)):
        raise wrong(f"{', '.join(unknown)} cannot be set in this URL; allowed: {', '.join(OPTIONS)}")
    if not all(options.values()):
        raise wrong("each option has a value")
    if options.get("sslmode", MODES[0]) not in MODES:
        raise wrong(f"sslmode is one of {', '.join(MODES)}; nothing falls back to plain text by itself")
    return options
