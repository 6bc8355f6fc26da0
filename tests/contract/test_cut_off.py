"""A server that is cut off, refuses or resets: the store says so in bounded time and recovers by itself (P12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from rota.clock import SystemClock
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.errors import CommitUnknown, StoreUnavailable
from rota.model.plan import RunFilter
from rota.ports import Store
from rota.storage.sql import database
from rota.storage.sql.dialect import IDLE_S, PostgreSQL
from rota.storage.sql.store import SqlStore
from rota.transactions.fire import fire
from rota.transactions.round import dispatch
from rota.wiring import open_store
from tests.contract.conftest import PATIENT_S, Line, Migrated, empty
from tests.factories import a_due_job, a_node, assigned, given
from tests.servers.sql import run


async def answers(line: Line) -> bool:
    try:
        await line.store.now()
    except StoreUnavailable:
        return False
    return True


async def is_back(line: Line) -> None:
    async with asyncio.timeout(10):
        while not await answers(line):
            await asyncio.sleep(0.02)


async def test_a_black_hole_is_noticed_and_survived(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE_S", 0.5)
    job = await a_due_job(line.truth)
    await line.proxy.black_hole()
    for verb in (line.store.now(), line.store.transact(fire, [job.id], Fire())):
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(8):
                await verb
    line.proxy.abort()
    await line.proxy.pass_through()
    monkeypatch.undo()
    await is_back(line)
    await line.store.transact(fire, [job.id], Fire())
    assert len(await line.truth.runs(RunFilter())) == 1


async def test_refused_and_reset_connections_are_survived(line: Line) -> None:
    job = await a_due_job(line.truth)
    await assigned(line.store, 1)  # leaves ids over, and its lane is known
    line.proxy.abort()
    await line.proxy.refuse()
    for _ in range(8):  # more than there are connections to be found broken
        assert not await answers(line)
    with pytest.raises(StoreUnavailable):
        await line.store.transact(fire, [job.id], Fire())
    with pytest.raises(StoreUnavailable) as refused:
        await assigned(line.store, 1)
    assert not isinstance(refused.value, CommitUnknown), "nothing was sent"
    await line.proxy.pass_through()
    await is_back(line)
    done = await line.store.transact(fire, [job.id], Fire())
    assert len(done.runs) == 1


async def test_a_reset_in_the_middle_of_a_transaction_changes_nothing(line: Line) -> None:
    job = await a_due_job(line.truth)

    class Cut(Fire, frozen=True):
        def decide(self, facts):  # type: ignore[no-untyped-def]
            line.proxy.abort()
            return Fire().decide(facts)

    with pytest.raises(StoreUnavailable):
        await line.store.transact(fire, [job.id], Cut())
    assert await line.truth.runs(RunFilter()) == ()
    assert (await line.truth.named([job.definition.full_name]))[0] == job


async def test_a_frozen_holder_of_a_lock_does_not_hold_up_others_for_long(line: Line) -> None:
    """The server ends a transaction that is idle for too long."""
    job = await a_due_job(line.truth)
    loop, held = asyncio.get_running_loop(), asyncio.Event()
    cuts: list[asyncio.Task[None]] = []

    class Hold(Fire, frozen=True):
        """Cut the line while the lock is held, and do not come back."""

        def decide(self, facts):  # type: ignore[no-untyped-def]
            cuts.append(loop.create_task(line.proxy.black_hole()))
            held.set()
            return Fire().decide(facts)

    before_s = time.monotonic()
    holder = asyncio.create_task(line.store.transact(fire, [job.id], Hold()))
    await held.wait()
    done = await line.truth.transact(fire, [job.id], Fire())
    assert not done.runs or time.monotonic() - before_s > IDLE_S, "void: the lock was not held"
    async with asyncio.timeout(12):
        while not done.runs:
            await asyncio.sleep(0.05)
            done = await line.truth.transact(fire, [job.id], Fire())
    assert len(done.runs) == 1
    holder.cancel()
    await asyncio.gather(holder, return_exceptions=True)
    line.proxy.abort()
    await line.proxy.pass_through()


async def test_a_holder_of_a_lock_that_hangs_in_the_middle_of_a_message_is_ended(
    migrated: Migrated, request: pytest.FixtureRequest
) -> None:
    """To prepare a statement takes two messages; no timeout of the server counts between them."""
    url = await migrated("postgresql", request)
    store = open_store(url, SystemClock(), actor="test")
    await empty(store)
    node, board = await a_node(store), Rounds()
    hung = await asyncpg.connect(url, server_settings=PostgreSQL.session)
    await hung.execute("BEGIN")
    await hung.fetch("SELECT id FROM rota_dispatch WHERE id = 1 FOR UPDATE")
    before_s = time.monotonic()
    await hung.prepare("SELECT 2")
    state = "SELECT state FROM pg_stat_activity WHERE wait_event = 'ClientRead' AND query LIKE 'SELECT 2%'"
    async with asyncio.timeout(PATIENT_S):
        while await run(url, state) != [("active",)]:  # else it would not hang in a message
            await asyncio.sleep(0.02)
    ended = await store.evict()
    assert not ended or time.monotonic() - before_s > IDLE_S, "it has had no time yet"
    async with asyncio.timeout(PATIENT_S):
        while not ended:
            await asyncio.sleep(0.05)
            ended = await store.evict()
    assert ended == 1
    async with asyncio.timeout(PATIENT_S):
        await dispatch(store, node, board, batch_max=10)
    hung.terminate()
    await store.close()


async def test_where_nothing_hangs_nothing_is_ended(store: Store) -> None:
    assert not await store.evict()


async def test_a_renewal_waits_for_nothing_else(line: Line) -> None:
    """Every connection for transactions and for reads is taken; the lease is renewed all the same."""
    node = await a_node(line.truth)
    release = asyncio.Event()

    async def hold(engine: AsyncEngine) -> None:
        async with engine.connect():
            await release.wait()

    assert isinstance(line.truth, SqlStore)
    engines = line.truth._db.engines
    busy = (engines.writer.pool, engines.reader.pool)
    holders = [asyncio.create_task(hold(it)) for it in (engines.writer, engines.reader) for _ in range(it.pool.size())]
    async with asyncio.timeout(10):
        while any(pool.checkedout() < pool.size() for pool in busy):
            await asyncio.sleep(0.01)
    assert await line.truth.renew(node, lease_s=10.0, busy=0.0)
    release.set()
    await asyncio.gather(*holders)


async def test_a_renewal_that_gets_no_answer_gives_up_soon(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await a_node(line.truth)
    assert await line.store.renew(node, lease_s=10.0, busy=0.0)
    await line.proxy.black_hole()
    monkeypatch.setattr(database, "BEAT_S", 0.3)
    with pytest.raises(StoreUnavailable, match="renewal"):
        await line.store.renew(node, lease_s=10.0, busy=0.0)
    line.proxy.abort()
    await line.proxy.pass_through()
    monkeypatch.undo()
    await is_back(line)
    assert await line.store.renew(node, lease_s=10.0, busy=0.0)


@pytest.mark.parametrize("line", ["postgresql"], indirect=True)
async def test_who_listens_hears_what_arrives_also_after_the_line_was_cut(line: Line) -> None:
    heard: list[str] = []
    news = asyncio.Event()

    def wake(topic: str) -> None:
        heard.append(topic)
        news.set()

    async def hears(topic: str, cause: Callable[[], Awaitable[object]]) -> None:
        heard.clear()
        async with asyncio.timeout(20):
            while topic not in heard:
                news.clear()
                await cause()
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await news.wait()

    line.store.listen(wake)
    await hears("dispatch", lambda: assigned(line.truth, 1))
    node, other = await a_node(line.truth), await a_node(line.truth, seats=0)
    await hears(f"node:{node}", lambda: give_one(line.truth, other))
    line.proxy.abort()
    await hears("dispatch", lambda: assigned(line.truth, 1))


async def give_one(store: Store, by: int) -> None:
    await assigned(store, 1)
    await given(store, by)
