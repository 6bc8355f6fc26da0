"""Nodes: leases, fences, rescue, drain (S2.7, S2.8, P3, P5, P15; docs/failure.md)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.errors import Refused
from rota.model.cluster import Drain, Role
from rota.model.dispatch import Granted, ItemEnd
from rota.model.node import Node, NodeState
from rota.model.standing import Retention
from rota.model.states import ItemState, Outcome, RunState
from rota.ports import Store
from rota.transactions.assign import close_runs
from rota.transactions.cancel import cancel
from rota.transactions.finish import finish
from rota.transactions.fire import fire
from rota.transactions.members import advertise, drain, join, leave, retire, undrain
from rota.transactions.prune import prune
from rota.transactions.rescue import rescue
from tests.contract.conftest import Open
from tests.factories import a_due_job, a_new_node, a_node, an_end, assigned, given

RULE = Advance()


async def node_of(store: Store, node_id: int, *, gone: bool = False) -> Node:
    return next(it for it in (await store.nodes(gone=gone)).nodes if it.id == node_id)


def lost(granted: Granted, **fields: Any) -> ItemEnd:
    return an_end(granted, "lost", "ready", losses=granted.losses + 1, **fields)


async def test_a_node_joins_with_a_lease_and_renews_it(store: Store) -> None:
    wanted = a_new_node("alpha", group="gpu", digests={"a": "b"}, boundary="namespace", version="1")
    before = await store.now()
    joined = await store.transact(join, wanted, lease_s=10.0)
    (node,) = (await store.nodes()).nodes
    as_joined = msgspec.structs.replace(wanted, number=1, lease_s=10.0)
    assert (node.id, node.joined, node.state, node.beat) == (joined.id, as_joined, NodeState.ONLINE, 1)
    assert node.lease_until is not None
    assert before <= node.lease_until - timedelta(seconds=10) <= await store.now()
    assert joined.generation == await store.generation() == 1
    assert await store.renew(joined.id, lease_s=20.0, busy=12.34)
    after = await node_of(store, joined.id)
    assert after.lease_until is not None
    assert (after.beat, after.busy) == (2, 12.34)
    assert after.lease_until - node.lease_until > timedelta(seconds=9)


async def test_a_node_has_the_lowest_free_number_of_its_group_and_keeps_it(store: Store) -> None:
    """The glossary, Group: by name, in order of registration; a fixed one may be asked for."""

    async def joins(name: str, number: int = 0, group: str = "gpu") -> int:
        return (await store.transact(join, a_new_node(name, group=group, number=number), lease_s=10.0)).number

    assert [await joins(name) for name in ("a", "b", "c")] == [1, 2, 3]
    assert await joins("a", group="other") == 1
    assert await joins("b") == 2, "another incarnation of the same name"
    assert await joins("d", 7) == 7
    assert await joins("e") == 4
    with pytest.raises(Refused, match="number 3 of this group is the number of node c"):
        await joins("f", 3)
    assert [it.joined.name for it in (await store.nodes()).nodes if it.joined.name == "f"] == []
    (gone,) = (it for it in (await store.nodes()).nodes if it.joined.name == "c")
    await store.transact(leave, gone.id)
    assert await joins("g") == 5, "the number of one that has left is kept for it"
    assert await joins("f", 3) == 3, "and given to who asks for it"
    assert await joins("c") == 6
    assert await joins("a", 9) == 9
    assert await joins("h") == 1


async def test_a_number_is_not_kept_from_who_asks_for_it_by_a_node_whose_lease_is_over(store: Store) -> None:
    """Nobody else may be there who would give it up."""
    joined = await store.transact(join, a_new_node("dead", number=4), lease_s=100.0)
    with pytest.raises(Refused):
        await store.transact(join, a_new_node("next", number=4), lease_s=10.0)
    await store.renew(joined.id, lease_s=0.0, busy=0.0)
    assert (await store.transact(join, a_new_node("next", number=4), lease_s=10.0)).number == 4


async def test_the_number_of_a_node_that_is_forgotten_is_free(store: Store) -> None:
    for name in ("a", "b"):
        await store.transact(join, a_new_node(name), lease_s=10.0)
    (gone,) = (it for it in (await store.nodes()).nodes if it.joined.name == "a")
    await store.transact(leave, gone.id)
    await store.transact(prune, Retention(age_s=0.0, runs_max=10, history_s=0.0), limit=100)
    assert (await store.transact(join, a_new_node("c"), lease_s=10.0)).number == 1


async def test_joining_twice_as_one_incarnation_is_one_node(store: Store) -> None:
    wanted = a_new_node()
    first = await store.transact(join, wanted, lease_s=10.0)
    assert await store.transact(join, wanted, lease_s=10.0) == first
    assert len((await store.nodes()).nodes) == 1


async def test_a_newer_incarnation_fences_its_namesake_but_does_not_take_its_items(store: Store) -> None:
    """docs/failure.md: else lease + g."""
    old = await a_node(store, "same", seats=5)
    await assigned(store, 2)
    board = Rounds()
    assert len(await given(store, old, board)) == 2
    new = await a_node(store, "same", seats=0)
    assert not await store.renew(old, lease_s=60.0, busy=0.0)
    assert await store.renew(new, lease_s=60.0, busy=0.0)
    assert {it.id for it in (await store.nodes()).nodes} == {old, new}
    assert len(await store.queued(node_id=old)) == 2
    await assigned(store, 1)
    assert await given(store, new, board) == [], "a node that cannot renew is given nothing"
    beat = (await node_of(store, old)).beat
    assert not await store.transact(rescue, old, beat, [], rule=RULE, margin_s=1.0), "its lease is not over"


async def test_two_of_one_name_that_join_at_once_leave_one(another: Open) -> None:
    stores = [await another() for _ in range(3)]
    ids = await asyncio.gather(*(a_node(store, "same") for store in stores))
    renewed = [bool(await store.renew(it, lease_s=60.0, busy=0.0)) for store, it in zip(stores, ids, strict=True)]
    assert sorted(renewed) == [False, False, True]


async def test_a_clean_stop_gives_items_back_at_no_cost(store: Store) -> None:
    """P15."""
    node, board = await a_node(store), Rounds()
    await assigned(store, 3)
    granted = await given(store, node, board)
    await store.transact(leave, node)
    gone = await node_of(store, node, gone=True)
    assert (gone.state, gone.lease_until) == (NodeState.OFFLINE, None)
    assert gone.left_at is not None
    assert (await store.nodes()).nodes == ()
    assert not await store.renew(node, lease_s=10.0, busy=0.0)
    assert {(it.state, it.attempt, it.losses, it.node_id) for it in await store.queued()} == {
        (ItemState.READY, 1, 0, None)
    }
    again = await given(store, await a_node(store))
    assert [(it.item_id, it.attempt) for it in again] == [(it.item_id, 2) for it in granted]
    assert (await finish(store, [an_end(granted[0])])).stale == {granted[0].item_id}
    await store.transact(leave, node)
    assert len(await store.queued(node_id=again[0].position)) == 0
    kinds = [event.kind for event in await store.events() if event.kind.startswith("node.")]
    assert kinds == ["node.joined", "node.offline", "node.joined"]


async def test_an_item_that_was_asked_to_stop_is_not_given_again_when_its_node_leaves(store: Store) -> None:
    """A leaving node gives back what it has; what was cancelled meanwhile is over, and so is its run."""
    node, board = await a_node(store, "alpha"), Rounds()
    job = await a_due_job(store)
    (fired,) = (await store.transact(fire, [job.id], Fire())).runs
    loose = await assigned(store, 2)
    granted = await given(store, node, board)
    assert len(granted) == 3
    await store.transact(cancel, [fired.id, loose.id], rule=RULE)
    await store.transact(leave, node, rule=RULE)
    assert await store.queued() == ()
    await close_runs(store, limit=10)
    for run_id in (fired.id, loose.id):
        run = await store.run(run_id)
        assert run is not None
        assert run.state is RunState.CANCELLED
        attempts = await store.attempts(run_id)
        assert {(it.outcome, it.node) for it in attempts} == {(Outcome.CANCELLED, "alpha")}
    assert await given(store, await a_node(store, "beta")) == []


async def test_a_node_whose_lease_is_over_loses_its_items(store: Store) -> None:
    """P3, P5."""
    node, board = await a_node(store, lease_s=60.0), Rounds()
    run = await assigned(store, 3)
    granted = await given(store, node, board)
    assert await store.renew(node, lease_s=-2.0, busy=0.0)
    seen = await node_of(store, node)
    assert await store.transact(
        rescue, node, seen.beat, [lost(it, node_id=node) for it in granted[:2]], rule=RULE, margin_s=1.0
    )
    assert (await node_of(store, node)).state is NodeState.ONLINE, "it still has an item"
    assert await store.transact(
        rescue, node, seen.beat, [lost(it, node_id=node) for it in granted], rule=RULE, margin_s=1.0
    )
    assert (await node_of(store, node, gone=True)).state is NodeState.DISCONNECTED
    assert not await store.renew(node, lease_s=60.0, busy=0.0)
    queued = await store.queued()
    assert {(it.state, it.losses, it.avoid_id) for it in queued} == {(ItemState.READY, 1, node)}
    assert [line.outcome for line in await store.attempts(run.id)] == [Outcome.LOST] * 3
    assert (await finish(store, [an_end(it) for it in granted])).stale == {it.item_id for it in granted}
    other = await a_node(store)
    assert [(it.attempt, it.losses) for it in await given(store, other)] == [(2, 1)] * 3


async def test_a_rescue_of_a_node_that_lives_changes_nothing(store: Store) -> None:
    node = await a_node(store)
    await assigned(store, 1)
    (granted,) = await given(store, node)
    beat = (await node_of(store, node)).beat
    assert not await store.transact(rescue, node, beat, [lost(granted)], rule=RULE, margin_s=1.0)
    await store.renew(node, lease_s=-0.5, busy=0.0)
    assert not await store.transact(rescue, node, beat + 1, [lost(granted)], rule=RULE, margin_s=5.0), (
        "the margin is not over"
    )
    await store.renew(node, lease_s=-60.0, busy=0.0)
    assert not await store.transact(rescue, node, beat + 1, [lost(granted)], rule=RULE, margin_s=1.0), (
        "it has renewed since"
    )
    assert not await store.transact(rescue, node, beat + 1, [lost(granted)], rule=RULE, margin_s=1.0, seen_gone=True)
    (queued,) = await store.queued()
    assert (queued.state, queued.node_id) == (ItemState.ASSIGNED, node)
    assert await store.attempts(granted.run_id) == ()


async def test_processes_that_were_seen_gone_are_not_waited_for(store: Store) -> None:
    node = await a_node(store)
    await assigned(store, 1)
    (granted,) = await given(store, node)
    assert await store.transact(rescue, node, 1, [lost(granted)], rule=RULE, margin_s=1.0, seen_gone=True)
    assert (await store.nodes()).nodes == ()
    assert await store.transact(rescue, node, 1, [lost(granted)], rule=RULE, margin_s=1.0, seen_gone=True), (
        "already done"
    )
    assert len(await store.attempts(granted.run_id)) == 1


async def test_too_many_losses_end_the_run_of_a_job(store: Store) -> None:
    job = await a_due_job(store)
    await store.transact(fire, [job.id], Fire())
    node = await a_node(store)
    (granted,) = await given(store, node)
    failed = an_end(granted, "lost", "failed", losses=3, message="lost: 3 times in a row")
    assert await store.transact(rescue, node, 1, [failed], rule=RULE, margin_s=1.0, seen_gone=True)
    run = await store.run(granted.run_id)
    assert run is not None
    assert run.state is RunState.FAILED
    assert (await store.items(run.id))[0].message == "lost: 3 times in a row"


async def test_two_rescuers_take_each_item_once(another: Open) -> None:
    one, two = await another(), await another()
    node = await a_node(one)
    await assigned(one, 10)
    granted = await given(one, node)
    await one.renew(node, lease_s=-5.0, busy=0.0)
    ends = [lost(it) for it in granted]
    done = await asyncio.gather(
        *(store.transact(rescue, node, 2, ends, rule=RULE, margin_s=1.0) for store in (one, two, one))
    )
    assert done == [True] * 3
    assert len(await one.attempts(granted[0].run_id)) == 10
    assert {it.losses for it in await one.queued()} == {1}


async def test_a_rescue_that_races_the_ends_takes_what_has_not_ended(another: Open) -> None:
    one, two = await another(), await another()
    for _ in range(5):
        node = await a_node(one)
        run = await assigned(one, 6)
        granted = [it for it in await given(one, node) if it.run_id == run.id]
        await one.renew(node, lease_s=-5.0, busy=0.0)
        finished, _ = await asyncio.gather(
            finish(two, [an_end(it) for it in granted[:3]]),
            one.transact(rescue, node, 2, [lost(it) for it in granted], rule=RULE, margin_s=1.0),
        )
        lines = await one.attempts(run.id)
        assert len(lines) == 6
        done = {it.item_id for it in granted[:3]} - finished.stale
        assert {line.item_id for line in lines if line.outcome is Outcome.SUCCEEDED} == done
        await one.transact(cancel, [run.id], rule=RULE)


async def test_drained_nodes_are_remembered_by_their_names(store: Store) -> None:
    node = await a_node(store, "alpha")
    for _ in range(2):
        await store.transact(drain, [Drain(name=name) for name in ["alpha", "never-seen"]])
    assert (await node_of(store, node)).state is NodeState.DRAINING
    again = await a_node(store, "alpha")
    assert (await node_of(store, again)).state is NodeState.DRAINING
    for _ in range(2):
        await store.transact(undrain, ["alpha"], tuple(Role))
    assert (await node_of(store, again)).state is NodeState.ONLINE
    late = await a_node(store, "never-seen")
    assert (await node_of(store, late)).state is NodeState.DRAINING


async def test_a_node_that_retires_keeps_its_lease(store: Store) -> None:
    node = await a_node(store)
    await store.transact(retire, node)
    await store.transact(retire, 999)
    assert (await node_of(store, node)).state is NodeState.DRAINING
    assert await store.renew(node, lease_s=10.0, busy=0.0)


@pytest.mark.parametrize("node_id", [0, 999_999])
async def test_a_node_that_nobody_knows_can_do_nothing(store: Store, node_id: int) -> None:
    assert not await store.renew(node_id, lease_s=10.0, busy=0.0)
    await store.transact(leave, node_id)
    await store.transact(advertise, node_id, ["x"], {})
    assert (await store.nodes(gone=True)).nodes == ()


async def test_a_run_is_unstarted_until_an_item_of_it_is_given_and_seats_are_counted(store: Store) -> None:
    node_id = await a_node(store, seats=1)
    first, second = await assigned(store, 1), await assigned(store, 1)
    assert await store.unstarted([first.id, second.id]) == {first.id, second.id}
    assert await store.seats_taken() == {}
    (granted,) = await given(store, node_id)
    assert await store.unstarted([first.id, second.id]) == {first.id, second.id} - {granted.run_id}
    assert await store.seats_taken() == {node_id: 1}
    await finish(store, [an_end(granted)], rule=Advance())
    assert granted.run_id not in await store.unstarted([granted.run_id])
    assert await store.unstarted([]) == frozenset()
