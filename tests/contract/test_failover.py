"""A PostgreSQL store with a standby: whoever wrote to the primary goes on at the standby once it is promoted, no id or
token comes again, and a primary that comes back alone is not believed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack
from typing import NamedTuple, TypeVar

import pytest

from rota.clock import SystemClock
from rota.core.dispatch.board import Rounds
from rota.errors import StoreUnavailable
from rota.ports import Store
from rota.storage.sql import servers
from rota.storage.sql.store import SqlStore
from rota.transactions.members import settle
from rota.transactions.round import dispatch
from rota.wiring import open_store
from tests.factories import a_node, assigned, in_order
from tests.servers.ports import LOOPBACK
from tests.servers.postgres import USER, PostgresServer, PostgresStandby, wait_for_standby
from tests.servers.sql import run

T = TypeVar("T")

pytestmark = pytest.mark.timeout(300)


class Pair(NamedTuple):
    """A primary, the standby that follows it, and the database on both."""

    primary: PostgresServer
    standby: PostgresStandby
    database: str

    def url(self, *servers: PostgresServer) -> str:
        hosts = ",".join(f"{LOOPBACK}:{it.port}" for it in servers or (self.primary, self.standby))
        return f"postgresql://{USER}@{hosts}/{self.database}?target_session_attrs=read-write"

    async def fail_over(self) -> None:
        await asyncio.to_thread(self.primary.kill)
        await asyncio.to_thread(self.standby.promote)


@pytest.fixture(params=["async", "sync"])
async def pair(request: pytest.FixtureRequest) -> AsyncIterator[Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(PostgresServer())
        standby = stack.enter_context(PostgresStandby(primary))
        admin = primary.url("postgres")
        if request.param == "sync":
            await run(admin, "ALTER SYSTEM SET synchronous_standby_names = '*'")
            await run(admin, "SELECT pg_reload_conf()")
        await wait_for_standby(admin, request.param)
        pair = Pair(primary, standby, await primary.create_database())
        store = open_store(pair.url(), SystemClock(), actor="test")
        await store.migrate()
        await store.close()
        yield pair


only_async = pytest.mark.parametrize("pair", ["async"], indirect=True)


async def insist(asked: Callable[[], Awaitable[T]]) -> T:
    """Ask until the store answers, as loops do."""
    async with asyncio.timeout(30):
        while True:
            try:
                return await asked()
            except StoreUnavailable:
                await asyncio.sleep(0.05)


async def test_a_promoted_standby_is_found_and_raises_the_generation_once(pair: Pair) -> None:
    stores = [open_store(pair.url(), SystemClock(), actor="test") for _ in range(2)]
    node, board = await a_node(stores[0]), Rounds()
    run_before = await assigned(stores[0], 2)
    before = await dispatch(stores[0], node, board, batch_max=1)
    await assigned(stores[1], 1)
    await wait_for_replay(pair)
    await pair.fail_over()
    assert await insist(lambda: stores[0].renew(node, lease_s=10, busy=0))
    await insist(lambda: stores[0].transact(settle, node, []))
    after = await insist(lambda: dispatch(stores[0], node, board, batch_max=10))
    assert (await insist(stores[1].generation), after.given) == (2, 2)
    assert after.round > before.round + 2**32
    later = [await insist(lambda store=store: assigned(store, 1)) for store in stores]  # type: ignore[misc]
    assert min(run.id for run in later) > run_before.id + 1_000_000_000
    assert later[0].id != later[1].id
    for store in stores:
        await store.close()


@only_async
async def test_a_primary_that_comes_back_alone_is_not_believed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left behind by the promotion, but takes writes: one timeline must not become two."""
    monkeypatch.setattr(servers, "HOST_S", 30.0)  # who cannot ask the standby in time has to believe the primary
    store = open_store(pair.url(), SystemClock(), actor="test")
    await store.generation()
    await pair.fail_over()
    await insist(store.generation)
    await asyncio.to_thread(pair.primary.start)
    fresh = open_store(pair.url(), SystemClock(), actor="test")
    for it in (store, fresh):
        await end_sessions(pair.standby, pair.database)
        assert (await insist(it.generation), await server_of(it)) == (2, pair.standby.port)
    await asyncio.to_thread(pair.standby.stop)
    with pytest.raises(StoreUnavailable, match="left behind"):
        async with asyncio.timeout(20):
            while True:
                await store.generation()
    await store.close()
    await fresh.close()


@only_async
async def test_a_standby_is_no_store(pair: Pair) -> None:
    await wait_for_replay(pair)
    store = open_store(pair.url(pair.standby), SystemClock(), actor="test")
    with pytest.raises(StoreUnavailable, match="it is a standby"):
        await store.generation()
    await store.close()


@only_async
async def test_who_listens_hears_again_after_a_server_was_in_recovery(pair: Pair) -> None:
    await wait_for_replay(pair)
    store = open_store(pair.url(pair.standby), SystemClock(), actor="test")
    heard: list[str] = []
    store.listen(heard.append)
    assert isinstance(store, SqlStore)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await store.generation()
        await asyncio.sleep(0.2)  # the listener tries too
    await pair.fail_over()
    async with asyncio.timeout(20):
        while "dispatch" not in heard:
            await asyncio.sleep(0.02)
    heard.clear()
    await insist(lambda: assigned(store, 1))
    async with asyncio.timeout(20):
        while "dispatch" not in heard:
            await asyncio.sleep(0.02)
    await store.close()


@only_async
async def test_what_a_standby_had_not_received_is_given_again_under_a_higher_token(pair: Pair) -> None:
    """The standby stands still while the primary gives an item out; then the primary is lost."""
    store = open_store(pair.url(), SystemClock(), actor="test")
    node, board = await a_node(store), Rounds()
    await assigned(store, 1)
    await dispatch(store, node, board, batch_max=0)
    await wait_for_replay(pair)
    assert pair.standby.pid is not None
    await asyncio.to_thread(pair.standby.kill)
    (lost,) = in_order(await dispatch(store, node, board, batch_max=1))
    await asyncio.to_thread(pair.primary.kill)
    await asyncio.to_thread(pair.standby.start)
    await asyncio.to_thread(pair.standby.promote)
    await insist(lambda: store.transact(settle, node, []))
    again = await insist(lambda: dispatch(store, node, board, batch_max=1))
    assert [(it.item_id, it.attempt) for it in in_order(again)] == [(lost.item_id, lost.attempt)]
    assert again.round >= 2 << 32
    await store.close()


async def wait_for_replay(pair: Pair) -> None:
    """Wait until the standby has everything."""
    behind = "SELECT count(*) FROM pg_stat_replication WHERE replay_lsn < pg_current_wal_lsn()"
    async with asyncio.timeout(30):
        while (await run(pair.primary.url("postgres"), behind))[0][0]:
            await asyncio.sleep(0.02)


async def end_sessions(server: PostgresServer, database: str) -> None:
    theirs = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"
    await run(server.url("postgres"), theirs)


async def server_of(store: Store) -> int:
    assert isinstance(store, SqlStore)
    return int(await store._db.read(lambda conn: conn.exec_driver_sql("SHOW port").scalar_one()))


@only_async
async def test_renewals_that_a_standby_had_not_received_raise_the_generation_once_only(pair: Pair) -> None:
    """Whoever connects first raises it. A node that misses its renewals, too, knows why."""
    stores = [open_store(pair.url(), SystemClock(), actor="test") for _ in range(2)]
    nodes = [await a_node(store, name=f"n{n}") for n, store in enumerate(stores)]
    await wait_for_replay(pair)
    await asyncio.to_thread(pair.standby.kill)
    for store, node in zip(stores, nodes, strict=True):
        for _ in range(3):
            assert await store.renew(node, lease_s=10, busy=0)
    await asyncio.to_thread(pair.primary.kill)
    await asyncio.to_thread(pair.standby.start)
    await asyncio.to_thread(pair.standby.promote)
    for store, node in zip(stores, nodes, strict=True):
        for _ in range(2):
            assert await insist(lambda store=store, node=node: store.renew(node, lease_s=10, busy=0)) == 2  # type: ignore[misc]
        await store.close()
