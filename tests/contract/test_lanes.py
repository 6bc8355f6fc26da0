"""Lanes that nobody uses are forgotten, and no item is ever in one that was."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from rota.model import tables
from rota.model.records import lane_of
from rota.model.standing import Retention
from rota.ports import Store
from rota.storage.memory import MemoryStore
from rota.storage.sql import schema
from rota.storage.sql.store import SqlStore
from rota.transactions.finish import finish
from rota.transactions.prune import prune
from tests.contract.conftest import Open
from tests.factories import a_node, an_end, assigned, given

HOUR_US = 3_600_000_000
KEEP = Retention(age_s=2 * 86400.0, runs_max=1000, history_s=86400.0)
on_databases = pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)


async def quotas(store: Store) -> list[str]:
    """The quotas that there are lanes of."""
    return sorted(lane_of(row).quota for row in await store.look(lambda tx: tx.rows.all(tables.LANE)))


async def age(hours: int, store: Store, *others: Store) -> None:
    """Let so much time pass, for the rows of lanes and for what clients of the store know of them."""
    if isinstance(store, MemoryStore):
        for row in list(store.tables.rows(tables.LANE)):
            assert row.used_at is not None
            store.tables.put(tables.LANE, row._replace(used_at=row.used_at - hours * HOUR_US))
    else:
        assert isinstance(store, SqlStore)
        at = schema.lane.c.used_at
        aged = update(schema.lane).values(used_at=at - hours * HOUR_US)
        await store._db.write(lambda conn: conn.execute(aged))
    for client in (store, *others):
        assert isinstance(client, SqlStore | MemoryStore)
        client.memory.lanes = {
            lane: it._replace(at_us=it.at_us - hours * HOUR_US) for lane, it in client.memory.lanes.items()
        }


async def test_a_lane_that_nobody_uses_is_forgotten_and_one_with_a_live_item_is_not(store: Store) -> None:
    node = await a_node(store)
    await assigned(store, 1, quota="over")
    await finish(store, [an_end(it) for it in await given(store, node)])
    await assigned(store, 1, quota="live")
    await age(49, store)
    await store.transact(prune, KEEP, limit=10)
    assert await quotas(store) == ["live"]
    await assigned(store, 1, quota="over")
    assert len(await given(store, node)) == 2
    assert await quotas(store) == ["live", "over"]


@on_databases
async def test_a_lane_is_kept_for_as_long_as_somebody_may_know_it(store: Store, another: Open) -> None:
    other = await another()
    for it in (store, other):
        await assigned(it, 1, quota="shared")
    node = await a_node(store)
    await finish(store, [an_end(it) for it in await given(store, node)])
    for _ in range(14):
        await age(4, store, other)
        await assigned(other, 1, quota="shared")
        await finish(store, [an_end(it) for it in await given(store, node)])
        await store.transact(prune, KEEP, limit=10)
        assert await quotas(store) == ["shared"], "it is used every four hours"


@on_databases
async def test_a_lane_that_others_forgot_is_made_anew(store: Store, another: Open) -> None:
    other = await another()
    await assigned(other, 1, quota="lost")
    node = await a_node(store)
    await finish(store, [an_end(it) for it in await given(store, node)])
    await age(49, other)
    await store.transact(prune, KEEP, limit=10)
    assert await quotas(store) == []
    await assigned(other, 1, quota="lost")
    (granted,) = await given(store, node)
    assert (await finish(store, [an_end(granted)])).stale == frozenset()
