"""Firing loses nothing and doubles nothing, on every store (P1, S2.7, S2.8, S3.41)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from unittest.mock import patch

import pytest

from rota.core.define import Apply, Delete, Pause, Resume
from rota.core.fire import Fire
from rota.model.plan import RunFilter
from rota.model.states import ItemState, JobState, RunState, SkipReason
from rota.ports import Store
from rota.storage.sql.store import SqlStore
from rota.transactions import plan as plan_module
from rota.transactions import tx as tx_module
from rota.transactions.change import change
from rota.transactions.fire import fire
from rota.transactions.rows import Conflict
from tests.contract.conftest import Open
from tests.factories import EVERY_SECOND, SKIP, a_definition, a_due_job, allow, due_jobs, stored


async def test_a_due_slot_becomes_one_run_with_one_ready_item(store: Store) -> None:
    job = await a_due_job(store)
    done = await store.transact(fire, [job.id], Fire())
    assert [run.slot_at for run in done.runs] == [job.next_slot_at]
    run = await store.run(done.runs[0].id)
    assert run is not None
    assert (run.state, run.job_id, run.version) == (RunState.RUNNING, job.id, 1)
    assert [item.state for item in await store.items(run.id)] == [ItemState.READY]
    after = await stored(store, job.definition)
    assert after.next_fire_at is not None
    assert after.next_fire_at > done.now
    assert after.settled_at == job.next_slot_at
    assert after.revision == job.revision


async def test_a_slot_is_never_early(store: Store) -> None:
    job = await a_due_job(store, late_s=-30)
    done = await store.transact(fire, [job.id], Fire())
    assert done.plan.is_empty
    assert await stored(store, job.definition) == job


async def test_two_nodes_fire_a_slot_once(another: Open) -> None:
    first, second = await another(), await another()
    jobs = await due_jobs(first, 40)
    ids = [job.id for job in jobs]
    done = await asyncio.gather(*(store.transact(fire, ids, Fire()) for store in (first, second, first, second)))
    rest = await first.transact(fire, ids, Fire())
    runs = [run for it in (*done, rest) for run in it.runs]
    assert sorted(run.job_id for run in runs) == ids
    assert len({run.id for run in runs}) == len(ids)


async def test_a_batch_fires_many_jobs_at_once(store: Store) -> None:
    jobs = await due_jobs(store, 700)
    done = await store.transact(fire, [job.id for job in jobs], Fire())
    assert len({run.job_id for run in done.runs}) == 700
    listed = await store.runs(RunFilter(limit=1000))
    assert {run.id for run in listed} == {run.id for run in done.runs}


async def test_every_change_of_state_leaves_a_line(store: Store) -> None:
    """P17."""
    job = await a_due_job(store)
    done = await store.transact(fire, [job.id], Fire())
    kinds = [(event.kind, event.actor, event.at) for event in await store.events(run_id=done.runs[0].id)]
    assert kinds == [("run.started", "test", done.now)]
    await store.transact(change, [job.definition.full_name], Pause())
    lines = [event.kind for event in await store.events(job_id=job.id)]
    assert lines[0] == "job.created"
    assert lines[-1] == "job.paused"


async def test_pause_settles_what_is_owed_and_then_owes_nothing(store: Store) -> None:
    job = await a_due_job(store, overlap=allow())
    done = await store.transact(change, [job.definition.full_name], Pause())
    assert [run.slot_at for run in done.runs] == [job.next_slot_at]
    paused = await stored(store, job.definition)
    assert (paused.state, paused.next_fire_at, paused.revision) == (JobState.PAUSED, None, job.revision + 1)
    assert (await store.transact(fire, [job.id], Fire())).plan.is_empty
    again = await store.transact(change, [job.definition.full_name], Pause())
    assert again.plan.is_empty


async def test_resume_starts_after_now(store: Store) -> None:
    job = await a_due_job(store, rule=EVERY_SECOND)
    await store.transact(change, [job.definition.full_name], Pause())
    done = await store.transact(change, [job.definition.full_name], Resume())
    resumed = await stored(store, job.definition)
    assert resumed.state is JobState.ENABLED
    assert resumed.next_fire_at is not None
    assert timedelta(0) < resumed.next_fire_at - done.now <= timedelta(seconds=1)


async def test_apply_settles_under_the_old_version_first(store: Store) -> None:
    job = await a_due_job(store)
    changed = a_definition(job.definition.name, title="changed")
    done = await store.transact(change, [changed.full_name], Apply(definitions=(changed,)))
    assert [(run.slot_at, run.version) for run in done.runs] == [(job.next_slot_at, 1)]
    after = await stored(store, changed)
    assert (after.version, after.revision, after.definition.title) == (2, 2, "changed")
    assert after.next_fire_at is not None
    assert after.next_fire_at > done.now


async def test_apply_twice_changes_nothing(store: Store) -> None:
    definition = a_definition()
    await store.transact(change, [definition.full_name], Apply(definitions=(definition,)))
    before = await stored(store, definition)
    done = await store.transact(change, [definition.full_name], Apply(definitions=(definition,)))
    assert done.plan.is_empty
    assert await stored(store, definition) == before


async def test_two_nodes_apply_a_new_job_once(another: Open) -> None:
    definitions = tuple(a_definition() for _ in range(20))
    names = [it.full_name for it in definitions]
    nodes = [await another() for _ in range(3)]
    done = await asyncio.gather(*(node.transact(change, names, Apply(definitions=definitions)) for node in nodes))
    assert sum(len(it.plan.new_jobs) for it in done) == 20
    assert sorted([(await stored(nodes[0], it)).id for it in definitions]) == list(range(1, 21))


async def test_a_deleted_job_owes_nothing_and_its_name_comes_back_as_the_same_job(store: Store) -> None:
    job = await a_due_job(store)
    await store.transact(change, [job.definition.full_name], Delete())
    gone = await stored(store, job.definition)
    assert (gone.state, gone.next_fire_at) == (JobState.DELETED, None)
    assert (await store.transact(fire, [job.id], Fire())).plan.is_empty
    await store.transact(change, [job.definition.full_name], Apply(definitions=(job.definition,)))
    back = await stored(store, job.definition)
    assert (back.id, back.state, back.revision) == (job.id, JobState.ENABLED, 3)
    assert back.next_slot_at is not None
    assert gone.settled_at is not None
    assert back.next_slot_at > gone.settled_at


async def test_a_fire_that_races_a_pause_keeps_every_slot_once(another: Open) -> None:
    one, two = await another(), await another()
    jobs = await due_jobs(one, 30, overlap=allow(), misfire=SKIP)
    await two.transact(fire, [0], Fire())  # connects: else the other would be done before there is a race
    ids, names = [job.id for job in jobs], [job.definition.full_name for job in jobs]
    fired, paused = await asyncio.gather(one.transact(fire, ids, Fire()), two.transact(change, names, Pause()))
    runs = [*fired.runs, *paused.runs]
    assert len({run.unique for run in runs}) == len(runs)
    for job in jobs:
        after = await stored(one, job.definition)
        assert after.state is JobState.PAUSED
        assert sum(run.job_id == job.id and run.slot_at == job.next_slot_at for run in runs) == 1
    assert (await one.transact(fire, ids, Fire())).plan.is_empty


async def test_missed_slots_are_recorded_and_the_latest_runs(store: Store) -> None:
    job = await a_due_job(store, late_s=300, rule=EVERY_SECOND, backlog_max=10)
    done = await store.transact(fire, [job.id], Fire())
    missed = [run for run in done.runs if run.reason is SkipReason.MISFIRE]
    assert sum(run.slots for run in missed) >= 238
    assert len([run for run in missed if run.slots == 1]) == 10
    (line,) = [run for run in missed if run.slots > 1]
    assert line.slot_at == job.next_slot_at
    assert line.last_slot_at == job.next_slot_at + timedelta(seconds=line.slots - 1)
    listed = await store.runs(RunFilter(job=job.definition.full_name, limit=1000))
    assert sorted(run.unique for run in listed) == sorted(run.unique for run in done.runs)


async def test_a_transaction_that_is_made_again_gives_no_id_twice(another: Open) -> None:
    """A block of ids that was reserved by an attempt that was rolled back belongs to nobody."""
    one, two = await another(), await another()
    if not isinstance(one, SqlStore):
        return  # the memory store has nothing to roll back
    jobs = await due_jobs(one, 6)
    real, failures = plan_module.run_rows, iter([True, False, True, False])

    def sometimes(runs: object) -> object:
        if next(failures, False):
            raise Conflict("made to fail")
        return real(runs)

    done = []
    for store, job in zip([one, two, one, two, one, two], jobs, strict=True):
        with patch.object(plan_module, "run_rows", sometimes):
            done += (await store.transact(fire, [job.id], Fire())).runs
    assert len({run.id for run in done}) == 6
    lines = [event.id for run in done for event in await one.events(run_id=run.id)]
    items = [item.id for run in done for item in await one.items(run.id)]
    assert len(set(lines)) == len(lines) == 6
    assert not set(items) & set(lines)


async def test_run_ids_rise_with_time_whichever_process_makes_the_run(
    another: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tx_module, "RUN_BLOCK_US", 0)  # every block is old at once, as after a second
    stores = [await another(), await another()]
    jobs = await due_jobs(stores[0], 6)
    made = [(await stores[n % 2].transact(fire, [job.id], Fire())).runs[0].id for n, job in enumerate(jobs)]
    assert made == list(range(made[0], made[0] + 6))


async def test_a_process_that_makes_many_runs_takes_few_blocks_of_ids(store: Store) -> None:
    if not isinstance(store, SqlStore) or store._dialect.run_block_max == 1:
        return  # no other process can take an id meanwhile
    jobs = await due_jobs(store, 60)
    with patch.object(type(store._dialect), "reserve", autospec=True, side_effect=type(store._dialect).reserve) as seen:
        for job in jobs:
            await store.transact(fire, [job.id], Fire())
    blocks = [call for call in seen.call_args_list if call.args[2] == "run"]
    assert 1 <= len(blocks) <= 30
