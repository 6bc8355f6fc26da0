"""An idle node costs its store and its host almost nothing: statements are counted by the server itself, processor time
and memory by the kernel.

It renews its lease (every 3 s) and its session (every 1.6 s), and looks for the rest seldom, for it would be told. On
a machine that does much else a node takes a while to come to rest, so the count is taken until it has.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.wiring import open_store
from tests.cluster.processes import NodeProcess
from tests.conftest import installed
from tests.factories import a_definition
from tests.servers.mariadb import MariadbDatabases
from tests.servers.postgres import PostgresServer
from tests.servers.sql import run

SHORT_S, LONG_S = 15.0, 60.0
WATCHES_MAX = 8
"""A node that has just come up asks more; on a busy machine that takes a while."""
STATEMENTS_PER_S_MAX = 2.0
CPU_MAX = 0.005
"""Of one core."""
JOBS = 50

Count = Callable[[], Awaitable[int]]
watched_s = pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SHORT_S, marks=[pytest.mark.prove, pytest.mark.timeout(300)]),
        pytest.param(LONG_S, marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],
)


@asynccontextmanager
async def an_idle_node(url: str, folder: Path, counted: Path | None = None) -> AsyncIterator[NodeProcess]:
    """A node with jobs that are due once a year."""
    store = open_store(url, SystemClock(), actor="operator")
    await store.migrate()
    await Control(store, SystemClock()).jobs.apply([a_definition() for _ in range(JOBS)])
    await store.close()
    program = ("tests.cluster.node",) if counted is None else ("tests.cluster.counting_node", "--count", str(counted))
    node = NodeProcess("idle", url, folder, program=program)
    node.start()
    try:
        yield node
        assert node.running
    finally:
        node.kill()


async def watch(store: str, node: NodeProcess, count: Count, seconds: float, own: int = 0) -> None:
    """Count, until the node has come to rest; `own` is what one call of `count` adds to it."""
    for _ in range(WATCHES_MAX):
        before, cpu_s = await count(), cpu_seconds(node.pid)
        await asyncio.sleep(seconds)
        statements, share = await count() - before - own, (cpu_seconds(node.pid) - cpu_s) / seconds
        memory = ", ".join(f"{name} {kib / 1024:.1f} MB" for name, kib in memory_of(node.pid).items())
        print(
            f"\nidle node on {store}: {statements} statements in {seconds:g} s ({statements / seconds:.2f}/s), "
            f"{share:.2%} of a core, {memory}"
        )
        if 0 < statements <= STATEMENTS_PER_S_MAX * seconds and share <= CPU_MAX:
            return
    raise AssertionError(f"never at rest: {statements} statements in {seconds:g} s, {share:.2%} of a core")


def cpu_seconds(pid: int) -> float:
    """What the agent itself has used, as the kernel counts it; not what it has started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> dict[str, int]:
    """In KiB: its share of what it has in memory, and what it has for itself alone."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    return {"PSS": int(found["Pss"]), "USS": int(found["Private_Clean"]) + int(found["Private_Dirty"])}


@watched_s
async def test_an_idle_node_asks_postgresql_seldom(tmp_path: Path, seconds: float) -> None:
    with installed(PostgresServer) as server:
        async with server.fresh_database() as url:
            await run(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET log_statement = 'all'")

            async def count() -> int:
                return len(re.findall(r"LOG:  (?:statement|execute)", server.log))

            async with an_idle_node(url, tmp_path) as node:
                await watch("PostgreSQL", node, count, seconds)


@watched_s
async def test_an_idle_node_asks_mariadb_seldom(
    mariadb_server: MariadbDatabases, tmp_path: Path, seconds: float
) -> None:
    async with mariadb_server.fresh_database() as url:

        async def count() -> int:
            ((_, questions),) = await run(url, "SHOW GLOBAL STATUS LIKE 'Questions'")
            return int(questions)

        async with an_idle_node(url, tmp_path) as node:
            first = await count()
            own = await count() - first
            await watch("MariaDB", node, count, seconds, own)


@watched_s
async def test_an_idle_node_asks_sqlite_seldom(tmp_path: Path, seconds: float) -> None:
    counted = tmp_path / "statements"
    counted.write_text("0")

    async def count() -> int:
        return int(counted.read_text() or 0)

    async with an_idle_node(f"sqlite:///{tmp_path}/rota.db", tmp_path, counted) as node:
        await watch("SQLite", node, count, seconds)
