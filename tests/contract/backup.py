"""Put a store back to what it was, under whoever uses it: as a restored backup or a promoted standby does."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, delete, insert, select

from rota.model.tables import TABLES
from rota.ports import Store
from rota.storage.memory import MemoryStore
from rota.storage.sql import schema
from rota.storage.sql.store import SqlStore


class Backup:
    """All that a store knew at one instant."""

    def __init__(self, tables: dict[str, Any]) -> None:
        self._tables = tables

    @classmethod
    async def of(cls, store: Store) -> Backup:
        if isinstance(store, MemoryStore):
            return cls(_memory(store))
        assert isinstance(store, SqlStore)

        def work(conn: Connection) -> dict[str, Any]:
            tables = schema.metadata.tables.items()
            return {name: [dict(row._mapping) for row in conn.execute(select(table))] for name, table in tables}

        return cls(await store._db.read(work))

    async def restore(self, store: Store) -> None:
        if isinstance(store, MemoryStore):
            for table in TABLES:
                kept = store.tables.of(table)
                for key in list(kept.rows):
                    kept.put(key, None)
                for row in self._tables[table.name]:
                    store.tables.put(table, row)
            store.memory.forget()
            return
        assert isinstance(store, SqlStore)

        def work(conn: Connection) -> None:
            for name, table in schema.metadata.tables.items():
                conn.execute(delete(table))
                if self._tables[name]:
                    conn.execute(insert(table), self._tables[name])

        await store._db.write(work)


def _memory(store: MemoryStore) -> dict[str, Any]:
    """What callers know, and who listens, does not belong to what is kept."""
    return {table.name: list(store.tables.rows(table)) for table in TABLES}
