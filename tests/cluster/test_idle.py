"""Idle nodes cost their store and their host almost nothing, one alone and three together: statements are counted by
the server itself, processor time and memory by the kernel.

A node renews its lease (every 3 s) and its session (every 1.6 s), and looks for the rest seldom, for it would be told.
On a machine that does much else a node takes a while to come to rest, so the count is taken until it has.
"""

import asyncio
import os
import re
import time
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
"""Of one core of a machine that needs `LOOP_S` for a plain loop; one that is slower needs as much more for the same."""
LOOP_S, LOOP_STEPS = 0.0135, 1_000_000
JOBS = 50

SENT = "statements"

Count = Callable[[], Awaitable[int]]
alone_or_not = pytest.mark.parametrize("nodes", [1, 3])
alone = pytest.mark.parametrize("nodes", [1, pytest.param(3, marks=pytest.mark.nightly)])
watched_s = pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(SHORT_S, marks=[pytest.mark.prove, pytest.mark.timeout(300)]),
        pytest.param(LONG_S, marks=[pytest.mark.nightly, pytest.mark.timeout(900)]),
    ],
)


@asynccontextmanager
async def idle_nodes(url: str, folder: Path, count: int, *, counted: bool = False) -> AsyncIterator[list[NodeProcess]]:
    """Nodes with jobs that are due once a year. `counted`: each writes down how many statements it has sent."""
    store = open_store(url, SystemClock(), actor="operator")
    await store.migrate()
    await Control(store, SystemClock()).jobs.apply([a_definition() for _ in range(JOBS)])
    await store.close()
    nodes = []
    for number in range(count):
        own = folder / f"node-{number}"
        own.mkdir()
        program = ("tests.cluster.counting_node", "--count", str(own / SENT)) if counted else ("tests.cluster.node",)
        (own / SENT).write_text("0")
        nodes.append(NodeProcess(f"idle-{number}", url, own, program=program))
    try:
        for node in nodes:
            node.start()
        yield nodes
        assert all(node.running for node in nodes)
    finally:
        for node in nodes:
            node.kill()


async def watch(store: str, nodes: list[NodeProcess], count: Count, seconds: float, own: int = 0) -> None:
    """Count, until the nodes have come to rest; `own` is what one call of `count` adds to it."""
    for _ in range(WATCHES_MAX):
        before, cpu_s = await count(), [cpu_seconds(node.pid) for node in nodes]
        await asyncio.sleep(seconds)
        per_s = (await count() - before - own) / seconds / len(nodes)
        shares = [(cpu_seconds(node.pid) - it) / seconds for node, it in zip(nodes, cpu_s, strict=True)]
        memory = ", ".join(f"{name} {kib / 1024:.1f} MB" for name, kib in memory_of(nodes[0].pid).items())
        print(
            f"\n{len(nodes)} idle nodes on {store}: {per_s:.2f} statements a second from each in {seconds:g} s, "
            f"{', '.join(f'{share:.2%}' for share in shares)} of a core, {memory}"
        )
        if 0 < per_s <= STATEMENTS_PER_S_MAX and max(shares) <= CPU_MAX * slowness():
            return
    pytest.fail("never at rest: see what was printed")


def slowness() -> float:
    """How many times slower this machine is now than the one on which the bound was set; at least 1."""
    began_s = time.process_time()
    for _ in range(LOOP_STEPS):
        pass
    return max((time.process_time() - began_s) / LOOP_S, 1.0)


def cpu_seconds(pid: int) -> float:
    """What the agent itself has used, as the kernel counts it; not what it has started."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int) -> dict[str, int]:
    """In KiB: its share of what it has in memory, and what it has for itself alone."""
    found = dict(re.findall(r"^(\w+):\s+(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    return {"PSS": int(found["Pss"]), "USS": int(found["Private_Clean"]) + int(found["Private_Dirty"])}


@alone_or_not
@watched_s
async def test_idle_nodes_ask_postgresql_seldom(tmp_path: Path, seconds: float, nodes: int) -> None:
    with installed(PostgresServer) as server:
        async with server.fresh_database() as url:
            await run(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET log_statement = 'all'")

            async def count() -> int:
                return len(re.findall(r"LOG:  (?:statement|execute)", server.log))

            async with idle_nodes(url, tmp_path, nodes) as started:
                await watch("PostgreSQL", started, count, seconds)


@alone
@watched_s
async def test_idle_nodes_ask_mariadb_seldom(
    mariadb_server: MariadbDatabases, tmp_path: Path, seconds: float, nodes: int
) -> None:
    async with mariadb_server.fresh_database() as url:

        async def count() -> int:
            ((_, questions),) = await run(url, "SHOW GLOBAL STATUS LIKE 'Questions'")
            return int(questions)

        async with idle_nodes(url, tmp_path, nodes) as started:
            first = await count()
            own = await count() - first
            await watch("MariaDB", started, count, seconds, own)


@alone
@watched_s
async def test_idle_nodes_ask_sqlite_seldom(tmp_path: Path, seconds: float, nodes: int) -> None:
    async with idle_nodes(f"sqlite:///{tmp_path}/rota.db", tmp_path, nodes, counted=True) as started:
        sent = [tmp_path / f"node-{number}" / SENT for number in range(nodes)]

        async def count() -> int:
            return sum(int(it.read_text() or 0) for it in sent)

        await watch("SQLite", started, count, seconds)
