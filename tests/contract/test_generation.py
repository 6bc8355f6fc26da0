"""The generation of a store: after a restore no id, round or token comes again; what was given before still counts."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.control.assigning import Answer
from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.model.dispatch import Granted
from rota.model.job import Misfire
from rota.model.node import MARGIN_S
from rota.model.standing import Retention
from rota.model.states import ItemState
from rota.model.trigger import Every
from rota.model.work import GLOBAL, Limit, generation_of, token_of
from rota.ports import Store
from rota.storage.sql import receipts
from rota.transactions.finish import finish
from rota.transactions.fire import fire
from rota.transactions.limits import set_limits
from rota.transactions.members import leave, settle
from rota.transactions.prune import prune
from rota.transactions.round import dispatch
from tests.contract.backup import Backup
from tests.contract.conftest import Open
from tests.factories import a_due_job, a_node, a_start, allow, an_end, assigned, in_order


class Outside(NamedTuple):
    """An attempt that its client finishes."""

    uuid: str
    token: int
    granted: Granted


async def begun(store: Store, node: int, board: Rounds) -> list[Outside]:
    done = await dispatch(store, node, board, batch_max=100)
    given = in_order(done)
    await finish(store, [], [a_start(it, expires_s=60) for it in given])
    return [Outside(str(it.item_id), token_of(done.round, it.attempt), it) for it in given]


async def test_after_a_raise_ids_rounds_and_tokens_are_higher_than_ever(store: Store) -> None:
    node, board = await a_node(store), Rounds()
    before_run = await assigned(store, 1, handler=None)
    (before,) = await begun(store, node, board)
    assert await store.raise_generation("a test") == 2 == await store.generation()
    await store.transact(settle, node, [])
    after_run = await assigned(store, 1, handler=None)
    (after,) = await begun(store, node, board)
    assert after.token > before.token
    assert after_run.id >= before_run.id + 1_000_000_000
    assert int(after.uuid) >= int(before.uuid) + 1_000_000_000
    assert await a_node(store) >= node + 1_000_000_000
    assert [it.data["generation"] for it in await store.events() if it.kind == "store.generation_raised"] == [2]


async def test_a_generation_is_raised_once_however_many_notice(store: Store) -> None:
    assert await store.raise_generation("one node", above=1) == 2
    assert await store.raise_generation("another node", above=1) == 2


async def test_an_attempt_that_the_store_still_knows_keeps_its_token(store: Store) -> None:
    """A standby that has everything is promoted: what is under way is finished with the token it was given."""
    node = await a_node(store)
    await assigned(store, 1, handler=None)
    (outside,) = await begun(store, node, Rounds())
    await store.raise_generation("a test")
    control = Control(store, SystemClock())
    assert await control.assignments.finish(outside.uuid, outside.token + (1 << 32)) is Answer.STALE
    assert await control.assignments.finish(outside.uuid, outside.token) is Answer.FINISHED


async def test_a_token_of_a_lost_history_is_stale_although_its_number_comes_again(store: Store) -> None:
    node, board = await a_node(store), Rounds()
    await assigned(store, 1, handler=None)
    backup = await Backup.of(store)
    (lost,) = await begun(store, node, board)
    await backup.restore(store)
    await store.raise_generation("a test")
    await store.transact(settle, node, [])
    (again,) = await begun(store, node, board)
    assert (again.uuid, again.granted.attempt) == (lost.uuid, lost.granted.attempt)
    control = Control(store, SystemClock())
    assert await control.assignments.finish(lost.uuid, lost.token) is Answer.STALE
    assert await control.assignments.finish(again.uuid, again.token) is Answer.FINISHED


async def test_nothing_is_given_until_all_nodes_have_ended_what_the_store_lost(store: Store) -> None:
    """What a node executes unknown to the store counts against the caps all the same (P6)."""
    await store.transact(set_limits, [Limit(name=GLOBAL, cap=1)])
    node, other = await a_node(store, "one"), await a_node(store, "two", seats=0)
    board = Rounds()
    await assigned(store, 2)
    backup = await Backup.of(store)
    (lost,) = in_order(await dispatch(store, node, board, batch_max=2))
    await backup.restore(store)
    assert await store.raise_generation("a test") == await store.renew(node, lease_s=10, busy=0)
    for settles, ended in ((node, [(lost.item_id, lost.attempt)]), (other, [])):
        done = await dispatch(store, node, board, batch_max=2)
        assert (done.given, done.next_us is not None) == (0, True), "it is looked at again by itself"
        await store.transact(settle, settles, ended)
        assert (await store.pulse(node)).arrived_us is not None, "whoever waits is told"
    assert [it.item_id for it in in_order(await dispatch(store, node, board, batch_max=2))] == [lost.item_id]
    (told,) = [it.data for it in await store.events() if it.kind == "store.lost"]
    assert told["begun"] == [f"{lost.item_id}.{lost.attempt}"]


async def test_nodes_that_are_gone_or_never_settle_are_waited_for_no_longer_than_a_lease(store: Store) -> None:
    nodes = [await a_node(store, "gone"), await a_node(store, "old", lease_s=-MARGIN_S), await a_node(store, "here")]
    await assigned(store, 1)
    await store.raise_generation("a test")
    await store.transact(settle, nodes[2], [])
    board = Rounds()
    assert (await dispatch(store, nodes[2], board, batch_max=2)).given == 0
    await store.transact(leave, nodes[0])
    assert (await dispatch(store, nodes[2], board, batch_max=2)).given == 1


async def test_a_node_that_ends_an_attempt_of_a_lost_history_ends_no_other(store: Store) -> None:
    """The store gave the item anew, under the same number: the former attempt neither begins nor ends it."""
    node, board = await a_node(store, seats=4), Rounds()
    for job in (0, (await a_due_job(store)).id):
        await (store.transact(fire, [job], Fire()) if job else assigned(store, 1))
        backup = await Backup.of(store)
        lost = await dispatch(store, node, board, batch_max=1)
        await backup.restore(store)
        await store.raise_generation("a test")
        await store.transact(settle, node, [])
        again = await dispatch(store, node, board, batch_max=1)
        ((former,), (present,)) = in_order(lost), in_order(again)
        assert (former.item_id, former.attempt, former.job_id) == (present.item_id, present.attempt, job)
        late = await finish(store, [], [a_start(former, given_in=lost.round)], rule=Advance())
        assert late.stale == {former.item_id}
        late = await finish(store, [an_end(former, round=lost.round)], rule=Advance())
        assert late.stale == {former.item_id}
        assert [it.state for it in await store.queued()] == [ItemState.ASSIGNED]
        begun = await finish(store, [], [a_start(present, given_in=again.round)], rule=Advance())
        ended = await finish(store, [an_end(present, round=again.round)], rule=Advance())
        assert not begun.stale | ended.stale


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_a_node_notices_that_the_store_lost_its_renewals(another: Open) -> None:
    """Nobody said that a backup was restored. Two nodes notice, and the generation rises once."""
    stores = [await another(), await another()]
    nodes = [await a_node(store, name=f"n{n}") for n, store in enumerate(stores)]
    backup = await Backup.of(stores[0])
    for store, node in zip(stores, nodes, strict=True):
        for _ in range(2):
            assert await store.renew(node, lease_s=10, busy=0)
    generation = await stores[0].generation()
    await backup.restore(stores[0])
    for store, node in zip(stores, nodes, strict=True):
        assert await store.renew(node, lease_s=10, busy=0)
    assert await stores[0].generation() == generation + 1
    assert generation_of((await dispatch(stores[0], nodes[0], Rounds(), batch_max=1)).round) == generation + 1


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_ids_that_were_taken_before_a_restore_are_not_used_after_it(another: Open) -> None:
    """Nodes take ids in blocks. One that was taken in the lost part is taken again by somebody else."""
    store, other = await another(), await another()
    node = await a_node(store)
    backup = await Backup.of(store)
    assert await store.renew(node, lease_s=10, busy=0)
    await assigned(store, 1)
    await backup.restore(store)
    assert await store.renew(node, lease_s=10, busy=0)
    runs = [(await assigned(it, 1)).id for it in (other, store)]
    assert len(set(runs)) == 2


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_a_node_that_joined_in_the_lost_part_of_history_notices(another: Open) -> None:
    store = await another()
    backup = await Backup.of(store)
    node, generation = await a_node(store), await store.generation()
    await backup.restore(store)
    assert not await store.renew(node, lease_s=10, busy=0)
    assert await store.generation() == generation + 1
    assert await a_node(store) > node


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_a_node_names_what_the_store_lost(another: Open) -> None:
    store = await another()
    node, board = await a_node(store), Rounds()
    kept = await assigned(store, 1)
    (before,) = in_order(await dispatch(store, node, board, batch_max=1))
    assert await store.renew(node, lease_s=10, busy=0)
    backup = await Backup.of(store)
    assert await store.renew(node, lease_s=10, busy=0)
    lost = await assigned(store, 1)
    await finish(store, [an_end(before)])
    await backup.restore(store)
    assert await store.renew(node, lease_s=10, busy=0)
    (told,) = [it.data for it in await store.events() if it.kind == "store.lost"]
    assert (told["runs"], told["ends"]) == ([lost.id], [f"{before.item_id}.{before.attempt}"])
    assert [it.id for it in await store.runs_of([kept.id, lost.id])] == [kept.id]
    await store.renew(node, lease_s=10, busy=0)
    assert len([it for it in await store.events() if it.kind == "store.lost"]) == 1


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_an_end_that_was_lost_is_named_although_the_attempt_has_ended_otherwise(another: Open) -> None:
    """Whoever finds the store first may take the node for lost, and write that the same attempt was lost with it."""
    store, other = await another(), await another()
    node = await a_node(store)
    await assigned(store, 1)
    (before,) = in_order(await dispatch(store, node, Rounds(), batch_max=1))
    backup = await Backup.of(store)
    assert await store.renew(node, lease_s=10, busy=0)
    await finish(store, [an_end(before)])
    await backup.restore(store)
    await finish(other, [an_end(before, "lost")])
    assert await store.renew(node, lease_s=10, busy=0)
    (told,) = [it.data for it in await store.events() if it.kind == "store.lost"]
    assert told["ends"] == [f"{before.item_id}.{before.attempt}"]


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_what_another_node_has_pruned_is_not_named_as_lost(
    another: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "ACK_US", 0)  # this test does not last so long
    store, other = await another(), await another()
    node, board = await a_node(store), Rounds()
    job = await a_due_job(store, late_s=2, rule=Every(every_s=1), overlap=allow(), misfire=Misfire(grace_s=60))
    old = (await store.transact(fire, [job.id], Fire())).runs
    await finish(
        store, [an_end(it) for it in in_order(await dispatch(store, node, board, batch_max=9))], rule=Advance()
    )
    kept = await assigned(store, 1)
    assert await store.renew(node, lease_s=10, busy=0)
    backup = await Backup.of(store)
    lost = await assigned(store, 1)
    assert await store.renew(node, lease_s=10, busy=0)
    await backup.restore(store)
    pruned = await other.transact(prune, Retention(age_s=3600.0, runs_max=0, history_s=3600.0), limit=100)
    assert set(pruned.run_ids) == {run.id for run in old}
    assert await store.renew(node, lease_s=10, busy=0)
    (told,) = [it.data for it in await store.events() if it.kind == "store.lost"]
    assert (told["runs"], told["ends"]) == ([lost.id], [])
    assert [it.id for it in await store.runs_of([kept.id])] == [kept.id]
