"""The stores under the contract: memory, SQLite, PostgreSQL and MariaDB, each empty and migrated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Connection, update

from rota.backends.memory import MemoryStore
from rota.backends.sql import schema
from rota.backends.sql.store import SqlStore
from rota.clock import SystemClock
from rota.model.states import ItemState
from rota.ports import Store
from rota.wiring import open_store

BACKENDS = ("memory", "sqlite", "postgresql", "mariadb")
SERVERS = ("postgresql", "mariadb")

Open = Callable[[], Awaitable[Store]]


async def url_of(backend: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if backend == "memory":
        return "memory:"
    if backend == "sqlite":
        return f"sqlite:///{tmp_path}/rota.db"
    server = request.getfixturevalue("postgres_server" if backend == "postgresql" else "mariadb_server")
    return server.url(await server.create_database())


@pytest.fixture(params=BACKENDS)
async def another(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    """Opens the same store once more, as another process would."""
    url = await url_of(request.param, request, tmp_path)
    async with AsyncExitStack() as stack:
        memory = MemoryStore(SystemClock(), actor="test")

        async def open_() -> Store:
            store = memory if url == "memory:" else open_store(url, SystemClock(), actor="test")
            stack.push_async_callback(store.close)
            return store

        first = await open_()
        await first.migrate()
        yield open_


@pytest.fixture
async def store(another: Open) -> Store:
    return await another()


async def give_to_a_node(store: Store, run_id: int) -> None:
    """Pretend that a node was given the items of a run, as dispatch will do."""
    if isinstance(store, MemoryStore):
        for item in await store.items(run_id):
            store._items[item.id] = msgspec.structs.replace(item, state=ItemState.RUNNING)
        return
    assert isinstance(store, SqlStore)

    def work(conn: Connection) -> None:
        conn.execute(update(schema.item).where(schema.item.c.run_id == run_id).values(state="running"))

    await store._db.write(work)
