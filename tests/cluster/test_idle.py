"""An idle node costs its store almost nothing: a few short queries a second, counted by the server itself.

It looks for due jobs, for work, for its own lease and for nodes that are gone. The bound has room for what drivers add.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sqlalchemy import event

from rota.clock import SystemClock
from rota.config import SchedulerConfig
from rota.control import Control
from rota.loops.scheduler import Scheduler
from rota.storage.sql.database import FileDatabase
from rota.storage.sql.store import SqlStore
from rota.wiring import open_store
from tests.cluster.processes import NodeProcess
from tests.conftest import installed
from tests.factories import a_definition
from tests.servers.mariadb import MariadbDatabases
from tests.servers.postgres import PostgresServer
from tests.servers.sql import run

WATCH_S = 5.0
WATCHES_MAX = 8
"""A node that has just come up asks more; on a busy machine that takes a while."""
QUERIES_PER_S_MAX = 25.0
JOBS = 50

Count = Callable[[], Awaitable[int]]


@asynccontextmanager
async def an_idle_node(url: str, folder: Path) -> AsyncIterator[None]:
    """A node with jobs that are due once a year."""
    store = open_store(url, SystemClock(), actor="operator")
    await store.migrate()
    await Control(store, SystemClock()).jobs.apply([a_definition() for _ in range(JOBS)])
    await store.close()
    node = NodeProcess("idle", url, folder)
    node.start()
    try:
        yield
        assert node.running
    finally:
        node.kill()


async def watch(store: str, count: Count, own: int = 0, most_per_s: float = QUERIES_PER_S_MAX) -> None:
    """Let the server count, until the node has come to rest; `own` is what one call of `count` adds to it."""
    for _ in range(WATCHES_MAX):
        before = await count()
        await asyncio.sleep(WATCH_S)
        queries = await count() - before - own
        print(f"\nidle node on {store}: {queries} queries in {WATCH_S:g} s ({queries / WATCH_S:.2f}/s)")
        if 0 < queries <= most_per_s * WATCH_S:
            return
    raise AssertionError(
        f"never at rest: {queries} queries in {WATCH_S:g} s, at most {most_per_s * WATCH_S:g} expected"
    )


async def test_an_idle_node_asks_postgresql_seldom(tmp_path: Path) -> None:
    with installed(PostgresServer) as server:
        async with server.fresh_database() as url:
            await run(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET log_statement = 'all'")

            async def count() -> int:
                return len(re.findall(r"LOG:  (?:statement|execute)", server.log))

            async with an_idle_node(url, tmp_path):
                await watch("PostgreSQL", count)


async def test_an_idle_node_asks_mariadb_seldom(mariadb_server: MariadbDatabases, tmp_path: Path) -> None:
    async with mariadb_server.fresh_database() as url:

        async def count() -> int:
            ((_, questions),) = await run(url, "SHOW GLOBAL STATUS LIKE 'Questions'")
            return int(questions)

        async with an_idle_node(url, tmp_path):
            first = await count()
            own = await count() - first
            await watch("MariaDB", count, own)


async def test_an_idle_scheduler_asks_sqlite_at_most_twice_a_second(tmp_path: Path) -> None:
    clock = SystemClock()
    store = open_store(f"sqlite:///{tmp_path}/rota.db", clock, actor="test")
    assert isinstance(store, SqlStore)
    assert isinstance(store._db, FileDatabase)
    await store.migrate()
    await Control(store, clock).jobs.apply([a_definition() for _ in range(JOBS)])
    statements: list[str] = []
    event.listen(store._db._engine, "before_cursor_execute", lambda *it: statements.append(it[2]))
    scheduler = Scheduler(store, clock, SchedulerConfig())
    running = asyncio.create_task(scheduler.run())

    async def count() -> int:
        return len(statements)

    await watch("SQLite", count, most_per_s=2.0)
    scheduler.stop()
    await running
    await store.close()
