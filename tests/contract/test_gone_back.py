"""A store that no longer agrees with the node that makes the rounds: a restored backup, a standby that was promoted and
lacks the last writes, a process that was cloned. Whatever differs, the next round starts from what the store has."""

from __future__ import annotations

import copy

from rota.core.dispatch.board import Rounds
from rota.model.states import ItemState
from rota.model.work import GLOBAL, Limit, quota_limit
from rota.ports import Store
from rota.transactions.finish import finish
from rota.transactions.limits import set_limits
from rota.transactions.round import dispatch
from tests.contract.backup import Backup
from tests.contract.conftest import Open
from tests.factories import a_node, an_end, assigned, in_order


async def executing(store: Store) -> int:
    return sum(it.state is not ItemState.READY for it in await store.queued(limit=1000))


async def test_items_that_a_restore_made_ready_again_are_given_again(store: Store) -> None:
    node, board = await a_node(store, seats=50), Rounds()
    await dispatch(store, node, board, batch_max=100)
    await assigned(store, 5)
    backup = await Backup.of(store)
    assert (await dispatch(store, node, board, batch_max=100)).given == 5
    await backup.restore(store)
    again = await dispatch(store, node, board, batch_max=100)
    assert (again.given, again.took_over) == (5, True), "they stay ready for ever"


async def test_seats_that_a_restore_took_again_count(store: Store) -> None:
    """The board saw the items end; the store has them executing."""
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=4)])
    node, board = await a_node(store, seats=50), Rounds()
    await assigned(store, 8)
    first = await dispatch(store, node, board, batch_max=100)
    backup = await Backup.of(store)
    await finish(store, [an_end(it) for it in in_order(first)])
    await dispatch(store, node, board, batch_max=1)
    await backup.restore(store)
    await dispatch(store, node, board, batch_max=100)
    assert await executing(store) == 4


async def test_limits_and_lanes_are_read_anew_after_a_restore(store: Store) -> None:
    """Their numbers are given anew, too: what a node remembers under them may mean something else now."""
    node, board = await a_node(store, seats=50), Rounds()
    await assigned(store, 1, tenant="early")
    await dispatch(store, node, board, batch_max=100)
    backup = await Backup.of(store)
    await store.transact(set_limits, [Limit(name=quota_limit("wide", "default"), cap=90)])
    await assigned(store, 1, tenant="wide")
    await dispatch(store, node, board, batch_max=100)
    await backup.restore(store)
    await store.transact(set_limits, [Limit(name=quota_limit("narrow", "default"), cap=1)])
    await assigned(store, 3, tenant="narrow")
    await dispatch(store, node, board, batch_max=100)
    assert {it.tenant: it.running for it in await store.statistics()}["narrow"] == 1


async def test_two_copies_of_one_node_exceed_no_cap(another: Open) -> None:
    """A machine that was cloned: both have the same id, holder and epoch."""
    store, twin = await another(), await another()
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=10)])
    node, board = await a_node(store, seats=50), Rounds()
    await dispatch(store, node, board, batch_max=100)
    copied = copy.deepcopy(board)
    for _ in range(4):
        await assigned(store, 4)
        await dispatch(store, node, board, batch_max=100)
        await assigned(store, 4)
        await dispatch(twin, node, copied, batch_max=100)
    assert await executing(store) == 10
