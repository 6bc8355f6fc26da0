"""Find the server to write to, among those that a URL names.

Each connection is looked at before it is used: does the server take writes, and is its history the newest that this
process has seen? One that lags behind, is not promoted yet, or was left behind by a promotion is passed over. A server
that others have promoted, or filled from a backup, is told so once (`history`), before anything else is asked of it.

    first connection         look at all servers, take the newest history
    later ones               begin with the server that served last; one that did not answer is asked last
    a newer history          connections to all other servers end
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from rota.logger import log
from rota.storage.sql.dialect import MySQL
from rota.storage.sql.history import KNOWN, Rows, adopted, run_through_async

HOST_S = 2.0
"""How long one server may take to let us in: with several, a dead one must not use up the time of the others."""
ALONE_S = 5.0


class NotServed(ConnectionError):
    """No server of the URL takes writes now."""


class ServerLook(NamedTuple):
    """What a server says of itself. A store that has no tables yet has no generation."""

    takes_writes: bool
    generation: int | None = None
    why: str = ""


_PG_STANDING = """
    SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on', to_regclass('rota_meta')::oid
"""
_PG_HISTORY = """
    SELECT system_identifier, left(pg_walfile_name(pg_current_wal_insert_lsn()), 8) FROM pg_control_system()
"""
_PG_NOW = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
_PG_AWAY = ("08", "53", "57", "58")
"""Classes of codes: connection, resources, an operator's doing, the system."""


class PostgreSQLDriver:
    """asyncpg, below any pool. The history of a server is its system, its timeline, and the table: each base backup,
    promotion or recovery to a point in time begins a timeline, and a dump that is loaded makes new tables."""

    async def open(self, settings: Mapping[str, Any]) -> Any:
        import asyncpg

        return await asyncpg.connect(**settings)

    async def look(self, conn: Any) -> ServerLook:
        in_recovery, is_read_only, table = await conn.fetchrow(_PG_STANDING)
        if in_recovery or is_read_only:
            return ServerLook(False, why="it is a standby" if in_recovery else "it takes no writes")
        if table is None:
            return ServerLook(True)
        history = await self._history(conn, table)

        async def run(statement: str) -> Rows:
            return [tuple(row) for row in await conn.fetch(statement)]

        known: dict[str, str] = dict(await run(KNOWN))
        if _is_settled(known, history):
            return ServerLook(True, _generation(known))
        async with conn.transaction():
            return ServerLook(True, await run_through_async(adopted(history, now=_PG_NOW), run))

    async def _history(self, conn: Any, table: int) -> str:
        """Nothing where the server does not tell, as some that are rented do not."""
        import asyncpg

        try:
            system, timeline = await conn.fetchrow(_PG_HISTORY)
        except asyncpg.PostgresError:
            return ""
        return f"{system}/{timeline}/{table}"

    def is_away(self, error: Exception) -> bool:
        """Whether a server cannot be reached, or lets nobody in now; a wrong password is none of this."""
        code = str(getattr(error, "sqlstate", None) or "")
        import asyncpg

        return isinstance(error, OSError | asyncpg.InterfaceError) or code.startswith(_PG_AWAY)

    def is_open(self, conn: Any) -> bool:
        return not conn.is_closed()

    def end(self, conn: Any) -> None:
        """Close a connection without a word."""
        conn.terminate()


_MYSQL_FACTS = """
    SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'wsrep_on', 'server_uid', 'server_uuid')
"""
_GALERA_FACTS = """
    SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status', 'wsrep_cluster_state_uuid')
"""
_MYSQL_TABLE = """
    SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'rota_meta'
"""
_MYSQL_NOW = "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS UNSIGNED)"
_MYSQL_SETTINGS = (
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",  # else a renewal would wait for rows it only looks at
    "SET SESSION eq_range_index_dive_limit = 0",  # else it guesses for more than 200 keys, and then reads whole tables
)
_MYSQL_AWAY = frozenset({1040, 1047, 1053, 1129, 1130, 2002, 2003, 2005, 2006, 2013, 2055})


class MySQLDriver:
    """asyncmy, as above. The history of a Galera cluster is its state's id; of a single server, the server's own."""

    def __init__(self, dialect: MySQL) -> None:
        self._dialect = dialect

    async def open(self, settings: Mapping[str, Any]) -> Any:
        import asyncmy

        conn = await asyncmy.connect(**settings)
        async with conn.cursor() as cursor:
            for setting in _MYSQL_SETTINGS:
                await cursor.execute(setting)
        return conn

    async def look(self, conn: Any) -> ServerLook:
        async def run(statement: str) -> Rows:
            async with conn.cursor() as cursor:
                await cursor.execute(statement)
                return [tuple(row) for row in await cursor.fetchall()] if cursor.description else ()

        facts: dict[str, str] = dict(await run(_MYSQL_FACTS))
        if facts.get("read_only", "OFF") == "ON":
            return ServerLook(False, why="it takes no writes")
        history = facts.get("server_uid") or facts.get("server_uuid") or ""
        if facts.get("wsrep_on") == "ON":
            galera: dict[str, str] = dict(await run(_GALERA_FACTS))
            if (galera.get("wsrep_ready"), galera.get("wsrep_cluster_status")) != ("ON", "Primary"):
                return ServerLook(False, why="it is not in the primary component of its cluster")
            history = f"galera/{galera['wsrep_cluster_state_uuid']}"
            await run("SET SESSION wsrep_sync_wait = 7")  # nothing is read that lags behind what others committed
            self._dialect.certifies = True
        if not (await run(_MYSQL_TABLE))[0][0]:
            return ServerLook(True)
        known: dict[str, str] = dict(await run(KNOWN))
        await conn.rollback()
        if _is_settled(known, history):
            return ServerLook(True, _generation(known))
        generation = await run_through_async(adopted(history, now=_MYSQL_NOW), run)
        await conn.commit()
        return ServerLook(True, generation)

    def is_away(self, error: Exception) -> bool:
        import asyncmy

        is_known = isinstance(error, asyncmy.errors.OperationalError) and error.args[0] in _MYSQL_AWAY
        return is_known or isinstance(error, OSError | asyncmy.errors.InterfaceError)

    def is_open(self, conn: Any) -> bool:
        return bool(conn.connected)

    def end(self, conn: Any) -> None:
        conn.close()


def _is_settled(known: Mapping[str, str], history: str) -> bool:
    """Whether there is nothing to note. A store whose tables are being made knows no generation yet."""
    return not history or "generation" not in known or known.get("history") == history


def _generation(known: Mapping[str, str]) -> int | None:
    return int(known["generation"]) if "generation" in known else None


class Servers:
    def __init__(self, driver: PostgreSQLDriver | MySQLDriver, hosts: Sequence[tuple[str, int]]) -> None:
        self._driver = driver
        self._hosts = list(hosts)
        self._serving = self._hosts[0]
        self._open: list[tuple[tuple[str, int], Any]] = []
        self.generation: int | None = None
        """The newest that was seen."""
        self.on_generation: Callable[[int], None] = lambda _: None

    async def connect(self, **settings: Any) -> Any:
        """A connection to a server that takes writes; for a pool, which gives the settings."""
        problems: list[str] = []
        refusal: Exception | None = None
        for host in list(self._hosts):
            try:
                conn, look = await self._asked(host, settings)
            except Exception as error:  # noqa: BLE001 - raised below if no other server serves
                if not self._driver.is_away(error):
                    refusal = refusal or error
                problems.append(f"{_name(host)}: {str(error) or 'it did not answer in time'}")
                continue
            try:
                reason = await self._unfit(host, look, settings)
            except BaseException:
                self._driver.end(conn)
                raise
            if reason:
                problems.append(f"{_name(host)}: {reason}")
                self._driver.end(conn)
                continue
            self._heed(host, conn, look)
            return conn
        raise refusal or NotServed("; ".join(problems))

    async def _asked(self, host: tuple[str, int], settings: Mapping[str, Any]) -> tuple[Any, ServerLook]:
        """Look at a server. Whoever connects may have less time than one silent server takes (a renewal has), and is
        cancelled before it comes to the next one: so the next attempt must begin elsewhere."""
        try:
            return await self._looked(host, settings)
        except BaseException:
            self._hosts.remove(host)
            self._hosts.append(host)
            raise

    async def _looked(self, host: tuple[str, int], settings: Mapping[str, Any]) -> tuple[Any, ServerLook]:
        async with asyncio.timeout(ALONE_S if len(self._hosts) == 1 else HOST_S):
            conn = await self._driver.open({**settings, "host": host[0] or None, "port": host[1]})
            try:
                return conn, await self._driver.look(conn)
            except BaseException:
                self._driver.end(conn)
                raise

    async def _unfit(self, host: tuple[str, int], look: ServerLook, settings: Mapping[str, Any]) -> str:
        if not look.takes_writes:
            return look.why
        if look.generation is None:
            return ""
        newest = self.generation
        if newest is None and len(self._hosts) > 1:
            newest = await self._newest(host, settings)
        if newest is not None and look.generation < newest:
            return f"its history is of generation {look.generation}, and {newest} was seen; it was left behind"
        return ""

    async def _newest(self, but: tuple[str, int], settings: Mapping[str, Any]) -> int | None:
        """The newest generation on the other servers: one that came back after a promotion may still take writes."""
        found = []
        for host in [it for it in self._hosts if it != but]:
            with suppress(Exception):  # one that is away, or does not let us in, cannot be asked
                conn, look = await self._looked(host, settings)
                self._driver.end(conn)
                if look.takes_writes and look.generation is not None:
                    found.append(look.generation)
        return max(found, default=None)

    def _heed(self, host: tuple[str, int], conn: Any, look: ServerLook) -> None:
        if self._serving != host:
            log.warning("store.server_changed", server=_name(host), was=_name(self._serving))
            self._serving = host
        self._hosts.remove(host)
        self._hosts.insert(0, host)
        if look.generation is not None and look.generation != self.generation:
            if self.generation is not None:
                self._end_others(host)
            self.generation = look.generation
            self.on_generation(look.generation)
        self._open = [(where, it) for where, it in self._open if self._driver.is_open(it)] + [(host, conn)]

    def _end_others(self, but: tuple[str, int]) -> None:
        """Who still listens to a server that was left behind must not go on there."""
        for where, conn in self._open:
            if where != but:
                self._driver.end(conn)


def _name(host: tuple[str, int]) -> str:
    return f"{host[0]}:{host[1]}"
