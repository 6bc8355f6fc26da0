"""Limits, and what can be asked about the queue (S2.10, S2.18, S2.21)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.core.dispatch.board import Rounds
from rota.core.start import Start
from rota.errors import Refused
from rota.model.states import ItemState
from rota.model.work import GLOBAL, Limit, Rate, quota_limit
from rota.ports import Store
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.limits import set_limits
from rota.transactions.round import dispatch
from tests.contract.conftest import Open
from tests.factories import MANUAL, a_definition, a_node, a_start, allow, an_end, assigned, given, put, queue


async def test_limits_are_set_changed_and_removed(store: Store) -> None:
    """S2.18, S2.21: create, update, remove."""
    assert await store.limits() == ()
    quota = Limit(name=quota_limit("acme", "default"), cap=7, weight=3, rate=Rate(max=5, period_s=0.5))
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=50), quota])
    assert await store.limits() == (Limit(name=GLOBAL, cap=50), quota)
    unlimited = Limit(name=quota.name)
    await store.transact(set_limits, [unlimited], removed=["never-set"])
    assert await store.limits() == (Limit(name=GLOBAL, cap=50), unlimited)
    await store.transact(set_limits, [], removed=[quota.name])
    assert await store.limits() == (Limit(name=GLOBAL, cap=50),)


async def test_the_global_limit_cannot_be_removed(store: Store) -> None:
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=50)])
    with pytest.raises(Refused, match="global"):
        await store.transact(set_limits, [], removed=[GLOBAL])
    assert await store.limits() == (Limit(name=GLOBAL, cap=50),)


async def test_a_change_of_limits_wakes_a_round(store: Store) -> None:
    board, node = Rounds(), await a_node(store)
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=0)])
    await assigned(store, 1)
    assert await given(store, node, board) == []
    assert (await store.pulse(node)).arrived_us is None
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=1)])
    assert (await store.pulse(node)).arrived_us is not None
    assert len(await given(store, node, board)) == 1


async def test_limits_that_change_during_rounds_hold_from_the_next_round_on(another: Open) -> None:
    one, two = await another(), await another()
    node, board = await a_node(one, seats=1000), Rounds()
    await one.transact(set_limits, [Limit(name=GLOBAL, cap=3)])
    await assigned(one, 60)

    async def rounds() -> None:
        for _ in range(10):
            await dispatch(one, node, board, batch_max=2)

    await asyncio.gather(rounds(), *(two.transact(set_limits, [Limit(name=GLOBAL, cap=cap)]) for cap in (4, 5, 6)))
    (limit,) = await one.limits()
    assert limit.cap is not None
    await dispatch(one, node, board, batch_max=100)
    executing = [it for it in await one.queued() if it.state is ItemState.ASSIGNED]
    assert len(executing) <= 6
    assert len(executing) >= limit.cap


async def test_the_counts_of_quotas_are_known(store: Store) -> None:
    """S2.21: statistics."""
    node, board = await a_node(store), Rounds()
    await store.transact(
        set_limits, [Limit(name=quota_limit("acme", "night"), cap=2), Limit(name=quota_limit("idle", "default"))]
    )
    await assigned(store, 5, quota="night")
    await assigned(store, 1)
    granted = await given(store, node, board)
    await finish(store, [], [a_start(granted[0], expires_s=60.0)])
    counts = {(it.tenant, it.quota): (it.ready, it.running) for it in await store.statistics()}
    assert counts == {("acme", "default"): (0, 1), ("acme", "night"): (3, 2), ("idle", "default"): (0, 0)}


async def test_the_standing_of_an_item_says_what_is_ahead_of_it(store: Store) -> None:
    now = await store.now()
    node, board = await a_node(store, seats=1), Rounds()
    await store.transact(set_limits, [Limit(name=quota_limit("acme", "default"), cap=5)])
    start = now - timedelta(seconds=60)
    first = await assigned(store, 3, start_at=start, end_at=start + timedelta(seconds=3))
    await assigned(store, 2, start_at=start, end_at=start + timedelta(seconds=3), tenant="other")
    await assigned(store, 2, start_at=now + timedelta(hours=1))
    last = await assigned(store, 1, start_at=start, end_at=start + timedelta(seconds=30))
    assert len(await given(store, node, board)) == 1
    standing = await store.standing(last.id)
    (place,) = standing.places
    assert (place.ahead, place.ahead_in_quota) == (4, 2)
    assert place.item.number is not None
    assert (place.queued.state, place.lane.tenant) == (ItemState.READY, "acme")
    assert standing.running == {GLOBAL: 1, quota_limit("acme", "default"): 1}
    assert standing.seated == {node: 1}
    assert [limit.cap for limit in standing.limits] == [5]
    assert [it.id for it in standing.nodes] == [node]
    assert standing.run is not None
    assert standing.run.id == last.id
    assert [it.ahead for it in (await store.standing(first.id)).places] == [0, 1, 2]


async def test_the_standing_of_a_run_that_waits_names_those_before_it(store: Store) -> None:
    definition = a_definition(rule=MANUAL, overlap=queue(3))
    await put(store, [definition], None)
    name = definition.full_name
    runs = []
    for key in "abc":
        runs += (await store.transact(change, [name], Start(name=name, key=key))).runs
    standing = await store.standing(runs[2].id)
    assert standing.before == (runs[0].id, runs[1].id)
    assert standing.places == ()
    assert (await store.standing(runs[0].id)).before == ()
    nobody = await store.standing(999_999)
    assert (nobody.run, nobody.places) == (None, ())


async def test_a_jobs_own_cap_is_counted_by_its_own_items(store: Store) -> None:
    definition = a_definition(rule=MANUAL, cap=1, overlap=allow())
    await put(store, [definition], None)
    name = definition.full_name
    await store.transact(change, [name], Start(name=name, key="a"))
    await assigned(store, 1)
    granted = await given(store, await a_node(store))
    assert len(granted) == 2
    standing = await store.standing(granted[0].run_id)
    assert standing.running[GLOBAL] == 2
    assert [count for limit, count in standing.running.items() if limit.startswith("job:")] == [1]
    await finish(store, [an_end(it) for it in granted if not it.job_id])
