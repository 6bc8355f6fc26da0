"""A database without the product: one connection of its own driver, plain statements in the form that is fastest there.

For what a benchmark compares with, and for what it judges by. Names of tables and columns come from the schema, values
from the benchmark itself; nothing here was given from outside.

`raw_rate` is what the database itself can do: the rows of the same items inserted, claimed and finished. Nothing is
decided, ordered or counted, and each row is found by its key: this is the ceiling for everything that keeps the same
rows. Three transactions for each batch, as durable as the product's.
"""

from __future__ import annotations

import asyncio
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import URL, make_url

from rota.model.value import Value
from rota.ports import Clock

BATCH = 500
ITEM, QUEUE, ATTEMPT = "rota_item", "rota_queue", "rota_attempt"
COPIES = {name: f"bench_{name}" for name in (ITEM, QUEUE, ATTEMPT)}
CLAIMED = ("state", "attempt", "node_id", "round", "assigned_at")

Row = Mapping[str, Any]
Rows = Sequence[tuple[Any, ...]]
Progress = Callable[[str, int, int], None]


class Plain(ABC):
    """One connection. Statements are of many rows, and list the keys that they are about."""

    parallel = 4
    """How many of them may write at the same time."""
    quote, mark = '"', "?"
    """What is around the name of a column, and stands for a value."""
    analysis = "ANALYZE"

    @abstractmethod
    async def records(self, sql: str) -> list[dict[str, Any]]:
        """What a query brings, by the names of the columns."""

    @abstractmethod
    async def run(self, sql: str, *values: Any) -> None:
        """One statement without an answer."""

    @abstractmethod
    async def run_many(self, sql: str, rows: Rows) -> None:
        """The same statement with the values of each row."""

    @abstractmethod
    async def copy_table(self, name: str, copy: str) -> None:
        """An empty table like another one: columns, indexes, storage."""

    @abstractmethod
    async def close(self) -> None: ...

    async def rows(self, sql: str) -> Rows:
        return [tuple(it.values()) for it in await self.records(sql)]

    async def insert(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        marks = ", ".join(self.mark for _ in columns)
        await self.run_many(f"INSERT INTO {table} ({self._names(columns)}) VALUES ({marks})", rows)  # noqa: S608 - no input in it

    async def update(self, table: str, values: Mapping[str, Any], key: str, ids: Sequence[int]) -> None:
        new = ", ".join(f"{self._names([name])} = {self.mark}" for name in values)
        await self.run(f"UPDATE {table} SET {new} WHERE {key} IN ({_listed(ids)})", *values.values())  # noqa: S608 - no input in it

    async def delete(self, table: str, key: str, ids: Sequence[int]) -> None:
        await self.run(f"DELETE FROM {table} WHERE {key} IN ({_listed(ids)})")  # noqa: S608 - no input in it

    async def drop_table(self, name: str) -> None:
        await self.run(f"DROP TABLE IF EXISTS {name}")

    async def analyse(self, tables: Sequence[str]) -> None:
        """Let the database look at what the tables hold, as it does by itself on a server that is up for a while."""
        for name in tables:
            await self.run(f"{self.analysis} {name}")

    def _names(self, columns: Sequence[str]) -> str:
        return ", ".join(f"{self.quote}{name}{self.quote}" for name in columns)


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


class PlainPostgreSQL(Plain):
    """Arrays, one for each column, so that a statement is the same for any number of rows."""

    analysis = "VACUUM ANALYZE"

    def __init__(self, conn: Any) -> None:
        self._conn = conn
        self._types: dict[str, dict[str, str]] = {}

    @classmethod
    async def open(cls, url: URL) -> PlainPostgreSQL:
        import asyncpg

        ssl = url.query.get("ssl")
        plain = url.set(drivername="postgresql", query={}).render_as_string(hide_password=False)
        return cls(await asyncpg.connect(plain, **({} if ssl is None else {"ssl": ssl})))

    async def records(self, sql: str) -> list[dict[str, Any]]:
        return [dict(row) for row in await self._conn.fetch(sql)]

    async def run(self, sql: str, *values: Any) -> None:
        await self._conn.execute(sql, *values)

    async def run_many(self, sql: str, rows: Rows) -> None:
        await self.run(sql, *map(list, zip(*rows, strict=True)))

    async def insert(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        types = await self._types_of(table)
        arrays = ", ".join(f"${place}::{types[name]}[]" for place, name in enumerate(columns, 1))
        await self.run_many(f"INSERT INTO {table} ({self._names(columns)}) SELECT * FROM unnest({arrays})", rows)  # noqa: S608 - no input in it

    async def update(self, table: str, values: Mapping[str, Any], key: str, ids: Sequence[int]) -> None:
        new = ", ".join(f'"{name}" = ${place}' for place, name in enumerate(values, 2))
        sql = f"UPDATE {table} SET {new} WHERE {key} = ANY($1::bigint[])"  # noqa: S608 - no input in it
        await self.run(sql, list(ids), *values.values())

    async def delete(self, table: str, key: str, ids: Sequence[int]) -> None:
        await self.run(f"DELETE FROM {table} WHERE {key} = ANY($1::bigint[])", list(ids))  # noqa: S608 - no input in it

    async def copy_table(self, name: str, copy: str) -> None:
        await self.drop_table(copy)
        await self.run(f"CREATE TABLE {copy} (LIKE {name} INCLUDING ALL)")
        options = await self._conn.fetchval("SELECT reloptions FROM pg_class WHERE oid = $1::text::regclass", name)
        if options:
            await self.run(f"ALTER TABLE {copy} SET ({', '.join(options)})")

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


class PlainMySQL(Plain):
    quote, mark = "`", "%s"
    analysis = "ANALYZE TABLE"

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

    async def records(self, sql: str) -> list[dict[str, Any]]:
        async with self._conn.cursor() as cursor:
            await cursor.execute(sql)
            return _named(cursor.description, await cursor.fetchall())

    async def run(self, sql: str, *values: Any) -> None:
        async with self._conn.cursor() as cursor:
            await cursor.execute(sql, values or None)

    async def run_many(self, sql: str, rows: Rows) -> None:
        async with self._conn.cursor() as cursor:  # the driver makes one statement of them
            await cursor.executemany(sql, list(rows))

    async def copy_table(self, name: str, copy: str) -> None:
        await self.drop_table(copy)
        await self.run(f"CREATE TABLE {copy} LIKE {name}")

    async def drop_table(self, name: str) -> None:
        known = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name"
        if await self.rows(f"{known} = '{name}'"):  # IF EXISTS would warn
            await self.run(f"DROP TABLE {name}")

    async def close(self) -> None:
        self._conn.close()


class PlainSQLite(Plain):
    """One writer, in this thread: a file has only one anyway."""

    parallel = 1

    def __init__(self, url: URL) -> None:
        self._conn = sqlite3.connect(url.database or "", isolation_level=None, timeout=30)
        for setting in ("journal_mode = WAL", "synchronous = FULL", "wal_autocheckpoint = 4000"):
            self._conn.execute(f"PRAGMA {setting}")

    async def records(self, sql: str) -> list[dict[str, Any]]:
        cursor = self._conn.execute(sql)
        return _named(cursor.description, cursor.fetchall())

    async def run(self, sql: str, *values: Any) -> None:
        self._conn.execute(sql, values)

    async def run_many(self, sql: str, rows: Rows) -> None:
        self._conn.executemany(sql, rows)

    async def copy_table(self, name: str, copy: str) -> None:
        await self.drop_table(copy)
        kept = await self.rows(f"SELECT name, sql FROM sqlite_master WHERE tbl_name = '{name}' AND sql IS NOT NULL")  # noqa: S608 - no input in it
        for part, sql in sorted(kept, key=lambda row: row[0] != name):  # the table before its indexes
            await self.run(re.sub(rf"\b({re.escape(part)}|{name})\b", lambda found: f"{found[1]}_copy", sql))
        await self.run(f"ALTER TABLE {name}_copy RENAME TO {copy}")

    async def close(self) -> None:
        self._conn.close()


def _named(description: Any, rows: Rows) -> list[dict[str, Any]]:
    names = [column[0] for column in description]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids))


class Sample(Value, frozen=True, kw_only=True):
    """The rows that the product wrote for one item: when it was ready, and when it had ended."""

    item: dict[str, Any]
    queue: dict[str, Any]
    ended: dict[str, Any]
    attempt: dict[str, Any]


async def raw_rate(url: str, clock: Clock, sample: Sample, items: int, progress: Progress) -> float:
    done = 0

    def note(count: int) -> None:
        nonlocal done
        done += count
        progress("without rota", done, items)

    first = await connect(url)
    others = [await connect(url) for _ in range(first.parallel - 1)]
    try:
        for name, copy in COPIES.items():
            await first.copy_table(name, copy)
        batches = iter([range(start, min(start + BATCH, items + 1)) for start in range(1, items + 1, BATCH)])
        began_s = clock.monotonic()
        await asyncio.gather(*(_take(conn, sample, batches, note) for conn in [first, *others]))
        return round(items / (clock.monotonic() - began_s), 1)
    finally:
        for copy in COPIES.values():
            await first.drop_table(copy)
        for conn in [first, *others]:
            await conn.close()


async def _take(conn: Plain, sample: Sample, batches: Any, progress: Callable[[int], None]) -> None:
    for ids in batches:
        await conn.run("BEGIN")
        await _insert(conn, ITEM, [_of_item(sample.item, id_) for id_ in ids])
        await _insert(conn, QUEUE, [{**sample.queue, "item_id": id_} for id_ in ids])
        await conn.run("COMMIT")
        await _claim(conn, sample, ids)
        await _finish(conn, sample, ids)
        progress(len(ids))


async def _claim(conn: Plain, sample: Sample, ids: Sequence[int]) -> None:
    claimed = {name: sample.attempt.get(name) for name in CLAIMED} | {"state": "assigned", "node_id": 1}
    await conn.update(COPIES[QUEUE], claimed, "item_id", ids)


async def _finish(conn: Plain, sample: Sample, ids: Sequence[int]) -> None:
    changed = {name: value for name, value in sample.ended.items() if sample.item[name] != value}
    await conn.run("BEGIN")
    await conn.delete(COPIES[QUEUE], "item_id", ids)
    await conn.update(COPIES[ITEM], changed, "id", ids)
    await _insert(conn, ATTEMPT, [{**sample.attempt, "item_id": id_} for id_ in ids])
    await conn.run("COMMIT")


async def _insert(conn: Plain, table: str, rows: Sequence[Row]) -> None:
    await conn.insert(COPIES[table], list(rows[0]), [tuple(row.values()) for row in rows])


def _of_item(sample: Row, id_: int) -> Row:
    """The same item under another id, in the same place of another run of as many."""
    number = f"{id_:0{len(sample['number'])}}"
    return {**sample, "id": id_, "run_id": id_ // BATCH, "index": id_ % BATCH, "number": number}
