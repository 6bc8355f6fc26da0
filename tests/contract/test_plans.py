"""No statement reads a store from end to end: what a transaction reads depends on what it is about, not on the past.

Planners choose by what they believe the tables hold, and believe what they saw last. So everything is done on stores of
which they know nothing or all, and by statements whose plans were made when the tables were empty. The servers count
the rows that they read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from rota.bench.judge import analyse, top_up
from rota.bench.plain import Plain, connect
from rota.clock import SystemClock
from rota.core.advance import Advance
from rota.model.moment import micros
from rota.model.plan import RunFilter
from rota.ports import Store
from rota.storage.sql.store import SqlStore
from rota.transactions.assign import close_runs
from rota.transactions.finish import finish, settle_runs
from rota.wiring import open_store
from tests.contract.test_statements import deeds
from tests.factories import a_node, an_end, assigned, given

ENDED = 100_000
"""How many items have ended: half of them in runs of 5,000, half in runs of their own."""
READ_MAX = ENDED // 5
"""So many rows of a table are never read, in all: who looks once through any of them reads more."""
READ = {
    "postgresql": """SELECT relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables
        WHERE relname IN ('rota_run', 'rota_item', 'rota_attempt')""",
    "mysql": """SELECT table_name, rows_read FROM information_schema.table_statistics
        WHERE table_schema = DATABASE() AND table_name IN ('rota_run', 'rota_item', 'rota_attempt')""",
}


@pytest.fixture(params=["postgresql", pytest.param("mariadb", marks=pytest.mark.prove)])
async def url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """A database of its own, migrated: no other test wants the past that it gets."""
    server = request.getfixturevalue("postgres_server" if request.param == "postgresql" else "mariadb_server")
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


async def expect_few_reads(store: Store, url: str) -> None:
    conn = await connect(url)
    if url.startswith("mysql"):
        await conn.run("SET GLOBAL userstat = 1")
    await count_now(store)
    before = await rows_read(conn, url)
    await do_everything(store)
    await count_now(store)
    read = {table: count - before.get(table, 0) for table, count in (await rows_read(conn, url)).items()}
    await store.close()
    await conn.close()
    print(f"rows read: {read}")
    assert read["rota_item"], "nothing was counted"
    assert max(read.values()) < READ_MAX, f"a table was read from end to end: {read}"


async def do_everything(store: Store) -> None:
    """What nodes and people ask of a store, again and again."""
    async for _ in deeds(store):
        pass
    rule, node = Advance(), await a_node(store, seats=500)
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
