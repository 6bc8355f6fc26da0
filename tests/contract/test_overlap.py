"""Overlap and misfire policies, with their races, on every store (docs/firing.md, P.4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import pairwise

import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.core.advance import Advance
from rota.core.define import Apply, Delete, Pause, Resume
from rota.core.fire import Fire
from rota.core.start import Start
from rota.errors import StoreUnavailable
from rota.model.dispatch import Granted
from rota.model.job import Definition, Job, JobName, Misfire, MisfirePolicy, Overlap, OverlapPolicy
from rota.model.plan import Committed, RunFilter
from rota.model.run import Run
from rota.model.states import ItemState, JobState, RunState, SkipReason
from rota.model.trigger import Delay, Endless, Pace
from rota.ports import Store
from rota.storage.sql import database
from rota.transactions import finish as finish_module
from rota.transactions.cancel import cancel
from rota.transactions.change import change
from rota.transactions.fire import fire
from tests.contract.conftest import Open
from tests.factories import (
    EVERY_SECOND,
    MANUAL,
    REPLACE,
    a_definition,
    a_due_job,
    a_node,
    allow,
    an_end,
    due_jobs,
    given,
    put,
    queue,
    stored,
)


async def start(store: Store, job: Job, key: str, **params: str) -> Run:
    name = job.definition.full_name
    done = await store.transact(change, [name], Start(name=name, key=key, params=dict(params)), known=[(name, key)])
    return done.runs[0]


async def give(store: Store, *runs: Run) -> list[Granted]:
    """Let a round give the items of these runs to a node."""
    granted = await given(store, await a_node(store))
    wanted = {run.id for run in runs}
    assert wanted <= {it.run_id for it in granted}
    return [it for it in granted if it.run_id in wanted]


async def report(store: Store, granted: Sequence[Granted], outcome: str = "succeeded") -> set[int]:
    """Report how items ended that a node was given. Returns those whose end came too late to count."""
    return set((await finish_module.finish(store, [an_end(it, outcome) for it in granted], rule=Advance())).stale)


async def finish(store: Store, run: Run, outcome: str = "succeeded") -> datetime:
    """Let a node execute a run to its end. Returns when that was."""
    assert await report(store, await give(store, run), outcome) == set()
    found = await store.run(run.id)
    assert found is not None
    assert found.state == outcome
    assert found.ended_at is not None
    return found.ended_at


async def state_of(store: Store, run: Run) -> RunState:
    found = await store.run(run.id)
    assert found is not None
    return found.state


async def a_manual_job(store: Store, **fields: object) -> Job:
    definition = a_definition(rule=MANUAL, **fields)
    await put(store, [definition], None)
    return await stored(store, definition)


async def test_forbid_skips_a_run_while_another_is_live(store: Store) -> None:
    job = await a_manual_job(store)
    first = await start(store, job, "1")
    second = await start(store, job, "2")
    assert (second.state, second.reason) == (RunState.SKIPPED, SkipReason.OVERLAP)
    assert await store.items(second.id) == ()
    await finish(store, first)
    third = await start(store, job, "3")
    assert third.state is RunState.RUNNING


async def test_allow_lets_in_as_many_as_it_says(store: Store) -> None:
    job = await a_manual_job(store, overlap=allow(3))
    states = [(await start(store, job, str(n))).state for n in range(5)]
    assert states == [RunState.RUNNING] * 3 + [RunState.SKIPPED] * 2


async def test_a_queue_holds_as_many_as_it_says_and_releases_the_oldest_first(store: Store) -> None:
    job = await a_manual_job(store, overlap=queue(2))
    runs = [await start(store, job, str(n)) for n in range(4)]
    assert [run.state for run in runs] == [RunState.RUNNING, RunState.WAITING, RunState.WAITING, RunState.SKIPPED]
    assert [item.state for item in await store.items(runs[1].id)] == [ItemState.WAITING]
    await finish(store, runs[0])
    assert [await state_of(store, run) for run in runs[1:3]] == [RunState.RUNNING, RunState.WAITING]
    assert [item.state for item in await store.items(runs[1].id)] == [ItemState.READY]
    await finish(store, runs[1], "failed")
    assert await state_of(store, runs[2]) is RunState.RUNNING
    kinds = [event.kind for event in await store.events(run_id=runs[2].id)]
    assert kinds == ["run.waiting", "run.started", "item.ready"]


async def test_an_hourly_run_that_ends_late_is_followed_at_once_or_not(store: Store) -> None:
    """P.4: the 12:00 run ends at 13:10; the 13:00 run starts then where it is queued, else the next is 14:00."""
    for overlap, state in ((queue(1), RunState.WAITING), (Overlap(), RunState.SKIPPED)):
        job = await a_due_job(store, overlap=overlap)
        twelve = await start(store, job, "12:00")
        (thirteen,) = (await store.transact(fire, [job.id], Fire())).runs
        assert thirteen.state is state
        await finish(store, twelve)
        after = RunState.RUNNING if state is RunState.WAITING else RunState.SKIPPED
        assert await state_of(store, thirteen) is after


async def test_the_end_of_a_run_that_races_a_firing_leaves_no_run_waiting_for_nobody(another: Open) -> None:
    one, two = await another(), await another()
    jobs = await due_jobs(one, 15, overlap=queue(1))
    live = [await start(one, job, "first") for job in jobs]
    granted = await give(one, *live)
    fired, stale = await asyncio.gather(one.transact(fire, [job.id for job in jobs], Fire()), report(two, granted))
    assert stale == set()
    fired_later = await one.transact(fire, [job.id for job in jobs], Fire())
    runs = [*fired.runs, *fired_later.runs]
    assert len(runs) == 15
    assert {await state_of(one, run) for run in runs} == {RunState.RUNNING}


async def test_two_triggers_at_once_never_exceed_the_policy(another: Open) -> None:
    stores = [await another() for _ in range(4)]
    job = await a_manual_job(stores[0], overlap=allow(2))
    runs = await asyncio.gather(*(start(stores[n % 4], job, str(n)) for n in range(12)))
    assert sum(run.state is RunState.RUNNING for run in runs) == 2


async def test_the_same_idempotency_key_starts_one_run(another: Open) -> None:
    stores = [await another() for _ in range(3)]
    job = await a_manual_job(stores[0], overlap=allow(100))
    runs = await asyncio.gather(*(start(store, job, "the same") for store in stores))
    assert len({run.id for run in runs}) == 1
    assert len(await stores[0].runs(RunFilter(job=job.definition.full_name))) == 1


async def test_replace_cancels_what_no_node_was_given_at_once(store: Store) -> None:
    job = await a_manual_job(store, overlap=REPLACE)
    first = await start(store, job, "1")
    second = await start(store, job, "2")
    assert await state_of(store, first) is RunState.CANCELLED
    assert [item.state for item in await store.items(first.id)] == [ItemState.CANCELLED]
    assert second.state is RunState.RUNNING


async def test_replace_waits_until_the_processes_of_the_old_run_are_gone(store: Store) -> None:
    job = await a_manual_job(store, overlap=REPLACE)
    first = await start(store, job, "1")
    granted = await give(store, first)
    second = await start(store, job, "2")
    third = await start(store, job, "3")
    old = await store.run(first.id)
    assert old is not None
    assert (old.state, old.cancel_at is not None) == (RunState.RUNNING, True)
    assert [await state_of(store, run) for run in (second, third)] == [RunState.CANCELLED, RunState.WAITING]
    await report(store, granted, "cancelled")
    assert [await state_of(store, run) for run in (first, third)] == [RunState.CANCELLED, RunState.RUNNING]


async def test_replaces_that_race_leave_one_live_run(another: Open) -> None:
    stores = [await another() for _ in range(4)]
    job = await a_manual_job(stores[0], overlap=REPLACE)
    runs = await asyncio.gather(*(start(stores[n % 4], job, str(n)) for n in range(8)))
    states = [await state_of(stores[0], run) for run in runs]
    assert sorted(states) == [RunState.CANCELLED] * 7 + [RunState.RUNNING]


async def test_replace_runs_only_the_newest_of_several_due_slots(store: Store) -> None:
    job = await a_due_job(store, late_s=10, rule=EVERY_SECOND, overlap=REPLACE)
    done = await store.transact(fire, [job.id], Fire())
    assert [run.state for run in done.runs[:-1]] == [RunState.SKIPPED] * (len(done.runs) - 1)
    assert {run.reason for run in done.runs[:-1]} == {SkipReason.OVERLAP}
    assert done.runs[-1].state is RunState.RUNNING


@pytest.mark.parametrize("policy", [OverlapPolicy.FORBID, OverlapPolicy.QUEUE, OverlapPolicy.REPLACE])
async def test_a_key_is_shared_by_jobs(store: Store, policy: OverlapPolicy) -> None:
    overlap = Overlap(policy=policy, key="the database")
    jobs = [await a_manual_job(store, overlap=overlap) for _ in range(2)]
    first, second = [await start(store, job, "1") for job in jobs]
    states = [await state_of(store, run) for run in (first, second)]
    assert (
        states
        == {
            OverlapPolicy.FORBID: [RunState.RUNNING, RunState.SKIPPED],
            OverlapPolicy.QUEUE: [RunState.RUNNING, RunState.WAITING],
            OverlapPolicy.REPLACE: [RunState.CANCELLED, RunState.RUNNING],
        }[policy]
    )
    if policy is OverlapPolicy.QUEUE:
        await finish(store, first)
        assert await state_of(store, second) is RunState.RUNNING


async def test_jobs_that_share_a_key_race_for_one_seat(another: Open) -> None:
    stores = [await another() for _ in range(4)]
    overlap = Overlap(key="one at a time")
    jobs = await due_jobs(stores[0], 12, overlap=overlap)
    await asyncio.gather(*(store.transact(fire, [job.id], Fire()) for store, job in zip(stores * 3, jobs, strict=True)))
    await stores[0].transact(fire, [job.id for job in jobs], Fire())
    runs = [run for job in jobs for run in await stores[0].runs(RunFilter(job=job.definition.full_name))]
    assert len(runs) == 12
    assert sum(run.state is RunState.RUNNING for run in runs) == 1


async def test_one_transaction_with_many_jobs_of_one_key_admits_one(store: Store) -> None:
    jobs = await due_jobs(store, 10, overlap=Overlap(key="one at a time"))
    done = await store.transact(fire, [job.id for job in jobs], Fire())
    assert sorted(run.state for run in done.runs) == [RunState.RUNNING] + [RunState.SKIPPED] * 9


async def test_jobs_that_replace_each_other_in_one_round_leave_one_live_run(store: Store) -> None:
    jobs = await due_jobs(store, 3, overlap=Overlap(policy=OverlapPolicy.REPLACE, key="newest wins"))
    done = await store.transact(fire, [job.id for job in jobs], Fire())
    assert [run.state for run in done.runs] == [RunState.SKIPPED, RunState.SKIPPED, RunState.RUNNING]
    assert {run.reason for run in done.runs[:2]} == {SkipReason.OVERLAP}


async def test_a_key_may_name_a_parameter(store: Store) -> None:
    job = await a_manual_job(store, overlap=Overlap(key="import-${customer}"), params={"customer": "none"})
    states = [(await start(store, job, str(n), customer=who)).state for n, who in enumerate(("a", "b", "a"))]
    assert states == [RunState.RUNNING, RunState.RUNNING, RunState.SKIPPED]


async def test_delete_cancels_what_waits_and_leaves_what_runs(store: Store) -> None:
    job = await a_manual_job(store, overlap=queue(2))
    first, second = [await start(store, job, str(n)) for n in range(2)]
    await store.transact(change, [job.definition.full_name], Delete())
    assert [await state_of(store, run) for run in (first, second)] == [RunState.RUNNING, RunState.CANCELLED]
    await finish(store, first)
    assert [await state_of(store, run) for run in (first, second)] == [RunState.SUCCEEDED, RunState.CANCELLED]


async def test_delete_cancels_what_waits_under_other_keys_too(store: Store) -> None:
    overlap = Overlap(policy=OverlapPolicy.QUEUE, queue_max=5, key="load-${region}")
    job = await a_manual_job(store, overlap=overlap, params={"region": "eu"})
    first, second = [await start(store, job, str(n), region="us") for n in range(2)]
    await Control(store, SystemClock()).jobs.delete([job.definition.full_name])
    assert [await state_of(store, run) for run in (first, second)] == [RunState.RUNNING, RunState.CANCELLED]


async def test_a_run_ends_once(another: Open) -> None:
    one, two = await another(), await another()
    job = await a_manual_job(one, overlap=queue(5))
    runs = [await start(one, job, str(n)) for n in range(3)]
    granted = await give(one, runs[0])
    stale = await asyncio.gather(report(one, granted), report(two, granted, "failed"))
    assert sorted(map(len, stale)) == [0, 1]
    assert await state_of(one, runs[0]) is (RunState.FAILED if stale[0] else RunState.SUCCEEDED)
    assert [await state_of(one, run) for run in runs[1:]] == [RunState.RUNNING, RunState.WAITING]


async def test_a_delay_counts_from_the_end_of_the_last_run(store: Store) -> None:
    job = await a_due_job(store, rule=Delay(delay_s=3600))
    (run,) = (await store.transact(fire, [job.id], Fire())).runs
    assert (await stored(store, job.definition)).next_fire_at is None
    ended_at = await finish(store, run)
    assert (await stored(store, job.definition)).next_fire_at == ended_at + timedelta(hours=1)


async def test_a_delay_survives_pause_and_resume_while_a_run_is_live(store: Store) -> None:
    job = await a_due_job(store, rule=Delay(delay_s=3600))
    (run,) = (await store.transact(fire, [job.id], Fire())).runs
    await store.transact(change, [job.definition.full_name], Pause())
    await store.transact(change, [job.definition.full_name], Resume())
    assert (await stored(store, job.definition)).next_fire_at is None
    await finish(store, run)
    assert (await stored(store, job.definition)).next_fire_at is not None


async def test_a_delayed_job_whose_run_ends_while_paused_starts_again_when_resumed(store: Store) -> None:
    job = await a_due_job(store, rule=Delay(delay_s=3600))
    (run,) = (await store.transact(fire, [job.id], Fire())).runs
    await store.transact(change, [job.definition.full_name], Pause())
    await finish(store, run)
    paused = await stored(store, job.definition)
    assert (paused.state, paused.next_fire_at) == (JobState.PAUSED, None)
    await store.transact(change, [job.definition.full_name], Resume())
    assert (await stored(store, job.definition)).next_fire_at is not None


async def test_a_delayed_job_that_was_skipped_waits_for_the_live_run(store: Store) -> None:
    job = await a_due_job(store, rule=Delay(delay_s=3600))
    live = await start(store, job, "by hand")
    (skipped,) = (await store.transact(fire, [job.id], Fire())).runs
    assert skipped.reason is SkipReason.OVERLAP
    assert (await stored(store, job.definition)).next_fire_at is None
    await finish(store, live)
    assert (await stored(store, job.definition)).next_fire_at is not None


async def test_an_endless_job_goes_on_after_each_end(store: Store) -> None:
    """P.8, on the store: the pause that is in force decides."""
    job = await a_due_job(store, rule=Endless(paces=(Pace(pause_s=7200),)))
    (run,) = (await store.transact(fire, [job.id], Fire())).runs
    ended_at = await finish(store, run)
    assert (await stored(store, job.definition)).next_fire_at == ended_at + timedelta(hours=2)


async def missed(store: Store, misfire: Misfire, overlap: Overlap) -> tuple[Job, list[Run], datetime]:
    """A job that was not looked at for 100 s, with a grace of 10 s; its runs, and when it was fired."""
    job = await a_due_job(store, late_s=100, rule=EVERY_SECOND, misfire=misfire, overlap=overlap)
    done = await store.transact(fire, [job.id], Fire())
    return job, list(done.runs), done.now


def slots_until(job: Job, now: datetime) -> int:
    """How many slots of a job that is due every second have come by then."""
    assert job.next_slot_at is not None
    return int((now - job.next_slot_at).total_seconds()) + 1


async def test_misfire_skip_runs_only_what_is_within_its_grace(store: Store) -> None:
    job, runs, now = await missed(store, Misfire(policy=MisfirePolicy.SKIP, grace_s=10), allow())
    late = [run for run in runs if now - run.due_at > timedelta(seconds=10)]
    assert {run.reason for run in late} == {SkipReason.MISFIRE}
    assert all(run.state is RunState.RUNNING for run in runs if run not in late)
    assert sum(run.slots for run in runs) == slots_until(job, now)


async def test_misfire_once_runs_the_latest(store: Store) -> None:
    job = await a_due_job(store, late_s=100, misfire=Misfire(grace_s=10))
    (run,) = (await store.transact(fire, [job.id], Fire())).runs
    assert (run.state, run.slot_at) == (RunState.RUNNING, job.next_slot_at)
    _, runs, now = await missed(store, Misfire(grace_s=10), allow())
    late = [run for run in runs if now - run.due_at > timedelta(seconds=10)]
    assert {run.reason for run in late} == {SkipReason.MISFIRE}, (
        "a later slot is on time, so none of the late ones runs"
    )


async def test_misfire_all_runs_the_newest_of_a_bounded_number_at_a_bounded_rate(store: Store) -> None:
    misfire = Misfire(policy=MisfirePolicy.ALL, grace_s=10, count_max=20, per_s=2)
    _, runs, now = await missed(store, misfire, allow())
    late = [run for run in runs if now - run.due_at > timedelta(seconds=10)]
    caught = [run for run in late if run.state is RunState.RUNNING]
    assert len(caught) == 20
    assert min(run.due_at for run in caught) > max(run.due_at for run in late if run not in caught)
    starts = [(await store.items(run.id))[0].not_before_at for run in caught]
    assert starts == [now + timedelta(seconds=n / 2) for n in range(20)]


async def test_a_backlog_longer_than_one_round_is_settled_in_several(store: Store) -> None:
    job = await a_due_job(store, late_s=5000, rule=EVERY_SECOND, overlap=allow(), backlog_max=0)
    runs: list[Run] = []
    is_settled = False
    while not is_settled:
        done = await store.transact(fire, [job.id], Fire())
        assert done.runs, "it was due"
        runs += done.runs
        is_settled = (await stored(store, job.definition)).next_fire_at > done.now
    assert sum(run.slots for run in runs) == slots_until(job, done.now)
    assert [run.slots for run in runs if run.slots > 1][:2] == [2000, 2000]
    assert all(one.last_slot_at < two.slot_at for one, two in pairwise(runs) if one.last_slot_at)


async def test_a_delayed_job_goes_on_when_another_job_replaces_its_run(store: Store) -> None:
    delayed = await a_due_job(store, rule=Delay(delay_s=3600), overlap=Overlap(policy=OverlapPolicy.QUEUE, key="k"))
    await store.transact(fire, [delayed.id], Fire())
    assert (await stored(store, delayed.definition)).next_fire_at is None
    replacing = await a_manual_job(store, overlap=Overlap(policy=OverlapPolicy.REPLACE, key="k"))
    run = await start(store, replacing, "now")
    assert run.state is RunState.RUNNING
    assert (await stored(store, delayed.definition)).next_fire_at is not None


async def test_runs_that_end_together_let_in_the_one_that_waits_still(store: Store) -> None:
    job = await a_manual_job(store, overlap=queue(5))
    first, second, third = [await start(store, job, str(n)) for n in range(3)]
    await store.transact(cancel, [first.id, second.id], rule=Advance())
    states = [await state_of(store, run) for run in (first, second, third)]
    assert states == [RunState.CANCELLED, RunState.CANCELLED, RunState.RUNNING]


async def test_a_live_run_counts_when_its_job_becomes_one_that_follows_ends(store: Store) -> None:
    job = await a_due_job(store)
    (run,) = (await store.transact(fire, [job.id], Fire())).runs
    changed = a_definition(job.definition.name, rule=Delay(delay_s=3600))
    await store.transact(change, [changed.full_name], Apply(definitions=(changed,)))
    assert (await stored(store, changed)).next_fire_at is None
    ended_at = await finish(store, run)
    assert (await stored(store, changed)).next_fire_at == ended_at + timedelta(hours=1)


async def test_runs_that_are_allowed_do_not_pass_one_that_waits(store: Store) -> None:
    waiting = await a_manual_job(store, overlap=Overlap(policy=OverlapPolicy.QUEUE, key="k"))
    allowed = await a_manual_job(store, overlap=Overlap(policy=OverlapPolicy.ALLOW, live_max=5, key="k"))
    first = await start(store, allowed, "1")
    queued = await start(store, waiting, "2")
    assert (await start(store, allowed, "3")).state is RunState.SKIPPED
    await finish(store, first)
    assert await state_of(store, queued) is RunState.RUNNING


async def test_a_key_that_many_want_at_once_is_no_deadlock(another: Open) -> None:
    stores = [await another() for _ in range(3)]
    jobs = [await a_manual_job(stores[0], overlap=Overlap(key="wanted")) for _ in range(8)]
    runs = await asyncio.gather(*(start(stores[n % 3], job, f"{n}-{job.id}") for n in range(6) for job in jobs))
    assert len(runs) == 48
    assert sum(run.state is RunState.RUNNING for run in runs) == 1


@pytest.mark.timeout(300)
async def test_many_large_definitions_are_changed_at_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE_S", 100.0)  # MariaDB needs seconds for it, and more on a busy machine
    definitions = [a_definition(params={"text": "x" * 60_000}) for _ in range(400)]
    names = [it.full_name for it in definitions]
    await asked_again(store, names, definitions)
    changed = [a_definition(it.name, params=it.params, title="changed") for it in definitions]
    done = await asked_again(store, names, changed)
    assert len(done.plan.jobs) == 400


async def asked_again(store: Store, names: Sequence[JobName], wanted: Sequence[Definition]) -> Committed:
    """A server ends a transaction whose client is silent for 2 s, as one on a busy machine may be: then ask again."""
    for _ in range(5):
        with suppress(StoreUnavailable):
            return await store.transact(change, names, Apply(definitions=tuple(wanted)))
    raise AssertionError("not once in five times")
