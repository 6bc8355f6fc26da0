"""Alarms on every store: a happening is raised once, in the transaction that makes it; deliveries are taken once."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from rota.alarms.channels.channel import CourierSettings
from rota.alarms.channels.courier import ChannelCourier
from rota.alarms.rules import message
from rota.clock import SystemClock
from rota.control import Control
from rota.control.jobs import JobCourier
from rota.core.advance import Advance
from rota.core.define import Delete, Resume
from rota.core.fire import Fire
from rota.core.start import Start
from rota.errors import CommitUnknown, NotFound, Undelivered
from rota.model.alarm import CLUSTER, Alarm, AlarmKind, AlarmRule, Channel, ChannelKind, Settled
from rota.model.job import Job, JobName
from rota.model.plan import RunFilter
from rota.model.standing import Retention
from rota.model.states import JobState
from rota.ports import Store
from rota.transactions.alarms import (
    raise_alarms,
    remove_alarm_rule,
    set_alarm_rule,
    settle_deliveries,
    sort_alarms,
    take_deliveries,
)
from rota.transactions.assign import close_runs
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.fire import fire
from rota.transactions.prune import prune
from tests.contract.conftest import Line, Open
from tests.factories import (
    MANUAL,
    SKIP,
    a_definition,
    a_due_job,
    a_node,
    allow,
    an_end,
    assigned,
    given,
    put,
    stored,
)

MAIL = Channel(kind=ChannelKind.MAIL, to=("ops@example.com",))


async def a_rule(store: Store, name: str = "ops", **fields: Any) -> AlarmRule:
    return await store.transact(set_alarm_rule, AlarmRule(name=name, channel=MAIL, **fields))


def an_alarm(key: str, at: datetime, **fields: Any) -> Alarm:
    return Alarm(**{"key": key, "kind": AlarmKind.HELD_ABOVE, "at": at, "scope": CLUSTER, "text": key, **fields})


async def pending(store: Store, *rules: str, keys: tuple[str, ...] = ("one",)) -> None:
    """Alarms that these rules are to be told of."""
    now = await store.now()
    await store.transact(raise_alarms, [an_alarm(key, now + timedelta(seconds=n)) for n, key in enumerate(keys)])
    new = await store.alarms(unsorted=True)
    await store.transact(sort_alarms, [(it, rules) for it in new])


async def a_failed_run(store: Store, job: Job, key: str, outcome: str = "failed") -> None:
    name = job.definition.full_name
    await store.transact(change, [name], Start(name=name, key=key), known=[(name, key)])
    (granted,) = await given(store, await a_node(store))
    await finish(store, [an_end(granted, outcome, message="exit code 7")], rule=Advance())


async def test_a_rule_lasts_and_is_told_of_what_happens_from_then_on(store: Store) -> None:
    before = await store.now()
    made = await a_rule(store, kinds=(AlarmKind.RUN_FAILED,), merge_s=5.0)
    assert made.since_at is not None
    assert before <= made.since_at <= await store.now()
    changed = await a_rule(store, merge_s=7.0)
    assert (changed.merge_s, changed.kinds, changed.since_at) == (7.0, (), made.since_at)
    assert await store.alarm_rules() == (changed,)
    assert await store.transact(remove_alarm_rule, "ops")
    assert not await store.transact(remove_alarm_rule, "ops")
    assert await store.alarm_rules() == ()


async def test_the_same_happening_is_there_once(another: Open) -> None:
    stores = [await another() for _ in range(3)]
    now = await stores[0].now()
    await asyncio.gather(*(it.transact(raise_alarms, [an_alarm("x", now), an_alarm("y", now)]) for it in stores))
    new = await stores[0].alarms(unsorted=True)
    assert [it.key for it in new] == ["x", "y"]
    await stores[0].transact(sort_alarms, [(it, ()) for it in new])
    await stores[1].transact(raise_alarms, [an_alarm("x", now)])
    assert await stores[0].alarms(unsorted=True) == ()
    assert {it.id for it in await stores[0].alarms()} == {it.id for it in new}


async def test_alarms_are_told_in_the_order_in_which_they_happened(store: Store) -> None:
    await a_rule(store)
    await pending(store, "ops", keys=("one", "two", "three"))
    found = await store.deliveries()
    assert [it.alarm.key for it in found.deliveries] == ["one", "two", "three"]
    assert found.now >= found.deliveries[0].not_before_at
    assert [it.key for it in await store.alarms()] == ["three", "two", "one"]
    assert await store.alarms(unsorted=True) == ()


async def test_sorting_twice_makes_one_delivery(store: Store) -> None:
    await a_rule(store)
    await store.transact(raise_alarms, [an_alarm("x", await store.now())])
    new = [(it, ("ops",)) for it in await store.alarms(unsorted=True)]
    await store.transact(sort_alarms, new)
    await store.transact(sort_alarms, new)
    assert len((await store.deliveries()).deliveries) == 1


async def test_of_many_that_take_a_delivery_at_once_one_gets_it(another: Open) -> None:
    stores = [await another() for _ in range(4)]
    await pending(stores[0], "ops", keys=("one", "two"))
    found = (await stores[0].deliveries()).deliveries
    taken = await asyncio.gather(*(take_deliveries(it, found, lease_s=60.0) for it in stores))
    assert sorted(taken) == [False, False, False, True]
    now = await stores[0].deliveries()
    assert {it.tries for it in now.deliveries} == {1}
    assert all(it.not_before_at > now.now for it in now.deliveries)


async def test_one_that_was_taken_by_another_leaves_the_rest_of_a_message_alone(store: Store) -> None:
    await pending(store, "ops", keys=("one", "two"))
    first, second = (await store.deliveries()).deliveries
    assert await take_deliveries(store, [second], lease_s=60.0)
    assert not await take_deliveries(store, [first, second], lease_s=60.0)
    assert [it.tries for it in (await store.deliveries()).deliveries] == [0, 1]


async def test_what_arrived_is_over_and_what_did_not_is_tried_again(store: Store) -> None:
    await pending(store, "mail", "hook", "gone")
    found = (await store.deliveries()).deliveries
    assert await take_deliveries(store, found, lease_s=60.0)
    by_rule = {it.rule: (it,) for it in found}
    await store.transact(
        settle_deliveries,
        [
            Settled(deliveries=by_rule["mail"], answer="250 OK", arrived=True),
            Settled(deliveries=by_rule["hook"], answer="answered 500", arrived=False, again_s=20.0),
            Settled(deliveries=by_rule["gone"], answer="no such host", arrived=False),
        ],
    )
    left = await store.deliveries()
    (hook,) = left.deliveries
    assert (hook.rule, hook.tries, hook.answer) == ("hook", 1, "answered 500")
    assert timedelta(seconds=15) < hook.not_before_at - left.now <= timedelta(seconds=20)
    told = {it.rule: it for it in (await store.deliveries(pending=False)).deliveries}
    assert [told[name].arrived for name in ("mail", "hook", "gone")] == [True, False, False]
    assert [told[name].ended_at is not None for name in ("mail", "hook", "gone")] == [True, False, True]


async def test_an_answer_that_comes_after_another_took_over_changes_nothing(store: Store) -> None:
    await pending(store, "ops")
    old = (await store.deliveries()).deliveries
    assert await take_deliveries(store, old, lease_s=0.0)
    newer = (await store.deliveries()).deliveries
    assert await take_deliveries(store, newer, lease_s=60.0)
    await store.transact(settle_deliveries, [Settled(deliveries=old, answer="too late", arrived=True)])
    (left,) = (await store.deliveries()).deliveries
    assert (left.tries, left.answer) == (2, "")


async def test_one_rule_with_many_does_not_hide_those_of_others(store: Store) -> None:
    await pending(store, "many", keys=tuple(f"k{n}" for n in range(30)))
    await pending(store, "few", keys=("last",))
    found = (await store.deliveries(limit=10)).deliveries
    assert [it.rule for it in found] == ["few"] + ["many"] * 10


async def test_a_removed_rule_is_told_nothing_more(store: Store) -> None:
    await a_rule(store)
    await pending(store, "ops", "other")
    await store.transact(remove_alarm_rule, "ops")
    assert [it.rule for it in (await store.deliveries()).deliveries] == ["other"]


async def test_a_level_is_open_once_ends_once_and_may_begin_again(store: Store) -> None:
    now = await store.now()
    level = an_alarm("lost:a", now, kind=AlarmKind.COORDINATOR_LOST, is_open=True, text="a lost it")
    for _ in range(2):
        await store.transact(raise_alarms, [level])
    assert [it.key for it in await store.alarms(open_=True)] == ["lost:a"]
    for _ in range(2):
        await store.transact(raise_alarms, [], ["lost:a", "never:begun"])
    assert await store.alarms(open_=True) == ()
    assert [it.kind for it in await store.alarms(unsorted=True)] == [AlarmKind.COORDINATOR_LOST, AlarmKind.RECOVERED]
    over = (await store.alarms(unsorted=True))[1]
    assert (over.text, over.scope, over.data["level"]) == ("over: a lost it", CLUSTER, "coordinator_lost")
    await store.transact(raise_alarms, [level])
    assert [it.key for it in await store.alarms(open_=True)] == ["lost:a"]
    await store.transact(raise_alarms, [], ["lost:a"])
    assert [it.kind for it in await store.alarms()].count(AlarmKind.RECOVERED) == 2


async def test_what_was_never_open_has_no_end(store: Store) -> None:
    await store.transact(raise_alarms, [an_alarm("x", await store.now())])
    await store.transact(raise_alarms, [], ["x"])
    assert [it.key for it in await store.alarms()] == ["x"]


async def test_a_run_that_fails_raises_its_alarm_in_the_same_transaction(store: Store) -> None:
    await a_rule(store)
    job = await a_due_job(store)
    await a_failed_run(store, job, "one")
    await a_failed_run(store, job, "two", "succeeded")
    (alarm,) = await store.alarms(unsorted=True)
    assert (alarm.kind, alarm.job_id) == (AlarmKind.RUN_FAILED, job.id)
    assert alarm.run_id is not None
    assert alarm.key == f"run_failed:{alarm.run_id}"


async def test_without_rules_nothing_is_written(store: Store) -> None:
    job = await a_due_job(store)
    await a_failed_run(store, job, "one")
    assert await store.alarms() == ()


async def test_a_failed_assignment_is_an_alarm_when_it_is_closed(store: Store) -> None:
    await a_rule(store)
    run = await assigned(store, 1)
    node_id = await a_node(store)
    (granted,) = await given(store, node_id)
    await finish(store, [an_end(granted, "failed")])
    await close_runs(store, limit=10)
    await close_runs(store, limit=10)
    (alarm,) = await store.alarms()
    assert (alarm.kind, alarm.run_id, alarm.job_id) == (AlarmKind.RUN_FAILED, run.id, None)


async def test_slots_that_were_missed_are_alarms_and_those_that_overlapped_are_not(store: Store) -> None:
    await a_rule(store)
    job = await a_due_job(store, late_s=3600, misfire=SKIP)
    await store.transact(fire, [job.id], Fire())
    busy = await a_due_job(store)
    name = busy.definition.full_name
    await store.transact(change, [name], Start(name=name, key="first"))
    await store.transact(fire, [busy.id], Fire())
    (alarm,) = await store.alarms()
    assert (alarm.kind, alarm.job_id) == (AlarmKind.MISSED_SLOT, job.id)


async def test_a_job_is_paused_when_so_many_runs_have_failed_in_a_row(store: Store) -> None:
    await a_rule(store)
    job = await put_one(store, pause_after=3)
    for n, outcome in enumerate(["failed", "failed", "succeeded", "failed", "cancelled", "failed"]):
        await a_failed_run(store, job, str(n), outcome)
        assert (await stored(store, job.definition)).state is JobState.ENABLED
    await a_failed_run(store, job, "last")
    paused = await stored(store, job.definition)
    assert (paused.state, paused.next_fire_at) == (JobState.PAUSED, None)
    assert [it.kind for it in await store.events(job_id=job.id)].count("job.paused_by_failures") == 1
    assert [it.kind for it in await store.alarms()].count(AlarmKind.JOB_PAUSED) == 1


async def test_after_a_resume_the_row_begins_anew(store: Store) -> None:
    job = await put_one(store, pause_after=2)
    name = job.definition.full_name
    for key in ("a", "b"):
        await a_failed_run(store, job, key)
    await store.transact(change, [name], Resume())
    await a_failed_run(store, job, "c")
    assert (await stored(store, job.definition)).state is JobState.ENABLED
    await a_failed_run(store, job, "d")
    assert (await stored(store, job.definition)).state is JobState.PAUSED


async def test_failures_that_end_together_are_counted_once_each(store: Store) -> None:
    """Two runs in one batch, reported twice: that is two, not four."""
    job = await put_one(store, pause_after=3, overlap=allow())
    name = job.definition.full_name
    for key in ("a", "b"):
        await store.transact(change, [name], Start(name=name, key=key))
    node_id = await a_node(store)
    ends = [an_end(it, "failed") for it in await given(store, node_id)]
    assert len(ends) == 2
    await finish(store, ends, rule=Advance())
    await finish(store, ends, rule=Advance())
    assert (await stored(store, job.definition)).state is JobState.ENABLED
    await a_failed_run(store, job, "c")
    assert (await stored(store, job.definition)).state is JobState.PAUSED


async def test_old_alarms_are_forgotten_with_their_deliveries_but_open_levels_stay(store: Store) -> None:
    await pending(store, "ops", keys=("old",))
    await store.transact(raise_alarms, [an_alarm("open", await store.now(), is_open=True)])
    await asyncio.sleep(0.01)
    await store.transact(prune, Retention(age_s=3600.0, runs_max=10, history_s=0.0), limit=100)
    assert [it.key for it in await store.alarms()] == ["open"]
    assert (await store.deliveries(pending=False)).deliveries == ()


async def test_alarms_whose_commit_was_not_answered_are_there_once_when_raised_again(line: Line) -> None:
    await a_rule(line.truth)
    level = an_alarm("lost:a", await line.truth.now(), is_open=True)
    for alarms, ended in (([level], ()), ((), ["lost:a"])):
        line.proxy.swallow_commits(1)
        with pytest.raises(CommitUnknown):
            await line.store.transact(raise_alarms, alarms, ended)
        await line.store.transact(raise_alarms, alarms, ended)
    assert line.proxy.swallowed == 2
    assert [it.kind for it in await line.truth.alarms()] == [AlarmKind.RECOVERED, AlarmKind.HELD_ABOVE]


async def test_a_delivery_whose_taking_was_not_answered_is_left_until_its_lease_is_over(line: Line) -> None:
    await pending(line.truth, "ops")
    found = (await line.truth.deliveries()).deliveries
    line.proxy.swallow_commits(1)
    with pytest.raises(CommitUnknown):
        await take_deliveries(line.store, found, lease_s=60.0)
    assert not await take_deliveries(line.store, found, lease_s=60.0)
    (left,) = (await line.truth.deliveries()).deliveries
    assert left.tries == 1


async def put_one(store: Store, **fields: Any) -> Job:
    definition = a_definition(rule=MANUAL, **fields)
    await put(store, [definition], None)
    return await stored(store, definition)


async def test_a_message_starts_one_run_of_the_job_that_its_rule_names(store: Store) -> None:
    control = Control(store, SystemClock())
    with pytest.raises(NotFound, match="there is no job pager"):
        await control.alarms.set("job", "pager")
    await control.jobs.apply([a_definition("pager", rule=MANUAL)])
    rule = await control.alarms.set("job", "pager", kinds=["node_disconnected"])
    told = message(rule.name, [an_alarm("node_disconnected:a", await store.now(), data={"node": "a"})])
    courier = JobCourier(control.jobs, ChannelCourier(CourierSettings(), SystemClock()))
    answers = [await courier.send(rule, told) for _ in range(3)]
    (run,) = await control.runs.find(RunFilter())
    assert answers == [f"run {run.id}"] * 3
    assert run.params == {"alarm": told.shape}
    assert "node_disconnected:a" in str(run.params)
    name = JobName("default", "default", "pager")
    await store.transact(change, [name], Delete())
    with pytest.raises(Undelivered, match="job pager was deleted"):
        await courier.send(rule, message(rule.name, [an_alarm("another", await store.now())]))
