"""Assignments: one run of many items, once per key, numbers unique per tenant (S2.19 to S2.24, S2.32, V2.1, V2.2)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from rota.errors import InvalidInput, Refused
from rota.model.moment import micros, moment
from rota.model.plan import RunFilter
from rota.model.states import Cause, ItemState, RunState
from rota.model.work import ASSIGN_MAX, Limit, quota_limit, spread
from rota.ports import Store
from rota.transactions.assign import assign, close_runs
from rota.transactions.finish import finish
from rota.transactions.limits import set_limits
from tests.contract.conftest import Open
from tests.factories import HANDLER, a_node, an_assignment, an_end, assigned, given


@pytest.mark.parametrize(
    ("start", "end", "count", "wanted"),
    [
        (0, 10_000_000, 4, [2_500_000, 5_000_000, 7_500_000, 10_000_000]),  # V2.1
        (0, 10_000_000, 1, [10_000_000]),  # V2.2
        (7, 7, 3, [7, 7, 7]),  # V2.2: no end given
        (0, 10, 3, [3, 6, 10]),  # whole microseconds
    ],
)
def test_the_points_are_spread_evenly(start: int, end: int, count: int, wanted: list[int]) -> None:
    assert spread(start, end, count) == wanted


async def test_an_assignment_is_one_run_with_ready_items_in_their_order(store: Store) -> None:
    """S2.19, S2.23, S2.24, V2.1."""
    start = (await store.now() + timedelta(hours=1)).replace(microsecond=0)
    wanted = an_assignment(4, start_at=start, end_at=start + timedelta(seconds=10))
    run = await assign(store, wanted, quota_must_exist=False)
    assert (run.job_id, run.cause, run.state, run.due_at) == (0, Cause.ASSIGN, RunState.RUNNING, start)
    assert run.work == wanted.work
    assert await store.run(run.id) == run
    items = await store.items(run.id)
    assert [item.number for item in items] == [task.number for task in wanted.tasks]
    assert [(item.start_by_at - start).total_seconds() for item in items] == [2.5, 5.0, 7.5, 10.0]
    assert {item.not_before_at for item in items} == {start}
    assert {item.state for item in items} == {ItemState.READY}
    assert [item.info for item in items] == [f'{{"place":{n}}}' for n in range(4)]
    lines = [(event.kind, event.data["items"]) for event in await store.events(run_id=run.id)]
    assert lines == [("run.started", 4)]
    assert list(await store.runs_of([run.id])) == [run]


async def test_without_times_all_may_start_now(store: Store) -> None:
    """V2.2: no acceptable start given, so it is the expected one."""
    run = await assigned(store)
    items = await store.items(run.id)
    assert {(item.not_before_at, item.start_by_at) for item in items} == {(run.created_at, run.created_at)}


async def test_the_same_key_assigns_once(store: Store) -> None:
    """S2.19, P16."""
    wanted = an_assignment(5)
    first = await assign(store, wanted, quota_must_exist=False)
    assert await assign(store, wanted, quota_must_exist=False) == first
    assert len(await store.items(first.id)) == 5
    assert len(await store.queued()) == 5
    other = await assign(store, an_assignment(1, key=wanted.key, tenant="other"), quota_must_exist=False)
    assert other.id != first.id, "keys of different tenants never meet"


async def test_the_same_key_at_once_assigns_once(another: Open) -> None:
    stores = [await another() for _ in range(3)]
    wanted = an_assignment(20)
    runs = await asyncio.gather(*(assign(store, wanted, quota_must_exist=False) for store in stores))
    assert len({run.id for run in runs}) == 1
    assert len(await stores[0].queued()) == 20


async def test_a_number_that_is_taken_is_refused_and_nothing_is_changed(store: Store) -> None:
    """S2.32: the external number is unique."""
    await assigned(store, numbers=["one", "two", "three"])
    with pytest.raises(InvalidInput, match="'three', 'two'"):
        await assigned(store, numbers=["zero", "two", "three"])
    assert len(await store.runs(RunFilter())) == 1
    assert len(await store.queued()) == 3
    await assigned(store, numbers=["one"], tenant="other")


async def test_a_number_assigned_twice_at_once_is_taken_once(another: Open) -> None:
    stores = [await another() for _ in range(3)]
    calls = [assigned(store, numbers=[f"only-{n}", "same"]) for n, store in enumerate(stores)]
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert sorted(type(it).__name__ for it in done) == ["InvalidInput", "InvalidInput", "Run"]
    assert len(await stores[0].queued()) == 2


async def test_an_end_before_the_start_is_refused(store: Store) -> None:
    """S2.22, S2.32."""
    now = await store.now()
    with pytest.raises(InvalidInput, match="end_at"):
        await assigned(store, start_at=now, end_at=now - timedelta(seconds=1))
    with pytest.raises(InvalidInput, match="end_at"):
        await assigned(store, end_at=now - timedelta(hours=1))
    assert await store.runs(RunFilter()) == ()


async def test_a_quota_that_was_never_set_is_refused(store: Store) -> None:
    """S2.32: an unknown worker is rejected."""
    wanted = an_assignment(1, quota="night")
    with pytest.raises(Refused, match="night"):
        await assign(store, wanted)
    await store.transact(set_limits, [Limit(name=quota_limit("acme", "night"), cap=3)])
    assert (await assign(store, wanted)).work == wanted.work


async def test_as_many_as_one_call_may_have_are_assigned(store: Store) -> None:
    run = await assigned(store, ASSIGN_MAX)
    node = await a_node(store)
    await store.transact(set_limits, [Limit(name="global", cap=20_000)])
    assert len(await store.items(run.id)) == ASSIGN_MAX
    assert len(await given(store, node, batch_max=50)) == 50


async def test_without_a_handler_the_clients_listener_is_told(store: Store) -> None:
    deaf = await a_node(store, handlers=(HANDLER,))
    await assigned(store, 1, handler=None)
    assert await given(store, deaf) == []
    listens = await a_node(store, handlers=("listener:acme/default/on_start",))
    (granted,) = await given(store, listens)
    assert (await store.queued(item_ids=[granted.item_id]))[0].node_id == listens


async def test_text_of_all_kinds_comes_back(store: Store) -> None:
    wanted = an_assignment(numbers=["ü/'\"\\%s :x", "日本", "🜚"])
    run = await assign(store, wanted, quota_must_exist=False)
    assert [item.number for item in await store.items(run.id)] == [task.number for task in wanted.tasks]


@pytest.mark.parametrize(
    ("outcomes", "state"),
    [
        (["succeeded", "succeeded"], RunState.SUCCEEDED),
        (["succeeded", "failed"], RunState.FAILED),
        (["cancelled", "succeeded"], RunState.CANCELLED),
        (["cancelled", "failed"], RunState.FAILED),
    ],
)
async def test_the_state_of_a_run_is_derived_from_its_items_and_closed_later(
    store: Store, outcomes: list[str], state: RunState
) -> None:
    node, run = await a_node(store), await assigned(store, 2)
    granted = await given(store, node)
    await finish(store, [an_end(granted[0], outcomes[0])])
    assert (await store.run(run.id)).state is RunState.RUNNING
    assert (await close_runs(store, limit=10)).count == 0
    await finish(store, [an_end(granted[1], outcomes[1])])
    derived = await store.run(run.id)
    assert derived is not None
    assert derived.state is state
    assert derived.ended_at == max(item.ended_at for item in await store.items(run.id))
    assert await store.runs(RunFilter(states=(RunState.RUNNING,))) == ()
    assert (await close_runs(store, limit=10)).count == 1
    assert (await close_runs(store, limit=10)).count == 0
    assert await store.run(run.id) == derived
    assert await store.runs(RunFilter(states=(state,))) == (derived,)
    assert (await store.events(run_id=run.id))[-1].kind == f"run.{state}"


async def test_two_nodes_that_close_runs_close_each_once(another: Open) -> None:
    stores = [await another() for _ in range(2)]
    node = await a_node(stores[0])
    for _ in range(10):
        await assigned(stores[0], 1)
    await finish(stores[0], [an_end(it) for it in await given(stores[0], node)])
    closed = await asyncio.gather(*(close_runs(store, limit=100) for store in stores))
    rest = await close_runs(stores[0], limit=100)
    assert sum(it.count for it in closed) + rest.count == 10
    lines = [event.kind for event in await stores[0].events(limit=1000)]
    assert lines.count("run.succeeded") == 10


async def test_runs_are_closed_a_few_at_a_time_and_open_ones_do_not_hold_others_back(store: Store) -> None:
    node = await a_node(store)
    runs = [await assigned(store, 1) for _ in range(6)]
    await finish(store, [an_end(it) for it in await given(store, node) if it.run_id not in {runs[0].id, runs[1].id}])
    first = await close_runs(store, limit=3)
    assert (first.count, first.last_id) == (1, runs[2].id)
    second = await close_runs(store, after_id=runs[2].id, limit=3)
    assert (second.count, second.last_id) == (3, runs[5].id)
    assert (await close_runs(store, after_id=runs[5].id, limit=3)).last_id is None
    assert await store.live_runs("acme") == (runs[0].id, runs[1].id)


async def test_the_live_runs_of_a_tenant_are_known(store: Store) -> None:
    node = await a_node(store)
    runs = [await assigned(store, 1) for _ in range(3)]
    await assigned(store, 1, tenant="acme2")
    await finish(store, [an_end(it) for it in await given(store, node, batch_max=1)])
    assert await store.live_runs("acme") == (runs[1].id, runs[2].id)
    assert await store.live_runs("acme", after_id=runs[1].id) == (runs[2].id,)
    assert await store.live_runs("acme", limit=1) == (runs[1].id,)
    assert await store.live_runs("nobody") == ()


async def test_instants_keep_their_microseconds(store: Store) -> None:
    start = await store.now() + timedelta(microseconds=123_457)
    run = await assigned(store, 1, start_at=start, end_at=start + timedelta(microseconds=1))
    (item,) = await store.items(run.id)
    assert moment(micros(start)) == item.not_before_at
    assert item.start_by_at == start + timedelta(microseconds=1)
