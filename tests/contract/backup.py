"""Put a store back to what it was, under whoever uses it: as a restored backup or a promoted standby does."""

from __future__ import annotations

import copy
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from rota.backends.memory import MemoryStore
from rota.backends.sql import schema
from rota.backends.sql.store import SqlStore
from rota.ports import Store


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
            store.__dict__.update(copy.deepcopy(self._tables))
            return
        assert isinstance(store, SqlStore)

        def work(conn: Connection) -> None:
            for name, table in schema.metadata.tables.items():
                conn.execute(delete(table))
                if self._tables[name]:
                    conn.execute(insert(table), self._tables[name])

        await store._db.write(work)


def _memory(store: MemoryStore) -> dict[str, Any]:
    kept = {name: value for name, value in vars(store).items() if name != "_clock" and not _is_heard(value)}
    return copy.deepcopy(kept)


def _is_heard(value: object) -> bool:
    """Callbacks belong to whoever listens, not to what is kept."""
    return isinstance(value, list) and any(callable(it) for it in value)
