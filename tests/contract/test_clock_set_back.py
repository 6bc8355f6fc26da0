"""The store's clock is set back by an hour: leases of nodes that are dead seem to last so much longer. They are void:
such a node gets no work, and is rescued when whoever rescues has seen no renewal for as long as always."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, update

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.model import tables
from rota.model.states import ItemState
from rota.ports import Store
from rota.storage.memory import MemoryStore
from rota.storage.sql import schema
from rota.storage.sql.store import SqlStore
from rota.transactions.rescue import rescue
from rota.transactions.round import dispatch
from tests.factories import a_node, an_end, assigned, in_order

HOUR_US = 3_600_000_000


async def set_back(store: Store, node: int) -> None:
    """What a clock that was set back by an hour does to a lease that was renewed before."""
    if isinstance(store, MemoryStore):
        lease = store.tables.get(tables.LEASE, node)
        assert lease is not None
        store.tables.put(tables.LEASE, lease._replace(until_at=lease.until_at + HOUR_US))
        return
    assert isinstance(store, SqlStore)

    def work(conn: Connection) -> None:
        lease = schema.lease.c
        conn.execute(update(schema.lease).where(lease.node_id == node).values(until_at=lease.until_at + HOUR_US))

    await store._db.write(work)


async def test_a_node_whose_lease_lies_too_far_ahead_gets_no_work_until_it_renews(store: Store) -> None:
    dead, alive = await a_node(store, "dead", seats=50), await a_node(store, "alive", seats=2)
    board = Rounds()
    await dispatch(store, alive, board, batch_max=10)
    await set_back(store, dead)
    await assigned(store, 8)
    done = await dispatch(store, alive, board, batch_max=10)
    assert set(done.grants) == {alive}
    assert await store.renew(dead, lease_s=10, busy=0)
    again = await dispatch(store, alive, board, batch_max=10)
    assert set(again.grants) == {dead}


@pytest.mark.parametrize("is_void", [True, False])
async def test_a_rescue_is_accepted_if_the_lease_is_void(store: Store, is_void: bool) -> None:
    node, board = await a_node(store, lease_s=60), Rounds()
    await assigned(store, 1)
    (granted,) = in_order(await dispatch(store, node, board, batch_max=1))
    if is_void:
        await set_back(store, node)
    ends = [an_end(granted, outcome="lost", state="ready")]
    assert await store.transact(rescue, node, 1, ends, rule=Advance(), margin_s=1.0) is is_void
    (item,) = await store.queued()
    assert item.state is (ItemState.READY if is_void else ItemState.ASSIGNED)


async def test_a_rescue_is_refused_if_the_node_renewed_after_the_clock_was_set_back(store: Store) -> None:
    node, board = await a_node(store, lease_s=60), Rounds()
    await assigned(store, 1)
    (granted,) = in_order(await dispatch(store, node, board, batch_max=1))
    await set_back(store, node)
    assert await store.renew(node, lease_s=10, busy=0)
    ends = [an_end(granted, outcome="lost", state="ready")]
    assert not await store.transact(rescue, node, 1, ends, rule=Advance(), margin_s=1.0)
    assert not await store.transact(rescue, node, 2, ends, rule=Advance(), margin_s=1.0)
