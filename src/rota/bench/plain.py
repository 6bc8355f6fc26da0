"""A database without the product: one connection of its own driver, plain statements in the form that is fastest there.

For what a benchmark compares with, and for what it judges by. Names of tables and columns come from the schema, values
from the benchmark itself; nothing here was given from outside.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import URL, make_url

Rows = Sequence[tuple[Any, ...]]


class Plain(Protocol):
    """One connection."""

    parallel: int
    """How many of them may write at the same time."""

    async def rows(self, sql: str) -> Rows:
        """What a query brings."""
        ...

    async def records(self, sql: str) -> list[dict[str, Any]]:
        """What a query brings, by the names of the columns."""
        ...

    async def run(self, sql: str) -> None:
        """One statement without an answer."""
        ...

    async def insert(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        """Many rows."""
        ...

    async def update(self, table: str, values: Mapping[str, Any], key: str, ids: Sequence[int]) -> None:
        """Set the same values in many rows."""
        ...

    async def delete(self, table: str, key: str, ids: Sequence[int]) -> None:
        """Remove many rows."""
        ...

    async def copy_table(self, name: str, copy: str) -> None:
        """An empty table like another one: columns, indexes, storage."""
        ...

    async def drop_table(self, name: str) -> None:
        """Remove a table, if it is there."""
        ...

    async def analyse(self, tables: Sequence[str]) -> None:
        """Let the database look at what the tables hold, as it does by itself on a server that is up for a while."""
        ...

    async def close(self) -> None: ...


async def connect(url: str) -> Plain:
    """A connection to the database that a store URL names."""
    parsed = make_url(url)
    match parsed.get_backend_name():
        case "sqlite":
            return PlainSQLite(parsed)
        case "postgresql":
            return await PlainPostgreSQL.open(parsed)
        case _:
            return await PlainMySQL.open(parsed)


class PlainPostgreSQL:
    """Arrays, one for each column, so that a statement is the same for any number of rows."""

    parallel = 4

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._types: dict[str, dict[str, str]] = {}

    @classmethod
    async def open(cls, url: URL) -> PlainPostgreSQL:
        import asyncpg

        ssl = url.query.get("ssl")
        plain = url.set(drivername="postgresql", query={}).render_as_string(hide_password=False)
        return cls(await asyncpg.connect(plain, **({} if ssl is None else {"ssl": ssl})))

    async def rows(self, sql: str) -> Rows:
        return [tuple(row) for row in await self._conn.fetch(sql)]

    async def records(self, sql: str) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._conn.fetch(sql)]

    async def run(self, sql: str) -> None:
        await self._conn.execute(sql)

    async def insert(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        types = await self._types_of(table)
        arrays = ", ".join(f"${place}::{types[name]}[]" for place, name in enumerate(columns, 1))
        names = ", ".join(f'"{name}"' for name in columns)
        sql = f"INSERT INTO {table} ({names}) SELECT * FROM unnest({arrays})"  # noqa: S608 - no input in it
        await self._conn.execute(sql, *map(list, zip(*rows, strict=True)))

    async def update(self, table: str, values: Mapping[str, Any], key: str, ids: Sequence[int]) -> None:
        new = ", ".join(f'"{name}" = ${place}' for place, name in enumerate(values, 2))
        sql = f"UPDATE {table} SET {new} WHERE {key} = ANY($1::bigint[])"  # noqa: S608 - no input in it
        await self._conn.execute(sql, list(ids), *values.values())

    async def delete(self, table: str, key: str, ids: Sequence[int]) -> None:
        await self._conn.execute(f"DELETE FROM {table} WHERE {key} = ANY($1::bigint[])", list(ids))  # noqa: S608 - no input in it

    async def copy_table(self, name: str, copy: str) -> None:
        await self.drop_table(copy)
        await self.run(f"CREATE TABLE {copy} (LIKE {name} INCLUDING ALL)")
        options = await self._conn.fetchval("SELECT reloptions FROM pg_class WHERE oid = $1::text::regclass", name)
        if options:
            await self.run(f"ALTER TABLE {copy} SET ({', '.join(options)})")

    async def drop_table(self, name: str) -> None:
        await self.run(f"DROP TABLE IF EXISTS {name}")

    async def analyse(self, tables: Sequence[str]) -> None:
        for name in tables:
            await self.run(f"VACUUM ANALYZE {name}")

    async def close(self) -> None:
        await self._conn.close()

    async def _types_of(self, table: str) -> dict[str, str]:
        if table not in self._types:
            sql = (
                "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute "
                "WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped"
            )
            self._types[table] = {name: kind for name, kind in await self._conn.fetch(sql, table)}  # noqa: C416 - records
        return self._types[table]


class PlainMySQL:
    """Statements of many rows."""

    parallel = 4

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    @classmethod
    async def open(cls, url: URL) -> PlainMySQL:
        import asyncmy

        return cls(
            await asyncmy.connect(
                host=url.host or "localhost",
                port=url.port or 3306,
                user=url.username,
                password=url.password or "",
                database=url.database,
                charset="utf8mb4",
                autocommit=True,
                init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            )
        )

    async def rows(self, sql: str) -> Rows:
        async with self._conn.cursor() as cursor:
            await cursor.execute(sql)
            return list(await cursor.fetchall())

    async def records(self, sql: str) -> list[dict[str, Any]]:
        async with self._conn.cursor() as cursor:
            await cursor.execute(sql)
            return _named(cursor.description, await cursor.fetchall())

    async def run(self, sql: str) -> None:
        await self._execute(sql)

    async def insert(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        names, marks = ", ".join(f"`{name}`" for name in columns), ", ".join("%s" for _ in columns)
        async with self._conn.cursor() as cursor:  # the driver makes one statement of them
            await cursor.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(rows))  # noqa: S608 - no input in it

    async def update(self, table: str, values: Mapping[str, Any], key: str, ids: Sequence[int]) -> None:
        new = ", ".join(f"`{name}` = %s" for name in values)
        await self._execute(f"UPDATE {table} SET {new} WHERE {key} IN ({_listed(ids)})", tuple(values.values()))  # noqa: S608 - no input in it

    async def delete(self, table: str, key: str, ids: Sequence[int]) -> None:
        await self._execute(f"DELETE FROM {table} WHERE {key} IN ({_listed(ids)})")  # noqa: S608 - no input in it

    async def copy_table(self, name: str, copy: str) -> None:
        await self.drop_table(copy)
        await self.run(f"CREATE TABLE {copy} LIKE {name}")

    async def drop_table(self, name: str) -> None:
        known = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name"
        if await self.rows(f"{known} = '{name}'"):  # IF EXISTS would warn
            await self.run(f"DROP TABLE {name}")

    async def analyse(self, tables: Sequence[str]) -> None:
        await self.rows(f"ANALYZE TABLE {', '.join(tables)}")

    async def close(self) -> None:
        self._conn.close()

    async def _execute(self, sql: str, values: tuple[Any, ...] | None = None) -> None:
        async with self._conn.cursor() as cursor:
            await cursor.execute(sql, values)


class PlainSQLite:
    """One writer, in this thread: a file has only one anyway."""

    parallel = 1

    def __init__(self, url: URL) -> None:
        self._conn = sqlite3.connect(url.database or "", isolation_level=None, timeout=30)
        for setting in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
            self._conn.execute(f"PRAGMA {setting}")

    async def rows(self, sql: str) -> Rows:
        return self._conn.execute(sql).fetchall()

    async def records(self, sql: str) -> list[dict[str, Any]]:
        cursor = self._conn.execute(sql)
        return _named(cursor.description, cursor.fetchall())

    async def run(self, sql: str) -> None:
        self._conn.execute(sql)

    async def insert(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        names, marks = ", ".join(f'"{name}"' for name in columns), ", ".join("?" for _ in columns)
        self._conn.executemany(f"INSERT INTO {table} ({names}) VALUES ({marks})", rows)  # noqa: S608 - no input in it

    async def update(self, table: str, values: Mapping[str, Any], key: str, ids: Sequence[int]) -> None:
        new = ", ".join(f'"{name}" = ?' for name in values)
        self._conn.execute(f"UPDATE {table} SET {new} WHERE {key} IN ({_listed(ids)})", tuple(values.values()))  # noqa: S608 - no input in it

    async def delete(self, table: str, key: str, ids: Sequence[int]) -> None:
        self._conn.execute(f"DELETE FROM {table} WHERE {key} IN ({_listed(ids)})")  # noqa: S608 - no input in it

    async def copy_table(self, name: str, copy: str) -> None:
        await self.drop_table(copy)
        kept = await self.rows(f"SELECT name, sql FROM sqlite_master WHERE tbl_name = '{name}' AND sql IS NOT NULL")  # noqa: S608 - no input in it
        for part, sql in sorted(kept, key=lambda row: row[0] != name):  # the table before its indexes
            await self.run(re.sub(rf"\b({re.escape(part)}|{name})\b", lambda found: f"{found[1]}_copy", sql))
        await self.run(f"ALTER TABLE {name}_copy RENAME TO {copy}")

    async def drop_table(self, name: str) -> None:
        await self.run(f"DROP TABLE IF EXISTS {name}")

    async def analyse(self, tables: Sequence[str]) -> None:
        for name in tables:
            await self.run(f"ANALYZE {name}")

    async def close(self) -> None:
        self._conn.close()


def _named(description: Any, rows: Rows) -> list[dict[str, Any]]:
    names = [column[0] for column in description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))
