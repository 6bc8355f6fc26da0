"""Ends and starts of attempts: each counts once, while it is the item's current attempt (P7, S2.5, S2.6, S2.20)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.core.start import Start
from rota.model.dispatch import Granted
from rota.model.job import Task
from rota.model.moment import micros
from rota.model.plan import RunFilter
from rota.model.states import Cause, ItemState, Outcome, RunState
from rota.model.work import SuspectedOverlap
from rota.ports import Store
from rota.transactions.cancel import cancel
from rota.transactions.change import change
from rota.transactions.finish import extend, finish, suspect_overlap
from rota.transactions.fire import fire
from rota.transactions.limits import set_limits
from rota.transactions.members import leave
from rota.transactions.round import dispatch
from tests.contract.conftest import Open
from tests.factories import (
    MANUAL,
    a_definition,
    a_due_job,
    a_node,
    a_start,
    an_assignment,
    an_end,
    assigned,
    given,
    put,
    queue,
    stored,
)

RULE = Advance()


async def one_given(store: Store, **fields: Any) -> Granted:
    node = await a_node(store)
    await assigned(store, 1, **fields)
    (granted,) = await given(store, node)
    return granted


async def state_of(store: Store, item_id: int) -> ItemState:
    (loaded,) = (await store.loads([item_id])).items
    return next(item.state for item in await store.items(loaded.run_id) if item.id == item_id)


async def test_an_end_gives_the_item_its_state_and_the_history_its_line(store: Store) -> None:
    granted = await one_given(store)
    (queued,) = await store.queued()
    end = an_end(
        granted,
        node="node-7",
        round=queued.round,
        assigned_us=1_000,
        started_us=2_000,
        code=0,
        result='{"rows": 12}',
        message="all \0 well 🜚",
        log_bytes=77,
    )
    done = await finish(store, [end])
    assert done.stale == frozenset()
    (item,) = await store.items(granted.run_id)
    assert (item.state, item.result) == (ItemState.SUCCEEDED, '{"rows": 12}')
    assert item.message is not None
    assert item.message.endswith("well 🜚")
    assert item.ended_at is not None
    assert micros(item.ended_at) == done.now_us
    assert await store.queued() == ()
    (line,) = await store.attempts(granted.run_id)
    assert (line.item_id, line.attempt, line.node, line.round, line.outcome) == (
        item.id,
        1,
        "node-7",
        queued.round,
        Outcome.SUCCEEDED,
    )
    assert (line.code, line.log_bytes, line.ended_at) == (0, 77, item.ended_at)
    assert [micros(at) for at in (line.assigned_at, line.started_at) if at] == [1_000, 2_000]


async def test_an_attempt_that_may_have_run_beside_a_later_one_is_a_line_of_the_runs_history(store: Store) -> None:
    granted = await one_given(store)
    await store.transact(
        suspect_overlap,
        [SuspectedOverlap(item_id=granted.item_id, attempt=1, run_id=granted.run_id, job_id=0, node="a", late_s=3.25)],
    )
    line = (await store.events(run_id=granted.run_id))[-1]
    assert (line.kind, line.run_id, line.job_id) == ("item.overlap_suspected", granted.run_id, None)
    assert line.data == {"item": granted.item_id, "attempt": 1, "node": "a", "late_s": 3.25}


async def test_the_same_end_twice_counts_once(store: Store) -> None:
    """P7."""
    granted = await one_given(store)
    assert (await finish(store, [an_end(granted, result="1")])).stale == frozenset()
    late = await finish(store, [an_end(granted, "failed", result="2")])
    assert late.stale == {granted.item_id}
    (item,) = await store.items(granted.run_id)
    assert (item.state, item.result) == (ItemState.SUCCEEDED, "1")
    assert len(await store.attempts(granted.run_id)) == 1


async def test_an_end_twice_in_one_batch_counts_once(store: Store) -> None:
    granted = await one_given(store)
    done = await finish(store, [an_end(granted, result="1"), an_end(granted, "failed", result="2")])
    assert done.stale == {granted.item_id}
    (item,) = await store.items(granted.run_id)
    assert (item.state, item.result) == (ItemState.SUCCEEDED, "1")


async def test_an_end_of_another_attempt_changes_nothing(store: Store) -> None:
    """P7: stale tokens, of the past and of the future."""
    granted = await one_given(store)
    await finish(store, [an_end(granted, "failed", "ready", failures=1)])
    late = await finish(store, [an_end(granted)])
    assert late.stale == {granted.item_id}, "it waits for its next attempt"
    (again,) = await given(store, await a_node(store))
    assert (again.attempt, again.failures) == (2, 1)
    assert (await finish(store, [an_end(granted)])).stale == {granted.item_id}
    future = Granted(0, again.item_id, again.run_id, 0, again.lane_id, 3, 0, 0)
    assert (await finish(store, [an_end(future)])).stale == {granted.item_id}
    assert await state_of(store, granted.item_id) is ItemState.ASSIGNED
    assert (await finish(store, [an_end(again)])).stale == frozenset()
    assert await state_of(store, granted.item_id) is ItemState.SUCCEEDED


async def test_an_item_that_nobody_was_given_cannot_end(store: Store) -> None:
    run = await assigned(store, 1)
    (item,) = await store.items(run.id)
    early = Granted(0, item.id, run.id, 0, 1, 0, 0, 0)
    assert (await finish(store, [an_end(early)])).stale == {item.id}
    assert (await finish(store, [an_end(Granted(0, 999_999, run.id, 0, 1, 1, 0, 0))])).stale == {999_999}
    assert await state_of(store, item.id) is ItemState.READY


async def test_a_retry_waits_and_avoids_the_node_that_failed(store: Store) -> None:
    """S2.6; docs/failure.md: on another node when there is one."""
    bad, good = await a_node(store, "a", seats=3), await a_node(store, "b", seats=2)
    board = Rounds()
    await assigned(store, 1)
    (granted,) = await given(store, bad, board)
    failed = an_end(granted, "failed", "ready", node_id=bad, failures=1, delay_s=0.4)
    due_us = (await finish(store, [failed])).now_us + 400_000
    (queued,) = await store.queued()
    assert (queued.state, queued.failures, queued.avoid_id, queued.node_id) == (ItemState.READY, 1, bad, None)
    assert micros(queued.not_before_at) == due_us
    assert (queued.assigned_at, queued.round, queued.attempt) == (None, None, 1)
    async with asyncio.timeout(30):
        while not (later := await dispatch(store, bad, board, batch_max=10)).given:
            assert later.next_us == due_us
            await asyncio.sleep(0.02)
    assert later.now_us >= due_us
    assert later.grants.keys() == {good}
    assert [line.outcome for line in await store.attempts(granted.run_id)] == [Outcome.FAILED]


async def test_a_start_is_written_once_and_only_for_the_current_attempt(store: Store) -> None:
    granted = await one_given(store)
    for _ in range(2):
        assert (await finish(store, [], [a_start(granted, at_us=5_000)])).stale == frozenset()
    (queued,) = await store.queued()
    assert queued.state is ItemState.RUNNING
    assert queued.started_at is not None
    assert micros(queued.started_at) == 5_000
    wrong = Granted(0, granted.item_id, granted.run_id, 0, granted.lane_id, 2, 0, 0)
    assert (await finish(store, [], [a_start(wrong)])).stale == {granted.item_id}
    await finish(store, [an_end(granted)], [a_start(granted, at_us=6_000)])
    assert await state_of(store, granted.item_id) is ItemState.SUCCEEDED
    assert (await finish(store, [], [a_start(granted)])).stale == {granted.item_id}


async def test_many_ends_at_once_are_one_batch(store: Store) -> None:
    node, run = await a_node(store, seats=1000), await assigned(store, 260)
    await store.transact(set_limits, [])
    granted = [it for _ in range(3) for it in await given(store, node)]
    kinds = ["succeeded", "failed", "timed_out", "lost", "cancelled"]
    ends = [an_end(it, kinds[n % 5], result=str(n), message=f"m{n}") for n, it in enumerate(granted)]
    await finish(store, ends)
    items = {item.id: item for item in await store.items(run.id)}
    assert len(ends) == 100
    for end in ends:
        assert (items[end.item_id].state, items[end.item_id].result) == (end.state, end.result)
    assert len(await store.attempts(run.id)) == 100
    assert len(await given(store, node)) == 100


async def test_an_item_finished_from_outside_leaves_its_node_and_keeps_its_seat(store: Store) -> None:
    """S2.16, S2.20; docs/dispatch.md."""
    board, node = Rounds(), await a_node(store, seats=1)
    await store.transact(set_limits, [])
    await assigned(store, 3, handler=None)
    (granted,) = await given(store, node, board)
    start = a_start(granted, expires_s=30.0)
    await finish(store, [], [start])
    (outside,) = await store.queued(item_ids=[granted.item_id])
    assert (outside.state, outside.node_id) == (ItemState.RUNNING, None)
    assert outside.expires_at is not None
    assert micros(outside.expires_at) == start.started_us + 30_000_000  # from the start of the attempt (A2.10)
    (second,) = await given(store, node, board)
    assert second.item_id != granted.item_id, "the node's seat is free"
    assert board.seated == 2, "the limits' seats are not"
    assert await store.queued(expired=True) == ()
    again = await finish(store, [], [a_start(granted, expires_s=99.0)])
    assert again.stale == frozenset()
    assert (await store.queued(item_ids=[granted.item_id]))[0].expires_at == outside.expires_at
    await finish(store, [an_end(granted)])
    assert await state_of(store, granted.item_id) is ItemState.SUCCEEDED
    await store.transact(leave, node)
    assert [it.state for it in await store.queued()] == [ItemState.READY] * 2


async def test_more_time_can_be_given_and_an_end_by_timeout_then_comes_too_late(store: Store) -> None:
    """S2.5."""
    granted = await one_given(store, handler=None)
    assert await store.transact(extend, granted.item_id, 1, 60.0) is None, "its node still has it"
    await finish(store, [], [a_start(granted, expires_s=0.0)])
    async with asyncio.timeout(5):
        while not (expired := await store.queued(expired=True)):
            await asyncio.sleep(0.01)
    assert expired[0].expires_at is not None
    by_timeout = an_end(granted, "timed_out", "ready", failures=1, expired_us=micros(expired[0].expires_at))
    assert await store.transact(extend, granted.item_id, 2, 60.0) is None
    until = await store.transact(extend, granted.item_id, 1, 60.0)
    assert until is not None
    assert until > await store.now()
    assert (await finish(store, [by_timeout])).stale == {granted.item_id}
    assert await store.queued(expired=True) == ()
    on_time = an_end(granted, "timed_out", "ready", failures=1, expired_us=micros(until))
    assert (await finish(store, [on_time])).stale == frozenset()
    (queued,) = await store.queued()
    assert (queued.state, queued.expires_at, queued.attempt) == (ItemState.READY, None, 1)
    assert await store.transact(extend, granted.item_id, 1, 60.0) is None


async def test_notices_are_assigned_with_the_end_that_they_tell_of(store: Store) -> None:
    """S2.5, S2.17."""
    granted = await one_given(store, numbers=["on_fail:1"])
    notice = an_assignment(1, key="on_fail:1", numbers=["on_fail:1"])
    failed = an_end(granted, "failed")
    for _ in range(2):
        await finish(store, [failed], notices={granted.item_id: [notice]})
    told = [run for run in await store.runs(RunFilter()) if run.cause is Cause.NOTICE]
    assert [run.work for run in told] == [notice.work]
    assert [item.number for item in await store.items(told[0].id)] == ["on_fail:1"]
    assert len(await store.queued()) == 1


async def a_run_of_a_job(store: Store, **fields: Any) -> list[Granted]:
    job = await a_due_job(store, **fields)
    await store.transact(fire, [job.id], Fire())
    return await given(store, await a_node(store))


async def test_a_run_of_a_job_ends_with_its_last_item(store: Store) -> None:
    tasks = tuple(Task(name=name, runner="shell", config={"argv": ["true"]}) for name in "ab")
    granted = await a_run_of_a_job(store, tasks=tasks)
    await finish(store, [an_end(granted[0])], rule=RULE)
    run = await store.run(granted[0].run_id)
    assert run is not None
    assert run.state is RunState.RUNNING
    await finish(store, [an_end(granted[1], "failed")], rule=RULE)
    run = await store.run(granted[0].run_id)
    assert run is not None
    assert run.state is RunState.FAILED
    assert run.ended_at is not None
    assert [event.kind for event in await store.events(run_id=run.id)] == ["run.started", "run.failed"]
    assert (await finish(store, [an_end(it) for it in granted], rule=RULE)).stale == {it.item_id for it in granted}


async def test_a_retry_of_a_jobs_item_keeps_the_run_going(store: Store) -> None:
    (granted,) = await a_run_of_a_job(store)
    await finish(store, [an_end(granted, "failed", "ready", failures=1)], rule=RULE)
    run = await store.run(granted.run_id)
    assert run is not None
    assert run.state is RunState.RUNNING
    (again,) = await given(store, await a_node(store))
    await finish(store, [an_end(again)], rule=RULE)
    assert (await store.run(granted.run_id)).state is RunState.SUCCEEDED


async def test_the_end_of_a_run_lets_the_next_one_in_and_its_item_is_dispatched(store: Store) -> None:
    definition = a_definition(rule=MANUAL, overlap=queue(3))
    await put(store, [definition], None)
    name = definition.full_name
    runs = []
    for key in "abc":
        runs += (await store.transact(change, [name], Start(name=name, key=key))).runs
    node, board = await a_node(store), Rounds()
    assert [len(await store.queued()), len(await store.items(runs[1].id))] == [1, 1]
    for run in runs:
        (granted,) = await given(store, node, board)
        assert granted.run_id == run.id
        await finish(store, [an_end(granted)], rule=RULE)
    states = [(await store.run(run.id)).state for run in runs]
    assert states == [RunState.SUCCEEDED] * 3


async def test_items_of_jobs_and_assignments_end_in_one_batch(store: Store) -> None:
    mine = await a_run_of_a_job(store)
    run = await assigned(store, 2)
    loose = await given(store, await a_node(store))
    await finish(store, [an_end(it) for it in (*mine, *loose)], rule=RULE)
    assert (await store.run(mine[0].run_id)).state is RunState.SUCCEEDED
    assert (await store.run(run.id)).state is RunState.SUCCEEDED


async def test_two_that_report_the_last_items_of_a_run_end_it_once(another: Open) -> None:
    """P8: completion is checked under the job's lock."""
    one, two = await another(), await another()
    tasks = tuple(Task(name=name, runner="shell", config={"argv": ["true"]}) for name in "abcd")
    for _ in range(3):
        granted = await a_run_of_a_job(one, tasks=tasks)
        halves = [(one, granted[:2]), (two, granted[2:]), (two, granted[:2]), (one, granted[2:])]
        done = await asyncio.gather(*(finish(store, [an_end(it) for it in part], rule=RULE) for store, part in halves))
        assert sum(len(it.stale) for it in done) == 4
        run = await one.run(granted[0].run_id)
        assert run is not None
        assert run.state is RunState.SUCCEEDED
        kinds = [event.kind for event in await two.events(run_id=run.id)]
        assert kinds == ["run.started", "run.succeeded"]


async def test_ends_that_race_a_cancel_are_one_or_the_other(another: Open) -> None:
    one, two = await another(), await another()
    node = await a_node(one)
    for _ in range(5):
        run = await assigned(one, 4)
        granted = await given(one, node)
        await asyncio.gather(
            finish(one, [an_end(it, "failed", "ready", failures=1) for it in granted]),
            two.transact(cancel, [run.id], rule=RULE),
        )
        await two.transact(cancel, [run.id], rule=RULE)
        for it in await one.queued():
            assert it.cancel_at is not None, "an item that was to be cancelled waits for another attempt"
        await finish(one, [an_end(it, "cancelled") for it in granted])
        assert await one.queued() == ()
        assert (await one.run(run.id)).state is RunState.CANCELLED


async def test_a_cancel_ends_what_waits_and_asks_what_runs(store: Store) -> None:
    board, node = Rounds(), await a_node(store, seats=2)
    run = await assigned(store, 5)
    granted = await given(store, node, board)
    done = await store.transact(cancel, [run.id], rule=RULE)
    assert (done.ended, done.asked) == (3, 2)
    states = [item.state for item in await store.items(run.id)]
    assert states == [ItemState.ASSIGNED] * 2 + [ItemState.CANCELLED] * 3
    assert sorted(await store.asked_to_cancel([it.item_id for it in granted])) == [it.item_id for it in granted]
    again = await store.transact(cancel, [run.id], rule=RULE)
    assert (again.ended, again.asked) == (0, 2)
    assert [event.kind for event in await store.events(run_id=run.id)] == ["run.started", "run.cancel_asked"]
    await finish(store, [an_end(granted[0], "failed", "ready"), an_end(granted[1], "cancelled")])
    assert (await store.run(run.id)).state is RunState.CANCELLED, "what was asked to stop is not tried again"
    assert await given(store, node, board) == []
    assert (board.waiting, board.seated) == (0, 0)
    assert (await store.transact(cancel, [run.id], rule=RULE)).asked == 0


async def test_a_cancel_ends_what_is_finished_from_outside(store: Store) -> None:
    board, node = Rounds(), await a_node(store)
    run = await assigned(store, 1, handler=None)
    (granted,) = await given(store, node, board)
    await finish(store, [], [a_start(granted, expires_s=60.0)])
    assert (await store.transact(cancel, [run.id], rule=RULE)).ended == 1
    assert (await store.run(run.id)).state is RunState.CANCELLED
    assert [line.outcome for line in await store.attempts(run.id)] == [Outcome.CANCELLED]
    assert (await finish(store, [an_end(granted)])).stale == {granted.item_id}
    await given(store, node, board)
    assert board.seated == 0


async def test_an_item_that_was_asked_to_stop_does_not_go_outside(store: Store) -> None:
    node, run = await a_node(store), await assigned(store, 1, handler=None)
    (granted,) = await given(store, node)
    await store.transact(cancel, [run.id], rule=RULE)
    await finish(store, [], [a_start(granted, expires_s=60.0)])
    assert await store.queued() == ()
    assert (await store.run(run.id)).state is RunState.CANCELLED


async def test_a_cancel_of_jobs_runs_ends_those_that_have_not_begun(store: Store) -> None:
    definition = a_definition(rule=MANUAL, overlap=queue(3))
    await put(store, [definition], None)
    name = definition.full_name
    runs = []
    for key in "abc":
        runs += (await store.transact(change, [name], Start(name=name, key=key))).runs
    (granted,) = await given(store, await a_node(store))
    done = await store.transact(cancel, [run.id for run in runs], rule=RULE)
    assert (done.ended, done.asked) == (2, 1)
    states = [(await store.run(run.id)).state for run in runs]
    assert states == [RunState.RUNNING, RunState.CANCELLED, RunState.CANCELLED]
    await finish(store, [an_end(granted, "cancelled")], rule=RULE)
    assert (await store.run(runs[0].id)).state is RunState.CANCELLED
    assert (await stored(store, definition)).state == "enabled"


async def test_definitions_of_versions_are_found(store: Store) -> None:
    job = await a_due_job(store)
    other = await a_due_job(store)
    found = await store.definitions([(job.id, 1), (other.id, 1), (other.id, 7)])
    assert found == {(job.id, 1): job.definition, (other.id, 1): other.definition}


@pytest.mark.parametrize("count", [0, 1])
async def test_an_empty_batch_is_no_news(store: Store, count: int) -> None:
    node = await a_node(store)
    await given(store, node)
    assert (await finish(store, [])).stale == frozenset()
    assert (await store.pulse(node)).arrived_us is None
    items, runs, _ = await store.loads([])
    assert not items
    assert not runs
    assert list(await store.runs_of([])) == []
    assert await store.definitions([]) == {}
    assert await store.asked_to_cancel([]) == ()
    assert await store.queued(item_ids=[]) == ()
