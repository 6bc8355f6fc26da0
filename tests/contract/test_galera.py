"""A MariaDB store that is a Galera cluster, with nodes on different members: locks reach one member only, so whatever
rests on a lock is also written, and the members compare that. The races of the contract, each process on a member of
its own, and the death of a member."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from rota.clock import SystemClock
from rota.core.dispatch.board import Rounds
from rota.errors import StoreFault, StoreUnavailable
from rota.ports import Store
from rota.storage.sql import schema
from rota.storage.sql.store import SqlStore
from rota.transactions.round import dispatch
from rota.wiring import open_store
from tests.conftest import installed
from tests.contract import test_dispatch, test_firing, test_overlap
from tests.contract.conftest import Open, empty
from tests.factories import a_node, assigned
from tests.servers.galera import GaleraCluster

Test = Callable[[Any], Awaitable[None]]

pytestmark = [pytest.mark.timeout(300), pytest.mark.prove]


@pytest.fixture(scope="module")
def galera() -> Iterator[GaleraCluster]:
    with installed(GaleraCluster) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def migrated_galera(galera: GaleraCluster) -> str:
    """A database that three processes migrated at once, each on a member of its own."""

    async def make() -> str:
        database = await galera.members[0].create_database()
        stores = [open_store(galera.url(database, first=n), SystemClock(), actor="test") for n in range(3)]
        await asyncio.gather(*(store.migrate() for store in stores))
        for store in stores:
            await store.check()
            await store.close()
        return database

    return asyncio.run(make())


@pytest.fixture
async def another(galera: GaleraCluster, migrated_galera: str) -> AsyncIterator[Open]:
    """Opens the store as one more process would, on the next member."""
    numbers = count()
    async with AsyncExitStack() as stack:

        async def open_() -> Store:
            first = next(numbers) % len(galera.members)
            store = open_store(galera.url(migrated_galera, first=first), SystemClock(), actor="test")
            stack.push_async_callback(store.close)
            return store

        await empty(await open_())
        yield open_


RACES: list[Test] = [
    test_dispatch.test_an_item_is_given_once_however_many_ask,
    test_dispatch.test_what_arrives_while_another_takes_over_is_not_forgotten,
    test_overlap.test_jobs_that_share_a_key_race_for_one_seat,
    test_overlap.test_the_end_of_a_run_that_races_a_firing_leaves_no_run_waiting_for_nobody,
    test_firing.test_a_fire_that_races_a_pause_keeps_every_slot_once,
]


async def know_key(store: Store) -> None:
    """Have the row of the key that the jobs share: who makes it first writes, and would be noticed without more."""
    assert isinstance(store, SqlStore)
    await store._db.write(lambda conn: conn.execute(insert(schema.overlap).values(key="one at a time")))


async def test_two_members_admit_one_run_of_a_shared_key(another: Open) -> None:
    """The short twin of the races below."""
    await know_key(await another())
    await test_overlap.test_jobs_that_share_a_key_race_for_one_seat(another)


@pytest.mark.nightly
@pytest.mark.parametrize("race", RACES, ids=lambda it: it.__name__.removeprefix("test_"))
async def test_a_race_between_members_is_won_by_one(race: Test, another: Open) -> None:
    for _ in range(3):
        await empty(await another())
        await race(another)


async def test_a_migration_that_fails_lets_others_migrate_at_once(another: Open) -> None:
    stores = [await another(), await another()]

    def fail(conn: Connection) -> None:
        conn.exec_driver_sql("ALTER TABLE no_such_table ADD COLUMN it INT")

    async with asyncio.timeout(30):
        for store in stores:
            assert isinstance(store, SqlStore)
            with pytest.raises(StoreFault, match="no_such_table"):
                await store._db.exclusively(fail)
        await stores[0].migrate()


async def test_when_a_member_dies_its_nodes_go_on_at_another(another: Open, galera: GaleraCluster) -> None:
    store = await another()  # the second to be opened: on the second member
    node, board = await a_node(store), Rounds()
    await assigned(store, 3)
    generation = await store.generation()
    await asyncio.to_thread(galera.members[1].kill)
    async with asyncio.timeout(30):
        while True:
            try:
                done = await dispatch(store, node, board, batch_max=10)
                break
            except StoreUnavailable:
                await asyncio.sleep(0.05)
    assert (done.given, await store.generation()) == (3, generation), "nothing was lost, and nothing begins anew"
    await asyncio.to_thread(galera.members[1].start)
