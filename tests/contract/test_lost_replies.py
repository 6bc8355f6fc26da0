"""A commit that was applied, but whose answer never came: asking again finds it done (P1, S2.8).

A proxy between store and server forwards the COMMIT, drops the reply and cuts the connection.
"""

from __future__ import annotations

import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.core.advance import Advance
from rota.core.define import Apply, Delete, Pause, Resume
from rota.core.dispatch.board import Rounds
from rota.core.fire import Fire
from rota.core.start import Start
from rota.errors import CommitUnknown
from rota.model.plan import RunFilter
from rota.model.states import JobState, RunState
from rota.model.work import GLOBAL, Assignment, Limit
from rota.transactions.assign import assign
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.fire import fire
from rota.transactions.limits import set_limits
from rota.transactions.members import join
from rota.transactions.rescue import rescue
from rota.transactions.round import dispatch
from tests.contract.conftest import Line
from tests.factories import (
    a_definition,
    a_due_job,
    a_new_node,
    a_node,
    allow,
    an_assignment,
    an_end,
    assigned,
    given,
    queue,
    stored,
)


async def test_a_firing_whose_reply_is_lost_is_found_done(line: Line) -> None:
    job = await a_due_job(line.truth, overlap=allow())
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await line.store.transact(fire, [job.id], Fire())
    assert line.proxy.swallowed == 1
    assert (await line.store.transact(fire, [job.id], Fire())).plan.is_empty
    runs = await line.truth.runs(RunFilter(job=job.definition.full_name))
    assert [run.slot_at for run in runs] == [job.next_slot_at]


async def test_an_apply_whose_reply_is_lost_is_applied_once_and_says_so(line: Line) -> None:
    definition = a_definition()
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await line.store.transact(change, [definition.full_name], Apply(definitions=(definition,)))
    assert (await line.store.transact(change, [definition.full_name], Apply(definitions=(definition,)))).plan.is_empty
    assert (await stored(line.truth, definition)).version == 1


async def test_a_pause_whose_reply_is_lost_settles_once(line: Line) -> None:
    job = await a_due_job(line.truth, overlap=allow())
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await line.store.transact(change, [job.definition.full_name], Pause())
    assert (await line.store.transact(change, [job.definition.full_name], Pause())).plan.is_empty
    paused = await stored(line.truth, job.definition)
    assert (paused.state, paused.revision) == (JobState.PAUSED, job.revision + 1)
    assert len(await line.truth.runs(RunFilter(job=job.definition.full_name))) == 1


@pytest.mark.parametrize("rule", [Resume(), Delete()])
async def test_a_resume_or_delete_whose_reply_is_lost_happens_once(line: Line, rule: Resume | Delete) -> None:
    job = await a_due_job(line.truth)
    await line.truth.transact(change, [job.definition.full_name], Pause())
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await line.store.transact(change, [job.definition.full_name], rule)
    assert (await line.store.transact(change, [job.definition.full_name], rule)).plan.is_empty
    assert (await stored(line.truth, job.definition)).revision == job.revision + 2


async def test_a_trigger_whose_reply_is_lost_starts_one_run(line: Line) -> None:
    job = await a_due_job(line.truth, overlap=allow())
    name = job.definition.full_name
    line.proxy.swallow_commits(1)
    rule = Start(name=name, key="once")
    with pytest.raises(CommitUnknown):
        await line.store.transact(change, [name], rule, known=[(name, "once")])
    again = await line.store.transact(change, [name], rule, known=[(name, "once")])
    assert again.plan.is_empty
    assert [run.id for run in again.runs] == [run.id for run in await line.truth.runs(RunFilter(job=name))]


async def test_the_end_of_a_run_whose_reply_is_lost_releases_one(line: Line) -> None:
    job = await a_due_job(line.truth, overlap=queue(5))
    name = job.definition.full_name
    runs = []
    for key in "abc":
        runs += (await line.truth.transact(change, [name], Start(name=name, key=key), known=[(name, key)])).runs
    (granted,) = await given(line.truth, await a_node(line.truth))
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await finish(line.store, [an_end(granted)], rule=Advance())
    assert (await finish(line.store, [an_end(granted)], rule=Advance())).stale == {granted.item_id}
    states = [(await line.truth.run(run.id)).state for run in runs]
    assert states == [RunState.SUCCEEDED, RunState.RUNNING, RunState.WAITING]


async def test_an_operator_does_not_notice_lost_replies(line: Line) -> None:
    """Control asks again by itself, and says what really happened."""
    control = Control(line.store, SystemClock())
    definition = a_definition(overlap=allow())
    line.proxy.swallow_commits(1)
    assert [it.action for it in await control.jobs.apply([definition])] == ["create"]
    line.proxy.swallow_commits(1)
    (paused,) = await control.jobs.pause([definition.full_name])
    assert paused.state is JobState.PAUSED
    line.proxy.swallow_commits(1)
    run = await control.jobs.trigger(definition.full_name, {})
    assert [it.id for it in await line.truth.runs(RunFilter(job=definition.full_name))] == [run.id]
    assert line.proxy.swallowed == 3


async def without_an_answer(line: Line) -> Assignment:
    """An assignment that was made, but not answered. On PostgreSQL a run id may be taken by a statement of its own, and
    the reply that is lost is then that one's: such an assignment is answered, and another is tried."""
    for _ in range(10):
        await assigned(line.store, 1)  # leaves ids over
        wanted = an_assignment(5)
        line.proxy.swallow_commits(1)
        try:
            await assign(line.store, wanted, quota_must_exist=False)
        except CommitUnknown:
            return wanted
    raise AssertionError("void: no assignment remained without an answer")


async def test_an_assignment_whose_reply_is_lost_is_made_once(line: Line) -> None:
    wanted = await without_an_answer(line)
    before = {it.run_id for it in await line.truth.queued()}
    again = await assign(line.store, wanted, quota_must_exist=False)
    assert again.id in before
    assert len(await line.truth.items(again.id)) == 5
    assert {it.run_id for it in await line.truth.queued()} == before


async def test_a_round_whose_reply_is_lost_gives_nothing_twice(line: Line) -> None:
    node, board = await a_node(line.truth), Rounds()
    await line.truth.transact(set_limits, [Limit(name=GLOBAL, cap=3)])
    await assigned(line.truth, 10)
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await dispatch(line.store, node, board, batch_max=2)
    assert board.epoch is None
    again = await dispatch(line.store, node, board, batch_max=10)
    assert (again.took_over, again.given) == (True, 1), "the cap counts what was given without an answer"
    grants = await line.truth.granted(node, 0)
    items = [it.item_id for grant in grants for it in grant.items]
    assert len(items) == len(set(items)) == 3
    assert {it.attempt for it in await line.truth.queued(item_ids=items)} == {1}


async def test_ends_whose_reply_is_lost_count_once(line: Line) -> None:
    job = await a_due_job(line.truth)
    await line.truth.transact(fire, [job.id], Fire())
    await assigned(line.truth, 2)
    granted = await given(line.truth, await a_node(line.truth))
    ends = [an_end(it) for it in granted]
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await finish(line.store, ends, rule=Advance())
    done = await finish(line.store, ends, rule=Advance())
    assert done.stale == {it.item_id for it in granted}
    for run_id in {it.run_id for it in granted}:
        assert (await line.truth.run(run_id)).state is RunState.SUCCEEDED
        kinds = [event.kind for event in await line.truth.events(run_id=run_id)]
        assert kinds.count("run.started") == 1
        assert kinds.count("run.succeeded") <= 1
    assert sum([len(await line.truth.attempts(it)) for it in {end.run_id for end in ends}]) == 3


async def test_ends_of_assignments_whose_reply_is_lost_count_once(line: Line) -> None:
    """Nothing but final ends of assigned items: PostgreSQL gets them in one statement."""
    run = await assigned(line.store, 3)  # leaves ids over, so that the next commit is that of the ends
    granted = await given(line.truth, await a_node(line.truth))
    ends = [an_end(it) for it in granted]
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await finish(line.store, ends)
    assert line.proxy.swallowed == 1
    done = await finish(line.store, ends)
    assert done.stale == {it.item_id for it in granted}
    assert len(await line.truth.attempts(run.id)) == 3
    assert await line.truth.queued() == ()


async def test_a_rescue_whose_reply_is_lost_happens_once(line: Line) -> None:
    node = await a_node(line.truth)
    await assigned(line.truth, 3)
    granted = await given(line.truth, node)
    await line.truth.renew(node, lease_s=-5.0, busy=0.0)
    ends = [an_end(it, "lost", "ready", losses=1) for it in granted]
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await line.store.transact(rescue, node, 2, ends, rule=Advance(), margin_s=1.0)
    assert await line.store.transact(rescue, node, 2, ends, rule=Advance(), margin_s=1.0)
    assert {(it.losses, it.attempt) for it in await line.truth.queued()} == {(1, 1)}
    assert len(await line.truth.attempts(granted[0].run_id)) == 3


async def test_a_join_whose_reply_is_lost_is_one_node(line: Line) -> None:
    node = a_new_node()
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await line.store.transact(join, node, lease_s=10.0)
    again = await line.store.transact(join, node, lease_s=10.0)
    assert [it.id for it in (await line.truth.nodes()).nodes] == [again.id]
