"""Rounds on every store: order, caps, one holder at a time, nothing given twice, nothing forgotten (P6; S2.2 to S2.4,
S2.10, S2.13 to S2.15, S2.31, S2.33, V2.3)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta
from itertools import count
from typing import Any

import pytest

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.model.cluster import Drain, Role
from rota.model.dispatch import Granted, Ready, Round, Seated, Target
from rota.model.moment import micros
from rota.model.node import UNABLE
from rota.model.states import ItemState
from rota.model.work import GLOBAL, Limit, Queued, quota_limit
from rota.ports import Store
from rota.transactions.cancel import cancel
from rota.transactions.finish import finish
from rota.transactions.limits import set_limits
from rota.transactions.members import advertise, drain, leave, retire, undrain
from rota.transactions.round import LastRound, dispatch
from tests.contract.conftest import Open
from tests.factories import HANDLER, a_node, a_start, an_end, assigned, given, in_order, together
from tests.oracles.dispatch import State, plain_round


def quota(tenant: str, cap: int | None, **fields: Any) -> Limit:
    return Limit(name=quota_limit(tenant, "default"), cap=cap, **fields)


async def executing(store: Store) -> int:
    return sum(it.state is not ItemState.READY for it in await store.queued(limit=100_000))


async def test_a_round_gives_ready_items_to_a_node_in_the_order_of_their_deadlines(store: Store) -> None:
    """S2.15, S2.33: earliest acceptable start first."""
    now = await store.now()
    late = await assigned(store, 2, start_at=now - timedelta(seconds=9), end_at=now + timedelta(hours=2))
    soon = await assigned(store, 2, start_at=now - timedelta(seconds=9), end_at=now + timedelta(hours=1))
    node = await a_node(store)
    done = await dispatch(store, node, Rounds(), batch_max=3)
    order = [it.item_id for it in in_order(done)]
    soon_ids = [item.id for item in await store.items(soon.id)]
    late_ids = [item.id for item in await store.items(late.id)]
    assert order == [soon_ids[0], *sorted([soon_ids[1], late_ids[0]])]
    assert (done.given, done.more, done.took_over, done.round) == (3, True, True, 1)
    assert [it.position for it in in_order(done)] == [0, 1, 2]
    queued = {it.item_id: it for it in await store.queued()}
    for granted in in_order(done):
        it = queued[granted.item_id]
        assert (it.state, it.node_id, it.attempt, it.round) == (ItemState.ASSIGNED, node, 1, done.round)
        assert it.assigned_at is not None
        assert micros(it.assigned_at) == done.now_us
    assert [item.state for item in await store.items(soon.id)] == [ItemState.ASSIGNED] * 2
    assert await store.granted(node, 0) == (done.grants[node],)
    assert await store.granted(node, done.round) == ()


async def test_an_item_is_not_given_before_its_time(store: Store) -> None:
    """S2.14."""
    board, node = Rounds(), await a_node(store)
    start = await store.now() + timedelta(seconds=3)
    await assigned(store, 1, start_at=start)
    rounds = [await dispatch(store, node, board, batch_max=10)]
    async with asyncio.timeout(30):
        while not rounds[-1].given:
            assert rounds[-1].next_us == micros(start)
            assert (await store.pulse(node)).next_us == micros(start)
            await asyncio.sleep(0.02)
            rounds.append(await dispatch(store, node, board, batch_max=10))
    assert rounds[-1].now_us >= micros(start)
    assert [it.took_over for it in rounds] == [True] + [False] * (len(rounds) - 1)
    assert (await store.pulse(node)).next_us is None


async def test_one_tenant_at_its_cap_leaves_room_for_others(store: Store) -> None:
    """V2.3: at most 100 run, never more than 60 of one tenant."""
    node = await a_node(store, seats=500)
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=100), quota("one", 60), quota("two", 60)])
    await assigned(store, 90, tenant="one")
    await assigned(store, 90, tenant="two")
    board = Rounds()
    granted = [it for _ in range(4) for it in await given(store, node, board, batch_max=40)]
    tenants = Counter(item.tenant for item in (await store.loads([it.item_id for it in granted])).items)
    assert tenants.total() == 100
    assert max(tenants.values()) <= 60
    await finish(store, [an_end(it) for it in granted[:10]])
    assert len(await given(store, node, board)) == 10
    assert await executing(store) == 100


async def test_the_global_cap_is_a_hundred_until_somebody_sets_it(store: Store) -> None:
    """S2.18, S2.25."""
    node = await a_node(store, seats=500)
    await assigned(store, 150)
    assert len(await given(store, node)) == 100


async def test_a_full_node_is_given_nothing(store: Store) -> None:
    small, big = await a_node(store, seats=2), await a_node(store, seats=5)
    await assigned(store, 20)
    done = await dispatch(store, small, Rounds(), batch_max=100)
    assert {node: len(grant.items) for node, grant in done.grants.items()} == {small: 2, big: 5}
    assert sorted(it.position for it in in_order(done)) == list(range(7))


async def test_a_round_without_news_writes_nothing(store: Store) -> None:
    board, node = Rounds(), await a_node(store)
    await assigned(store, 1)
    first = await dispatch(store, node, board, batch_max=10)
    again = await dispatch(store, node, board, batch_max=10)
    assert (again.round, again.given, again.arrivals, again.took_over) == (first.round, 0, 0, False)
    pulse = await store.pulse(node)
    assert (pulse.holder, pulse.arrived_us, pulse.granted) == (node, None, first.round)


async def test_what_arrives_is_seen_by_the_pulse_and_taken_by_the_next_round(store: Store) -> None:
    board, node = Rounds(), await a_node(store)
    await dispatch(store, node, board, batch_max=10)
    assert (await store.pulse(node)).arrived_us is None
    await assigned(store, 2)
    pulse = await store.pulse(node)
    assert pulse.arrived_us is not None
    assert pulse.arrived_us <= pulse.now_us
    done = await dispatch(store, node, board, batch_max=10)
    assert (done.took_over, done.arrivals, done.given) == (False, 1, 2)


async def test_who_wants_to_step_in_leaves_it_if_the_holder_goes_on_meanwhile(store: Store) -> None:
    """Else two nodes that both have something to wait for would rebuild their boards for ever, round by round."""
    holder, other = await a_node(store), await a_node(store)
    board, others = Rounds(), Rounds()
    await assigned(store, 2)
    await dispatch(store, holder, board, batch_max=10)
    seen = await store.pulse(other)
    await assigned(store, 3)
    await dispatch(store, holder, board, batch_max=10)
    await assigned(store, 4)
    left = await dispatch(store, other, others, batch_max=10, last=LastRound(seen.holder, seen.round))
    assert (left.given, left.took_over, others.epoch) == (0, False, None)
    pulse = await store.pulse(other)
    assert (pulse.holder, pulse.round, pulse.arrived_us is None) == (holder, board.round, False)
    assert (await dispatch(store, holder, board, batch_max=10)).given == 4


async def test_who_has_lost_the_rounds_does_not_take_them_back(store: Store) -> None:
    was, now = await a_node(store), await a_node(store)
    board, newer = Rounds(), Rounds()
    await dispatch(store, was, board, batch_max=10)
    last = LastRound(was, board.round)
    seen = await store.pulse(now)
    taken = await dispatch(store, now, newer, batch_max=10, last=LastRound(seen.holder, seen.round))
    assert taken.took_over
    await assigned(store, 2)
    assert (await dispatch(store, was, board, batch_max=10, last=last)).given == 0
    assert board.epoch is None
    assert (await store.pulse(was)).holder == now
    given = await dispatch(store, now, newer, batch_max=10, last=LastRound(now, newer.round))
    assert (given.given, given.took_over) == (2, False)


async def test_the_rounds_of_who_has_gone_are_taken_by_the_first_of_two(store: Store) -> None:
    first, second = await a_node(store), await a_node(store)
    await assigned(store, 2)
    seen = await store.pulse(first)
    last = LastRound(seen.holder, seen.round)
    assert last.holder is None
    assert (await dispatch(store, first, Rounds(), batch_max=10, last=last)).given == 2
    assert (await dispatch(store, second, Rounds(), batch_max=10, last=last)).given == 0
    assert (await store.pulse(second)).holder == first


async def test_another_node_takes_over_and_knows_everything(another: Open) -> None:
    one, two = await another(), await another()
    first, second = await a_node(one), await a_node(two)
    await one.transact(set_limits, [quota("acme", 3)])
    await assigned(one, 10)
    boards = {first: Rounds(), second: Rounds()}
    mine = await dispatch(one, first, boards[first], batch_max=2)
    theirs = await dispatch(two, second, boards[second], batch_max=10)
    assert (mine.given, theirs.given) == (2, 1), "the cap counts what the other gave"
    assert theirs.took_over
    assert (await one.pulse(first)).holder == second
    await finish(one, [an_end(in_order(mine)[0])])
    back = await dispatch(one, first, boards[first], batch_max=10)
    assert (back.took_over, back.given) == (True, 1)
    assert await executing(one) == 3


async def test_a_cap_that_falls_below_what_runs_stops_new_starts_only(store: Store) -> None:
    board, node = Rounds(), await a_node(store)
    await store.transact(set_limits, [quota("acme", 5)])
    await assigned(store, 20)
    granted = await given(store, node, board)
    await store.transact(set_limits, [quota("acme", 2)])
    assert await given(store, node, board) == []
    assert await executing(store) == 5
    await finish(store, [an_end(it) for it in granted[:4]])
    assert len(await given(store, node, board)) == 1
    await store.transact(set_limits, [quota("acme", 4)])
    assert len(await given(store, node, board)) == 2


async def test_a_node_that_can_execute_nothing_is_given_nothing_until_it_can(store: Store) -> None:
    await assigned(store, 1)
    node = await a_node(store, digests={UNABLE: "the disk is full"})
    assert await given(store, node) == []
    await store.transact(advertise, node, (HANDLER,), {})
    assert len(await given(store, node)) == 1


async def test_only_nodes_that_can_are_given_items(store: Store) -> None:
    """S2.14; docs/dispatch.md: group, handler, lease, drain."""
    await assigned(store, 5, group="gpu")
    asking = await a_node(store, seats=0, group="gpu")
    await a_node(store, group="cpu")
    await a_node(store, group="gpu", handlers=("other",))
    await a_node(store, group="gpu", lease_s=-1)
    drained = await a_node(store, "drained", group="gpu")
    retired = await a_node(store, group="gpu")
    await store.transact(drain, [Drain(name="drained")])
    await store.transact(retire, retired)
    board = Rounds()
    assert await given(store, asking, board) == []
    able = await a_node(store, group="gpu", seats=3)
    done = await dispatch(store, asking, board, batch_max=100)
    assert {node: len(grant.items) for node, grant in done.grants.items()} == {able: 3}
    await store.transact(undrain, ["drained"], tuple(Role))
    done = await dispatch(store, asking, board, batch_max=100)
    assert {node: len(grant.items) for node, grant in done.grants.items()} == {drained: 2}


async def test_a_node_that_the_dispatching_one_cannot_reach_is_given_nothing_until_it_can(store: Store) -> None:
    """S1.16, A1.9: what only that node could run waits."""
    await assigned(store, 6)
    asking, other = await a_node(store, seats=2), await a_node(store, seats=8)
    board = Rounds()
    board.unreachable = frozenset({other})
    done = await dispatch(store, asking, board, batch_max=100)
    assert {node: len(grant.items) for node, grant in done.grants.items()} == {asking: 2}
    assert done.next_us is not None, "it is looked at again"
    board.forget()
    assert (await dispatch(store, asking, board, batch_max=100)).grants == {}, "a new board knows it too"
    board.unreachable = frozenset()
    done = await dispatch(store, asking, board, batch_max=100)
    assert {node: len(grant.items) for node, grant in done.grants.items()} == {other: 4}


async def test_a_node_that_learns_a_handler_is_given_what_waited_for_it(store: Store) -> None:
    board, node = Rounds(), await a_node(store, handlers=())
    await assigned(store, 1)
    assert await given(store, node, board) == []
    await store.transact(advertise, node, [HANDLER], {HANDLER: "digest"})
    assert (await store.pulse(node)).arrived_us is not None
    assert len(await given(store, node, board)) == 1
    assert (await store.nodes()).nodes[0].joined.digests == {HANDLER: "digest"}


async def test_an_item_that_was_cancelled_is_dropped_from_the_round(another: Open) -> None:
    """The round has planned it; somebody else takes it out of the queue before the round is written."""
    one, two = await another(), await another()
    node = await a_node(one)
    board = Rounds()
    await given(one, node, board)
    run, other = await assigned(one, 3), await assigned(one, 3)
    stale = await one.items(run.id)
    await two.transact(cancel, [run.id], rule=Advance())
    board.lanes[1] = board.lanes.get(1) or await lane(one, other.id)
    board._wait(Ready(stale[0].id, run.id, 0, 1, 0, 0))
    done = await dispatch(one, node, board, batch_max=100)
    assert sorted(it.item_id for it in in_order(done)) == [item.id for item in await one.items(other.id)]
    assert [it.position for it in in_order(done)] == [0, 1, 2]
    assert board.seated == 3
    assert board.waiting == 0


async def lane(store: Store, run_id: int) -> Any:
    return (await store.standing(run_id)).places[0].lane


async def test_a_failure_leaves_the_board_forgetful(store: Store) -> None:
    node = await a_node(store)
    await assigned(store, 1)

    class Broken(Rounds):
        def plan(self, *_: Any) -> Any:
            raise RuntimeError("made to fail")

    board = Broken()
    with pytest.raises(RuntimeError):
        await dispatch(store, node, board, batch_max=10)
    assert board.epoch is None
    assert await executing(store) == 0
    assert len(await given(store, node)) == 1


async def test_an_item_is_given_once_however_many_ask(another: Open) -> None:
    """Four nodes make rounds at once, each with a board of its own: no cap is exceeded, nothing is given twice (P6)."""
    await race(another, rounds=6)


async def test_what_arrives_while_another_takes_over_is_not_forgotten(another: Open) -> None:
    """Two boards take turns while others assign: in the end everything was given (docs/dispatch.md)."""
    stores = [await another() for _ in range(3)]
    nodes = [await a_node(store, seats=500) for store in stores[:2]]
    await stores[0].transact(set_limits, [Limit(name=GLOBAL, cap=1000)])
    boards = [Rounds(), Rounds()]

    over = asyncio.Event()

    async def assign() -> None:
        while not over.is_set():
            await assigned(stores[2], 1)
            await asyncio.sleep(0)  # a store in memory waits for nothing

    async def take_turns() -> None:
        try:
            for n in range(6):
                await dispatch(stores[n % 2], nodes[n % 2], boards[n % 2], batch_max=100)
        finally:
            over.set()

    await together(assign(), take_turns())
    last = 1  # made the last round: it knows what arrived since
    async with asyncio.timeout(20):
        while (await stores[last].pulse(nodes[last])).arrived_us is not None:
            await dispatch(stores[last], nodes[last], boards[last], batch_max=100)
    left = [it for it in await stores[0].queued(limit=10_000) if it.state is ItemState.READY]
    assert left == [], f"{len(left)} items were forgotten"
    await clear(stores[0])


async def race(another: Open, *, rounds: int) -> None:
    """Whoever decides on an older state than the newest would choose other items than the others, and so too many: new
    items are always more urgent than all before."""
    stores = [await another() for _ in range(4)]
    nodes = [await a_node(store, seats=50) for store in stores]
    caps = {"a": 5, "b": 5, "c": 1}
    await stores[0].transact(
        set_limits, [Limit(name=GLOBAL, cap=8), *(quota(tenant, cap) for tenant, cap in caps.items())]
    )
    now, urgency = await stores[0].now(), count(1)
    seen: Counter[tuple[int, int]] = Counter()

    async def work(store: Store, node: int) -> None:
        board, last = Rounds(), 0
        for n in range(rounds):
            earlier = now - timedelta(seconds=next(urgency))
            await assigned(store, 6, tenant="abc"[n % 3], start_at=earlier)
            await dispatch(store, node, board, batch_max=8)
            grants = await store.granted(node, last)
            mine = [it for grant in grants for it in grant.items]
            last = max([last, *(grant.round for grant in grants)])
            seen.update((it.item_id, it.attempt) for it in mine)
            await check(store)
            await finish(store, [an_end(it) for it in mine], rule=Advance())

    async def check(store: Store) -> None:
        executing = {it.tenant: it.running for it in await store.statistics()}
        assert sum(executing.values()) <= 8, f"too many execute: {executing}"
        assert all(executing[it] <= cap for it, cap in caps.items()), f"a quota is over its cap: {executing}"

    await together(*(work(store, node) for store, node in zip(stores, nodes, strict=True)))
    assert max(seen.values()) == 1, "an attempt was given twice"
    assert len(seen) > 10, "void: hardly anything was given"
    await clear(stores[0])


async def clear(store: Store) -> None:
    """Leave nothing behind that is live."""
    queued = await store.queued(limit=10_000)
    taken = [it for it in queued if it.state is not ItemState.READY]
    ends = [Granted(0, it.item_id, it.run_id, it.job_id, it.lane_id, it.attempt, 0, 0) for it in taken]
    await finish(store, [an_end(it) for it in ends], rule=Advance())
    await store.transact(cancel, sorted({it.run_id for it in queued}), rule=Advance())
    assert await store.queued() == ()
    for node in (await store.nodes()).nodes:
        await store.transact(leave, node.id)


async def test_a_round_on_any_state_gives_what_the_plain_rule_gives(another: Open) -> None:
    """Cached rounds against the shortest form of the rule, on what the store says (docs/dispatch.md)."""
    one, two = await another(), await another()
    chance = random.Random(4)
    nodes = [await a_node(one, seats=chance.randint(2, 6)) for _ in range(2)]
    boards = {nodes[0]: (one, Rounds()), nodes[1]: (two, Rounds())}
    running: list[Granted] = []
    holder = nodes[0]
    total = 0
    for _ in range(50):
        await something(one, chance, running)
        if chance.random() < 0.15:
            holder = chance.choice(nodes)
        store, board = boards[holder]
        before = await look(one)
        batch_max = chance.choice([1, 3, 100])
        done = await dispatch(store, holder, board, batch_max=batch_max)
        actual = [(it.item_id, node_of(done, it)) for it in in_order(done)]
        assert actual == plain(before, done, board, batch_max)
        running += in_order(done)
        total += done.given
    assert total > 40, "void: hardly anything was given"


async def look(store: Store) -> tuple[tuple[Queued, ...], tuple[Limit, ...], list[Target]]:
    nodes = (await store.nodes()).nodes
    targets = [
        Target(it.id, it.joined.name, it.joined.group, it.joined.seats, frozenset(it.joined.handlers), it.busy)
        for it in nodes
    ]
    return await store.queued(limit=10_000), await store.limits(), targets


def plain(before: Any, done: Round, board: Rounds, batch_max: int) -> list[tuple[int, int]]:
    queued, limits, targets = before
    ready = [
        Ready(
            it.item_id,
            it.run_id,
            it.job_id,
            it.lane_id,
            micros(it.start_by_at),
            micros(it.not_before_at),
            it.attempt,
            it.failures,
            it.losses,
            it.avoid_id,
        )
        for it in queued
        if it.state is ItemState.READY
    ]
    seated = [
        Seated(it.item_id, it.lane_id, it.node_id, it.attempt) for it in queued if it.state is not ItemState.READY
    ]
    state = State(done.now_us, ready, seated, board.lanes, limits, targets)
    return [(it.ready.item_id, it.node_id) for it in plain_round(state, batch_max)]


def node_of(done: Round, granted: Granted) -> int:
    return next(node for node, grant in done.grants.items() if granted in grant.items)


async def something(store: Store, chance: random.Random, running: list[Granted]) -> None:
    """One change, of all kinds that there are."""
    now = await store.now()
    match chance.randrange(7):
        case 0 | 1:
            start = now - timedelta(seconds=chance.randint(0, 3))
            end = start + timedelta(seconds=chance.randint(3, 5))
            tenant, resources = chance.choice("ab"), chance.choice([(), ("printer",)])
            await assigned(store, chance.randint(1, 6), tenant=tenant, start_at=start, end_at=end, resources=resources)
        case 2 | 3:
            over = [running.pop() for _ in range(min(len(running), chance.randint(2, 8)))]
            await finish(store, [an_end(it) for it in over])
        case 4:
            again = [running.pop(0) for _ in range(min(len(running), 2))]
            nodes = {it.item_id: it.node_id for it in await store.queued(item_ids=[it.item_id for it in again])}
            ends = [an_end(it, "failed", "ready", failures=it.failures + 1, node_id=nodes[it.item_id]) for it in again]
            await finish(store, ends)
        case 5:
            caps = {"a": chance.choice([1, 3, None]), "b": chance.randint(1, 4)}
            limits = [quota(tenant, cap, weight=chance.randint(1, 3)) for tenant, cap in caps.items()]
            await store.transact(
                set_limits, [*limits, Limit(name="resource:printer", cap=1), Limit(name=GLOBAL, cap=9)]
            )
        case 6:
            outside = running[-1:]
            await finish(store, [], [a_start(it, expires_s=60.0) for it in outside])
