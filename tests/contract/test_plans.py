"""No statement reads a store from end to end: what a transaction reads depends on what it is about, not on the past.

Planners choose by what they believe the tables hold, and believe what they saw last. So everything is done on stores of
which they know nothing or all, and by statements whose plans were made when the tables were empty. The servers count
the rows that they read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from rota.bench.judge import analyse, top_up
from rota.bench.plain import Plain, connect
from rota.clock import SystemClock
from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.model.dispatch import Granted
from rota.model.moment import micros
from rota.model.plan import RunFilter
from rota.model.work import GLOBAL, Limit, quota_limit
from rota.ports import Store
from rota.storage.sql.store import SqlStore
from rota.transactions.assign import close_runs
from rota.transactions.finish import finish, settle_runs
from rota.transactions.fire import fire
from rota.transactions.limits import set_limits
from rota.wiring import open_store
from tests.contract.test_statements import deeds
from tests.factories import a_node, an_end, assigned, due_jobs, given
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer

ENDED = 100_000
"""How many items have ended: half of them in runs of 5,000, half in runs of their own."""
READ_MAX = ENDED // 5
"""So many rows of a table are never read, in all: who looks once through any of them reads more."""
HERD = 500
"""As many as a scheduler fires at once. Asked for more than 200 keys, MariaDB would guess instead of looking."""
READ = {
    "postgresql": """SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
        WHERE relname IN ('rota_run', 'rota_item', 'rota_attempt', 'rota_queue')""",
    "mysql": """SELECT table_name, rows_read FROM information_schema.table_statistics
        WHERE table_schema = DATABASE() AND table_name IN ('rota_run', 'rota_item', 'rota_attempt', 'rota_queue')""",
}


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.prove)])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    server = request.getfixturevalue("postgres_server" if request.param == "postgresql" else "mariadb_server")
    async with migrated(server) as url:
        yield url


@asynccontextmanager
async def migrated(server: PostgresServer | MariadbServer) -> AsyncIterator[str]:
    """A database of its own: no other test wants the past that it gets."""
    async with server.fresh_database() as url:
        store = open_store(url, SystemClock(), actor="test")
        await store.migrate()
        await store.close()
        yield url


@pytest.mark.parametrize("is_analysed", [False, True], ids=["planners know nothing", "planners know all"])
async def test_what_is_read_does_not_grow_with_the_past(url: str, *, is_analysed: bool) -> None:
    store = open_store(url, SystemClock(), actor="test")
    await remember(store, url, is_analysed=is_analysed)
    await expect_few_reads(store, url)


async def test_plans_of_an_empty_store_are_not_kept_for_long(url: str) -> None:
    """PostgreSQL keeps a plan that it has made five times, until the table is analysed; it sees to that each minute."""
    store = open_store(url, SystemClock(), actor="test")
    for _ in range(6):
        await do_everything(store)
    await remember(store, url, is_analysed=True)
    await expect_few_reads(store, url)


@pytest.mark.prove
async def test_mariadb_looks_instead_of_believing_what_it_saw_first(mariadb_server: MariadbServer) -> None:
    """It keeps what it saw of an index when it opened a table, and would believe that for more than 200 keys."""
    async with migrated(mariadb_server) as url:
        store = open_store(url, SystemClock(), actor="test")
        await do_everything(store)
        await remember(store, url, is_analysed=False)
        await expect_few_reads(store, url)


async def test_a_herd_that_comes_into_an_empty_queue_is_found_by_its_keys(url: str) -> None:
    """A planner that has seen the queue empty believes so until it is analysed again; a herd is dispatched before."""
    store, conn = open_store(url, SystemClock(), actor="test"), await connect(url)
    node, board, rule = await a_node(store, seats=HERD), Rounds(), Advance()
    quota = quota_limit("acme", "default")
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=HERD), Limit(name=quota, cap=HERD)])

    async def dispatch() -> list[Granted]:
        granted = await given(store, node, board)
        await finish(store, [an_end(it) for it in granted], rule=rule)
        return granted

    await assigned(store, 6 * HERD)
    first = await given(store, node, board)
    await finish(store, [an_end(it) for it in first[1:]], rule=rule)
    while await dispatch():
        pass
    await conn.run("VACUUM ANALYZE rota_queue" if url.startswith("postgresql") else "ANALYZE TABLE rota_queue")
    await finish(store, [an_end(first[0])], rule=rule)
    await assigned(store, 40 * HERD)
    async with reads_counted(store, url) as read:
        for _ in range(8):
            assert len(await dispatch()) == HERD
    await store.close()
    await conn.close()
    assert 8 * HERD <= read["rota_queue"] < 40 * HERD, f"the queue was read from end to end: {read}"


async def expect_few_reads(store: Store, url: str) -> None:
    async with reads_counted(store, url) as read:
        await do_everything(store)
    await store.close()
    assert read["rota_item"], "nothing was counted"
    del read["rota_queue"]  # it has no past
    assert max(read.values()) < READ_MAX, f"a table was read from end to end: {read}"


@asynccontextmanager
async def reads_counted(store: Store, url: str) -> AsyncIterator[dict[str, int]]:
    """How many rows of each table the server reads meanwhile; the answer is filled in at the end."""
    conn = await connect(url)
    if url.startswith("mysql"):
        await conn.run("SET GLOBAL userstat = 1")
    await count_now(store)
    before, read = await rows_read(conn, url), dict[str, int]()
    yield read
    await count_now(store)
    read.update({table: count - before.get(table, 0) for table, count in (await rows_read(conn, url)).items()})
    await conn.close()
    print(f"rows read: {read}")


async def do_everything(store: Store) -> None:
    """What nodes and people ask of a store, again and again."""
    async for _ in deeds(store):
        pass
    rule, node = Advance(), await a_node(store, seats=1000)
    herd = [job.id for job in await due_jobs(store, HERD)]
    await store.transact(fire, herd, Fire())
    await finish(store, [an_end(it) for it in await given(store, node)], rule=rule)
    runs = [await assigned(store, 5) for _ in range(50)]
    granted = await given(store, node)
    await store.loads([it.item_id for it in granted], [it.run_id for it in granted])
    await store.loads([it.item_id for it in granted[:20]], [it.run_id for it in granted[:20]])
    await close_runs(store, limit=50)
    await finish(store, [an_end(it) for it in granted], rule=rule)
    await close_runs(store, limit=50)
    await settle_runs(store, rule, limit=50)
    await store.runs(RunFilter(limit=50))
    await store.runs_of([run.id for run in runs])
    await store.unstarted([run.id for run in runs])
    await store.live_runs("acme", limit=50)
    await store.standing(runs[0].id)
    await store.statistics()


async def remember(store: Store, url: str, *, is_analysed: bool) -> None:
    conn, now_us = await connect(url), micros(await store.now())
    await top_up(conn, ENDED // 2, now_us, quietly)
    await top_up(conn, ENDED, now_us, quietly, run_items=1)
    if is_analysed:
        await analyse(conn)
    await conn.close()


def quietly(what: str, done: int, wanted: int) -> None: ...


async def count_now(store: Store) -> None:
    """PostgreSQL adds up what a connection did when it has been idle for long, or is asked to."""
    assert isinstance(store, SqlStore)
    if store.database.dialect.name == "postgresql":
        for use in (store.database.read, store.database.write, store.database.beat):
            await use(lambda conn: conn.exec_driver_sql("SELECT pg_stat_force_next_flush()").all())


async def rows_read(conn: Plain, url: str) -> dict[str, int]:
    """By table."""
    return {name: int(count) for name, count in await conn.rows(READ[url.split(":", 1)[0]])}
