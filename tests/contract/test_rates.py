"""Rates on every store: of starts, in any period, whoever makes the rounds (S2.18; docs/dispatch.md)."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.model.dispatch import Round
from rota.model.job import Misfire, MisfirePolicy
from rota.model.moment import micros
from rota.model.states import RunState
from rota.model.trigger import Every
from rota.model.work import Limit, Rate, quota_limit
from rota.ports import Store
from rota.transactions.cancel import cancel
from rota.transactions.finish import finish
from rota.transactions.fire import fire
from rota.transactions.limits import set_limits
from rota.transactions.round import dispatch
from tests.factories import a_due_job, a_node, a_start, allow, an_end, assigned, given, queue

EVERY_SECOND = Every(every_s=1)


def quota(tenant: str, cap: int | None, **fields: Any) -> Limit:
    return Limit(name=quota_limit(tenant, "default"), cap=cap, **fields)


async def until(store: Store, instant: datetime) -> None:
    """Wait until the store's clock shows more than that."""
    while (now := await store.now()) <= instant:
        await asyncio.sleep((instant - now).total_seconds() + 0.001)


async def next_gift(store: Store, node: int, board: Rounds | None = None) -> Round:
    """Make rounds until one gives something; its clock says whether that was too early."""
    async with asyncio.timeout(30):
        while not (done := await dispatch(store, node, Rounds() if board is None else board, batch_max=1000)).given:
            await asyncio.sleep(0.02)
    return done


async def test_a_rate_is_remembered_by_whoever_makes_the_next_round(store: Store) -> None:
    one, two = await a_node(store), await a_node(store)
    await store.transact(set_limits, [quota("acme", None, rate=Rate(max=3, period_s=3600.0))])
    await assigned(store, 10)
    assert len(await given(store, one, batch_max=2)) == 2
    done = await dispatch(store, two, Rounds(), batch_max=10)
    assert done.given == 1
    assert done.next_us is not None
    (limit,) = await store.limits()
    assert sum(count for _, count in limit.recent) == 3
    await store.transact(set_limits, [quota("acme", 7, rate=Rate(max=3, period_s=3600.0))])
    assert (await store.limits())[0].recent == limit.recent, "what is remembered of starts stays"
    assert await given(store, one) == []


async def test_a_board_from_before_another_nodes_rounds_learns_which_starts_those_remember(store: Store) -> None:
    one, two, board = await a_node(store), await a_node(store), Rounds()
    await store.transact(set_limits, [quota("acme", None, rate=Rate(max=4, period_s=3600.0))])
    await assigned(store, 20)
    assert len(await given(store, one, board, batch_max=1)) == 1
    assert len(await given(store, two, batch_max=2)) == 2
    assert len(await given(store, one, board)) == 1, "four in an hour, whoever gives them"


async def test_a_start_counts_against_a_rate_from_when_it_has_begun(store: Store) -> None:
    """What a node was given and could not begin yet counts for as long as that takes, whoever makes the rounds."""
    one, two, board = await a_node(store), await a_node(store), Rounds()
    await store.transact(set_limits, [quota("acme", None, rate=Rate(max=2, period_s=0.5))])
    await assigned(store, 20)
    slow = await given(store, one, board)
    assert len(slow) == 2
    await until(store, await store.now() + timedelta(seconds=0.6))
    assert await given(store, one, board) == []
    assert await given(store, two) == [], "nor if another node makes the round"
    begun_us = micros(await store.now())
    await finish(store, [an_end(slow[0])], [a_start(slow[1], at_us=begun_us)])
    after = [await next_gift(store, two)]
    if after[0].given == 1:  # the other has begun a little later
        after.append(await next_gift(store, two))
    assert after[0].now_us >= begun_us + 500_000, "the period begins with the start"
    assert sum(it.given for it in after) == 2


async def test_late_slots_that_found_no_seat_meanwhile_start_at_the_rate_of_the_misfire_policy(store: Store) -> None:
    """They are spread when they are fired; when a seat is free again, both are due."""
    misfire = Misfire(policy=MisfirePolicy.ALL, grace_s=3, count_max=2, per_s=0.8)
    job = await a_due_job(store, late_s=8, rule=EVERY_SECOND, misfire=misfire, overlap=allow(20))
    now = (await store.transact(fire, [job.id], Fire())).now
    late = {it.item_id: it for it in await store.queued() if it.start_by_at < now - timedelta(seconds=3)}
    assert len(late) == 2
    await until(store, max(it.not_before_at for it in late.values()))
    node, board = await a_node(store), Rounds()
    (first,) = [it for it in await given(store, node, board) if it.item_id in late]
    begun_us = micros(await store.now())
    await finish(store, [], [a_start(first, at_us=begun_us)])
    second = await next_gift(store, node, board)
    assert second.now_us >= begun_us + 1_250_000
    assert second.given == 1


async def test_only_late_slots_that_waited_their_turn_keep_to_the_rate_of_the_misfire_policy(store: Store) -> None:
    misfire = Misfire(policy=MisfirePolicy.ALL, grace_s=2, per_s=0.7)
    job = await a_due_job(store, late_s=4, rule=EVERY_SECOND, misfire=misfire, overlap=queue())
    runs = (await store.transact(fire, [job.id], Fire())).runs
    assert [run.state for run in runs[1:]] == [RunState.WAITING] * (len(runs) - 1)
    lanes: dict[bool, set[int]] = {True: set(), False: set()}
    for run in runs:
        (it,) = await store.queued()
        assert it.run_id == run.id
        lanes[run.created_at - run.due_at > timedelta(seconds=2)].add(it.lane_id)
        await store.transact(cancel, [run.id], rule=Advance())
    assert len(lanes[True]) == len(lanes[False]) == 1
    assert lanes[True] != lanes[False]
