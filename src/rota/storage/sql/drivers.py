"""Open a connection to one server, below any pool, and ask it about itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.storage.sql.dialect import MySQL
from rota.storage.sql.history import KNOWN, Rows, adopted, run_through_async
from rota.storage.sql.servers import Look

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
    """asyncpg. The history of a server is its system, its timeline, and the table: each base backup, promotion or
    recovery to a point in time begins a timeline, and a dump that is loaded makes new tables."""

    async def open(self, settings: Mapping[str, Any]) -> Any:
        import asyncpg

        return await asyncpg.connect(**settings)

    async def look(self, conn: Any) -> Look:
        in_recovery, is_read_only, table = await conn.fetchrow(_PG_STANDING)
        if in_recovery or is_read_only:
            return Look(False, why="it is a standby" if in_recovery else "it takes no writes")
        if table is None:
            return Look(True)
        history = await self._history(conn, table)

        async def run(statement: str) -> Rows:
            return [tuple(row) for row in await conn.fetch(statement)]

        known: dict[str, str] = dict(await run(KNOWN))
        if _is_settled(known, history):
            return Look(True, _generation(known))
        async with conn.transaction():
            return Look(True, await run_through_async(adopted(history, now=_PG_NOW), run))

    async def _history(self, conn: Any, table: int) -> str:
        """Nothing where the server does not tell, as some that are rented do not."""
        import asyncpg

        try:
            system, timeline = await conn.fetchrow(_PG_HISTORY)
        except asyncpg.PostgresError:
            return ""
        return f"{system}/{timeline}/{table}"

    def is_away(self, error: Exception) -> bool:
        code = str(getattr(error, "sqlstate", None) or "")
        import asyncpg

        return isinstance(error, OSError | asyncpg.InterfaceError) or code.startswith(_PG_AWAY)

    def is_open(self, conn: Any) -> bool:
        return not conn.is_closed()

    def end(self, conn: Any) -> None:
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
_MYSQL_AWAY = frozenset({1040, 1047, 1053, 1129, 1130, 2002, 2003, 2005, 2006, 2013, 2055})


class MySQLDriver:
    """asyncmy. The history of a Galera cluster is its state's id; of a single server, the server's own."""

    def __init__(self, dialect: MySQL) -> None:
        self._dialect = dialect

    async def open(self, settings: Mapping[str, Any]) -> Any:
        import asyncmy

        conn = await asyncmy.connect(**settings)
        async with conn.cursor() as cursor:  # else a renewal would wait for rows that it only looks at
            await cursor.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        return conn

    async def look(self, conn: Any) -> Look:
        async def run(statement: str) -> Rows:
            async with conn.cursor() as cursor:
                await cursor.execute(statement)
                return [tuple(row) for row in await cursor.fetchall()] if cursor.description else ()

        facts: dict[str, str] = dict(await run(_MYSQL_FACTS))
        if facts.get("read_only", "OFF") == "ON":
            return Look(False, why="it takes no writes")
        history = facts.get("server_uid") or facts.get("server_uuid") or ""
        if facts.get("wsrep_on") == "ON":
            galera: dict[str, str] = dict(await run(_GALERA_FACTS))
            if (galera.get("wsrep_ready"), galera.get("wsrep_cluster_status")) != ("ON", "Primary"):
                return Look(False, why="it is not in the primary component of its cluster")
            history = f"galera/{galera['wsrep_cluster_state_uuid']}"
            await run("SET SESSION wsrep_sync_wait = 7")  # nothing is read that lags behind what others committed
            self._dialect.certifies = True
        if not (await run(_MYSQL_TABLE))[0][0]:
            return Look(True)
        known: dict[str, str] = dict(await run(KNOWN))
        await conn.rollback()
        if _is_settled(known, history):
            return Look(True, _generation(known))
        generation = await run_through_async(adopted(history, now=_MYSQL_NOW), run)
        await conn.commit()
        return Look(True, generation)

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
