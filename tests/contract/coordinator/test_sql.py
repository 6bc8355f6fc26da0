"""What is special to the coordinator in the store's database: its clock, its numbers, its words, its lines."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import Connection, Engine, event, func, select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from rota.clock import SystemClock
from rota.coordinators.sql import coordinator as coordinator_module
from rota.coordinators.sql.coordinator import SqlCoordinator
from rota.coordinators.sql.entries import concerns, topics_of
from rota.errors import CoordinatorUnavailable, SessionLost
from rota.model.entry import VALUE_MAX
from rota.model.moment import micros
from rota.ports import Coordinator, Store
from rota.storage.sql import schema
from rota.storage.sql.database import Database, ServerDatabase
from rota.storage.sql.sqlite import FileDatabase
from rota.storage.sql.store import SqlStore
from rota.wiring import own_coordinator
from tests.contract.conftest import Line
from tests.contract.coordinator.conftest import Clients
from tests.contract.coordinator.test_listen import Ear

pytestmark = pytest.mark.nightly  # what is special to one kind; the contract itself runs every time

on_sql = pytest.mark.parametrize("client", ["sqlite", "postgresql", "mariadb"], indirect=True)
on_postgresql = pytest.mark.parametrize("line", ["postgresql"], indirect=True)
TOLD_S = 6.0


@pytest.fixture(autouse=True)
def patient_renewals() -> None:
    """Here renewals are given up as soon as they really are."""


@pytest.fixture
def patient_verbs() -> None:
    """And so are the other verbs."""


def of(store: Store, ttl_s: float = 30.0) -> SqlCoordinator:
    assert isinstance(store, SqlStore)
    return own_coordinator(store, SystemClock(), ttl_s=ttl_s)


async def let_time_pass(coordinator: Coordinator) -> None:
    """The session of this client is over, and nobody has noticed."""
    assert isinstance(coordinator, SqlCoordinator)
    over = update(schema.session).where(schema.session.c.id == coordinator.session).values(until_at=1)
    await coordinator._db.write(lambda conn: conn.execute(over).rowcount)


async def rows(coordinator: Coordinator) -> tuple[int, int]:
    """How many sessions and entries there are, also those that nobody sees."""
    assert isinstance(coordinator, SqlCoordinator)

    def work(conn: Connection) -> tuple[int, int]:
        sessions, entries = (
            conn.scalar(select(func.count()).select_from(it)) or 0 for it in (schema.session, schema.entry)
        )
        return sessions, entries

    return await coordinator._db.read(work)


@on_sql
async def test_claims_of_a_session_that_is_over_are_gone_before_anybody_removed_them(
    client: Clients, a: Coordinator
) -> None:
    await a.claim({"live/a": ""})
    await a.put("live/b", "lasts")
    await let_time_pass(a)
    onlooker = await client()
    assert await onlooker.get("live/a") is None
    assert [it.key for it in await onlooker.read("live")] == ["live/b"]
    assert await onlooker.keys("live") == {"live/b"}
    assert await rows(a) == (1, 2), "void: somebody removed them"
    assert await onlooker.put("live/a", "new", version=0) is not None
    with pytest.raises(SessionLost):
        await a.claim({"jobs/1": ""})
    assert await rows(a) == (0, 2)


@on_sql
async def test_who_renews_removes_what_others_left(a: Coordinator, b: Coordinator) -> None:
    ear = Ear()
    a.listen("live", ear)
    await b.claim({"live/b": ""})
    await a.renew()
    await let_time_pass(b)
    heard = ear.count
    assert await a.renew()
    assert await rows(a) == (1, 0)
    assert ear.count > heard
    assert not await b.renew()


@on_sql
async def test_two_claimers_never_both_win(a: Coordinator, b: Coordinator) -> None:
    for number in range(40):
        keys = {f"jobs/{number}": "", f"jobs/{number}-x": ""}
        won = await asyncio.gather(a.claim(keys), b.claim(dict(reversed(keys.items()))))
        assert sorted(key for fences in won for key in fences) == sorted(keys)


@on_sql
async def test_two_claimers_never_both_win_what_a_session_leaves_that_is_over(
    client: Clients, a: Coordinator, b: Coordinator
) -> None:
    gone = await client(client.long_s)
    for _ in range(15):
        await gone.join()
        (fence,) = (await gone.claim({"jobs/1": ""})).values()
        await let_time_pass(gone)
        one, other, lives = await asyncio.gather(a.claim({"jobs/1": ""}), b.claim({"jobs/1": ""}), gone.renew())
        assert not lives
        assert len(one) + len(other) == 1
        assert (one | other)["jobs/1"] > fence
        await asyncio.gather(a.release(one), b.release(other))


def engines_of(database: Database) -> list[Engine]:
    if isinstance(database, FileDatabase):
        return [database._engine]
    assert isinstance(database, ServerDatabase)
    return [it.sync_engine for it in database.engines]


@on_sql
async def test_a_renewal_of_an_idle_client_costs_two_statements(a: Coordinator) -> None:
    assert isinstance(a, SqlCoordinator)
    assert await a.renew()
    statements: list[str] = []
    for engine in engines_of(a._db):
        event.listen(engine, "before_cursor_execute", lambda *it: statements.append(it[2]))
    assert await a.renew()
    asked = [it for it in statements if it not in ("BEGIN IMMEDIATE", "COMMIT")]
    assert 1 <= len(asked) <= 2, asked


@on_sql
async def test_two_thousand_claims_take_little_time(a: Coordinator, b: Coordinator) -> None:
    wanted = {f"jobs/{number}": "node" for number in range(2000)}
    started = time.monotonic()
    won = await a.claim(wanted)
    claimed = time.monotonic()
    assert await b.claim(wanted) == {}
    refused = time.monotonic()
    await a.release(won)
    released = time.monotonic()
    print(
        f"\n2000: won in {claimed - started:.2f} s, refused {refused - claimed:.2f}, released {released - refused:.2f}"
    )
    assert won.keys() == wanted.keys()
    assert claimed - started < 3.0


@on_sql
async def test_the_longest_values_are_kept_and_changed(a: Coordinator, b: Coordinator) -> None:
    long = {f"values/{n}": str(n) * VALUE_MAX for n in range(5)}
    fences = await a.claim(long)
    assert [it.value for it in await b.read("values")] == list(long.values())
    other = "'" * VALUE_MAX
    assert await a.update("values/0", fences["values/0"], other)
    entry = await b.get("values/0")
    assert entry is not None
    assert entry.value == other


@on_sql
async def test_a_verb_that_is_cancelled_leaves_nothing_broken(a: Coordinator, b: Coordinator) -> None:
    rng = random.Random(7)
    keys = {f"jobs/{n}": "" for n in range(600)}
    for _ in range(12):
        claiming = asyncio.create_task(a.claim(keys))
        await asyncio.sleep(rng.random() * 0.1)
        claiming.cancel()
        await asyncio.gather(claiming, return_exceptions=True)
        assert await a.renew()
        fences = await a.claim(keys)
        assert fences.keys() == keys.keys()
        assert {it.key: it.fence for it in await b.read("jobs")} == fences
        await a.release(fences)


async def test_a_claim_whose_reply_is_lost_is_found_done(line: Line) -> None:
    owner, truth = of(line.store), of(line.truth)
    await owner.join()
    line.proxy.swallow_commits(1)
    with pytest.raises(CoordinatorUnavailable):
        await owner.claim({"jobs/1": "mine"})
    assert line.proxy.swallowed == 1
    entry = await truth.get("jobs/1")
    assert entry is not None
    assert entry.session == owner.session
    assert await owner.claim({"jobs/1": "again"}) == {"jobs/1": entry.fence}


async def test_other_verbs_whose_reply_is_lost_are_found_done(line: Line) -> None:
    owner, truth = of(line.store), of(line.truth)
    await owner.join()
    (fence,) = (await owner.claim({"jobs/1": ""})).values()
    version = await owner.put("plan", "1")
    assert version is not None

    async def lost(verb: Awaitable[object]) -> None:
        line.proxy.swallow_commits(1)
        with pytest.raises(CoordinatorUnavailable):
            await verb

    await lost(owner.update("jobs/1", fence, "new"))
    assert await owner.update("jobs/1", fence, "new")
    await lost(owner.delete("plan", version))
    assert not await owner.delete("plan", version)
    await lost(owner.release({"jobs/1": fence}))
    await owner.release({"jobs/1": fence})
    assert await truth.keys("jobs") == frozenset()
    await lost(owner.leave())
    await owner.leave()
    assert owner.session is None
    assert await rows(truth) == (0, 0)
    await lost(owner.join())
    await owner.join()
    assert list(await owner.claim({"jobs/2": ""})) == ["jobs/2"]


VERBS: dict[str, Callable[[SqlCoordinator], Awaitable[object]]] = {
    "renew": lambda it: it.renew(),
    "claim": lambda it: it.claim({"jobs/2": ""}),
    "release": lambda it: it.release({"jobs/1": 1}),
    "update": lambda it: it.update("jobs/1", 1, ""),
    "get": lambda it: it.get("jobs/1"),
    "read": lambda it: it.read("jobs"),
    "keys": lambda it: it.keys("jobs"),
    "put": lambda it: it.put("plan", ""),
    "delete": lambda it: it.delete("plan", 1),
    "join": lambda it: it.join(),
    "leave": lambda it: it.leave(),
}


async def test_a_server_that_is_cut_off_is_told_in_bounded_time_and_survived(line: Line) -> None:
    owner = of(line.store)
    await owner.join()
    await owner.claim({"jobs/1": ""})
    await asyncio.gather(owner.renew(), *(owner.keys("jobs") for _ in range(4)))  # every connection is made
    await line.proxy.black_hole()

    async def told(name: str) -> float:
        started = time.monotonic()
        with pytest.raises(CoordinatorUnavailable):
            await VERBS[name](owner)
        return time.monotonic() - started

    took = dict(zip(VERBS, await asyncio.gather(*map(told, VERBS)), strict=True))
    took |= {f"{name} on a new connection": await told(name) for name in ("renew", "claim", "get")}
    print("", *(f"{name} {seconds:.2f} s" for name, seconds in took.items()), sep="\n")
    assert max(took.values()) < TOLD_S
    line.proxy.abort()
    await line.proxy.pass_through()
    async with asyncio.timeout(20):
        while not await answers(owner):
            await asyncio.sleep(0.02)
    assert list(await owner.claim({"jobs/1": "", "jobs/2": ""})) == ["jobs/1", "jobs/2"]


async def answers(coordinator: SqlCoordinator) -> bool:
    try:
        return await coordinator.renew()
    except CoordinatorUnavailable:
        return False


async def test_to_close_a_client_that_is_cut_off_takes_bounded_time(line: Line) -> None:
    owner = of(line.store, ttl_s=1.0)
    await owner.join()
    await line.proxy.black_hole()
    async with asyncio.timeout(TOLD_S):
        await owner.close()
    assert owner.session is None
    line.proxy.abort()
    await line.proxy.pass_through()


async def test_the_session_of_a_client_that_was_cut_off_ends_by_the_clock_of_the_store(line: Line) -> None:
    owner, other = of(line.store, ttl_s=1.0), of(line.truth)
    await owner.join()
    await other.join()
    (fence,) = (await owner.claim({"jobs/1": ""})).values()
    assert await owner.renew()
    await line.proxy.black_hole()
    async with asyncio.timeout(10):
        while not (won := await other.claim({"jobs/1": ""})):
            await asyncio.sleep(0.01)
    assert owner.believed_until_s - 0.05 <= time.monotonic() <= owner.believed_until_s + 1.0
    assert won["jobs/1"] > fence
    line.proxy.abort()
    await line.proxy.pass_through()
    async with asyncio.timeout(10):
        while owner.session is not None:
            assert not await answers(owner)
    with pytest.raises(SessionLost):
        await owner.claim({"jobs/1": ""})


async def test_a_renewal_that_is_under_way_keeps_its_session(line: Line) -> None:
    """It was in time by its own statement; whoever wants to end the session waits for it and looks again."""
    owner, other = of(line.store), of(line.truth)
    await owner.join()
    await other.join()
    won = await owner.claim({"jobs/1": ""})
    await let_time_pass(owner)
    until_us = micros(await line.truth.now()) + 60_000_000
    prolonged = update(schema.session).where(schema.session.c.id == owner.session).values(until_at=until_us)
    async with engine_of(line.store).connect() as conn:
        await conn.execute(prolonged)
        claiming = asyncio.create_task(other.claim({"jobs/1": ""}))
        await asyncio.wait([claiming], timeout=0.3)
        assert not claiming.done()
        await conn.commit()
    assert await claiming == {}
    assert await owner.claim({"jobs/1": ""}) == won


def engine_of(store: Store) -> AsyncEngine:
    assert isinstance(store, SqlStore)
    assert isinstance(store._db, ServerDatabase)
    return store._db.engines.writer


@asynccontextmanager
async def a_long_transaction(store: Store) -> AsyncIterator[None]:
    """Somebody has the entries, and does not go on."""
    c = schema.counter.c
    async with engine_of(store).connect() as conn:
        await conn.execute(select(c.next).where(c.name == "entry").with_for_update())
        yield
        await conn.rollback()


async def test_a_renewal_waits_for_no_transaction(line: Line) -> None:
    owner, gone = of(line.store, ttl_s=2.0), of(line.truth)
    await owner.join()
    await gone.join()
    await let_time_pass(gone)
    async with a_long_transaction(line.truth):
        started = time.monotonic()
        assert await owner.renew()
        assert time.monotonic() - started < 1.5, "it tries for a moment to end the other session"
    assert await owner.renew()
    assert await rows(gone) == (1, 0)


async def test_a_frozen_client_that_has_the_entries_does_not_hold_up_others_for_long(line: Line) -> None:
    """The server ends a transaction that is idle for too long."""
    other = of(line.truth)
    await other.join()
    held = asyncio.Event()

    async def frozen() -> None:
        async with a_long_transaction(line.store):
            await line.proxy.black_hole()
            held.set()
            await asyncio.sleep(60)

    holder = asyncio.create_task(frozen())
    await held.wait()
    assert await other.claim({"jobs/1": ""})
    holder.cancel()
    line.proxy.abort()
    await line.proxy.pass_through()
    await asyncio.gather(holder, return_exceptions=True)


@pytest.mark.parametrize("client", ["sqlite"], indirect=True)
async def test_a_file_that_somebody_holds_is_told_in_bounded_time_and_can_be_read(a: Coordinator) -> None:
    assert isinstance(a, SqlCoordinator)
    assert isinstance(a._db, FileDatabase)
    (fence,) = (await a.claim({"jobs/1": ""})).values()
    holder = sqlite3.connect(str(a._db._engine.url.database), isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    for answer in await asyncio.gather(a.claim({"jobs/2": ""}), a.put("plan", ""), a.renew(), return_exceptions=True):
        assert isinstance(answer, CoordinatorUnavailable)
    assert await a.keys("jobs") == {"jobs/1"}
    assert time.monotonic() - started < TOLD_S
    holder.execute("ROLLBACK")
    holder.close()
    assert await a.renew()
    assert (await a.claim({"jobs/1": "", "jobs/2": ""}))["jobs/1"] == fence


@on_postgresql
async def test_postgresql_tells_at_once_also_after_the_line_was_cut(line: Line) -> None:
    hearer, other = of(line.store), of(line.truth)
    await other.join()
    news, topics = asyncio.Event(), list[str]()
    hearer.listen("jobs", news.set)
    line.store.listen(topics.append)

    async def hears(deed: Callable[[], Awaitable[object]], seconds: float) -> None:
        news.clear()
        await deed()
        async with asyncio.timeout(seconds):
            await news.wait()

    await hears(lambda: asyncio.sleep(0), 5)  # it listens
    await hears(lambda: other.claim({f"jobs/{n}": "" for n in range(100)}), 1)
    await hears(lambda: other.put("jobs", "the folder's own"), 1)
    await hears(other.leave, 1)
    assert topics.count("entry:jobs/") == 2, "a batch tells its folder once"
    line.proxy.abort()
    await hears(lambda: other.put("jobs/1", "while nobody hears"), 15)
    await hears(lambda: other.put("jobs/1", "again"), 1)
    await other.put("live/1", "elsewhere")
    await other.put("job", "elsewhere")
    news.clear()
    await asyncio.sleep(0.3)
    assert not news.is_set()


@pytest.mark.parametrize(
    ("changed", "told", "woken"),
    [
        (["jobs/1"], ["entry:jobs/1"], {"jobs", "jobs/1"}),
        (["jobs/1", "jobs/2"], ["entry:jobs/"], {"jobs", "jobs/1", "jobs/2"}),
        (["jobs"], ["entry:jobs"], {"", "jobs"}),
        (["jobs", "plan"], ["entry:/"], {"", "jobs", "live"}),
        (["jobs/1", "live/a", "jobs/1"], ["entry:jobs/1", "entry:live/a"], {"jobs", "jobs/1", "live"}),
        ([], [], set()),
    ],
)
def test_a_topic_wakes_all_whom_it_concerns_and_few_others(
    changed: list[str], told: list[str], woken: set[str]
) -> None:
    assert topics_of(changed) == told
    folders = {"", "jobs", "jobs/1", "jobs/2", "live", "jobs/1/x"}
    assert {it for it in folders if any(concerns(topic, it) for topic in told)} == woken


def test_after_a_gap_all_are_woken_and_other_topics_wake_nobody() -> None:
    assert concerns("entry:", "jobs")
    assert not concerns("dispatch", "jobs")
    assert not concerns("node:1", "jobs")


def test_large_values_are_shared_out_among_transactions() -> None:
    sizes = {"a": 900_000, "b": 900_000, "c": 900_000, "d": 1} | {f"x{n}": 0 for n in range(600)}
    parts = list(coordinator_module._parts(sizes, lambda size: size))
    assert [len(it) for it in parts] == [2, 500, 102]
    assert [key for part in parts for key in part] == list(sizes)
