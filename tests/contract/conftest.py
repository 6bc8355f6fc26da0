"""The stores under the contract: memory, SQLite, PostgreSQL and MariaDB, each empty and migrated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from sqlalchemy import Connection, delete, update

from rota.clock import SystemClock
from rota.core.fire import Fire
from rota.ports import Store
from rota.storage.memory import MemoryStore
from rota.storage.sql import database, schema
from rota.storage.sql.store import SqlStore
from rota.transactions.fire import fire
from rota.transactions.members import UNSETTLED
from rota.wiring import open_store
from tests.servers.proxy import FaultProxy

BACKENDS = ("memory", "sqlite", "postgresql", "mariadb")
SERVERS = ("postgresql", "mariadb")

PATIENT_S = 30.0
"""How long to wait for what a busy machine does late, where no time is promised."""

Open = Callable[[], Awaitable[Store]]
Migrated = Callable[[str, pytest.FixtureRequest], Awaitable[str]]


@pytest.fixture(autouse=True)
def patient_renewals() -> Iterator[None]:
    """A renewal is given up soon, and to connect counts: on a busy machine too soon, where no line is cut. A module
    that is about lines that are cut has an empty fixture of this name."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "BEAT_S", PATIENT_S)
        yield


@pytest.fixture(scope="session")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Migrated:
    """The URL of one migrated store of each kind for the whole run; each test finds it empty."""
    urls: dict[str, str] = {}

    async def url_of(backend: str, request: pytest.FixtureRequest) -> str:
        if backend not in urls:
            urls[backend] = await make(backend, request)
        return urls[backend]

    async def make(backend: str, request: pytest.FixtureRequest) -> str:
        if backend == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('contract')}/rota.db"
        else:
            server = request.getfixturevalue("postgres_server" if backend == "postgresql" else "mariadb_server")
            url = server.url(await server.create_database())
        store = open_store(url, SystemClock(), actor="test")
        await store.migrate()
        await store.close()
        return url

    return url_of


@pytest.fixture(params=BACKENDS)
async def another(request: pytest.FixtureRequest, migrated: Migrated) -> AsyncIterator[Open]:
    """Opens the same store once more, as another process would."""
    async with AsyncExitStack() as stack:
        if request.param == "memory":
            memory = MemoryStore(SystemClock(), actor="test")

            async def open_() -> Store:
                return memory
        else:
            url = await migrated(request.param, request)

            async def open_() -> Store:
                store = open_store(url, SystemClock(), actor="test")
                stack.push_async_callback(store.close)
                return store

            await empty(await open_())
        yield open_


async def empty(store: Store) -> None:
    """Forget everything but the schema."""
    assert isinstance(store, SqlStore)

    def work(conn: Connection) -> None:
        for table in schema.metadata.tables.values():
            if table is schema.counter:
                conn.execute(update(table).values(next=1))
            elif table is schema.dispatch:
                conn.execute(update(table).values(holder=None, epoch=0, round=0, changes=0, next_at=None))
            elif table is schema.meta:
                conn.execute(update(table).where(table.c.name == "generation").values(value="1"))
                conn.execute(delete(table).where(table.c.name.startswith(UNSETTLED)))
            else:
                conn.execute(delete(table))

    await store._db.write(work)


@pytest.fixture
async def store(another: Open) -> Store:
    return await another()


class Line(NamedTuple):
    """The same store twice: through the proxy, and directly."""

    proxy: FaultProxy
    store: Store
    truth: Store


@pytest.fixture(params=SERVERS)
async def line(request: pytest.FixtureRequest, migrated: Migrated) -> AsyncIterator[Line]:
    url = await migrated(request.param, request)
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    truth = open_store(url, SystemClock(), actor="test")
    await empty(truth)
    async with FaultProxy(parts.hostname, parts.port) as proxy:
        store = open_store(url.replace(f":{parts.port}/", f":{proxy.port}/"), SystemClock(), actor="test")
        await store.transact(fire, [0], Fire())  # connects: a driver may commit while it does
        yield Line(proxy, store, truth)
        await store.close()
    await truth.close()
