"""Pause: nothing of a held scope fires, whatever a node has read before; afterwards misfire policies decide."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.core.define import Apply
from rota.core.fire import Fire
from rota.errors import InvalidInput, NotFound
from rota.model.job import Definition, Job, Misfire, MisfirePolicy
from rota.model.plan import RunFilter
from rota.model.states import JobState, RunState, SkipReason
from rota.model.trigger import Every, Rule
from rota.ports import Store
from rota.transactions.change import change, hold, unhold
from rota.transactions.fire import fire
from tests.contract.conftest import Open
from tests.factories import EVERY_SECOND, a_definition, a_due_job, allow, due_jobs, put, stored

ONCE = Misfire(policy=MisfirePolicy.ONCE, grace_s=1.0)
SKIP = Misfire(policy=MisfirePolicy.SKIP, grace_s=1.0)
EVERY_MINUTE = Every(every_s=60.0)


async def pending(store: Store) -> set[int]:
    return {it.job_id for it in (await store.upcoming(within_s=1.0, limit=100)).pending}


async def fired(store: Store) -> int:
    return len(await store.runs(RunFilter(limit=10_000)))


async def test_a_held_job_does_not_fire_though_a_node_has_seen_that_it_is_due(store: Store) -> None:
    job = await a_due_job(store)
    assert await pending(store) == {job.id}
    await hold(store)
    assert await pending(store) == set()
    done = await store.transact(fire, [job.id], Fire())
    assert done.plan.is_empty
    assert await fired(store) == 0
    assert (await store.named([job.definition.full_name]))[0] == job, "nothing of it has changed"
    assert await store.transact(unhold)
    assert await pending(store) == {job.id}
    assert len((await store.transact(fire, [job.id], Fire())).runs) == 1


async def test_a_scope_holds_its_own_jobs_and_no_others(store: Store) -> None:
    own = await a_due_job(store, tenant="acme", project="etl")
    sibling = await a_due_job(store, tenant="acme", project="web")
    namesake = await a_due_job(store, tenant="other", project="etl")
    ids = [own.id, sibling.id, namesake.id]
    await hold(store, "acme", "etl")
    assert await pending(store) == {sibling.id, namesake.id}
    await hold(store, "acme")
    assert await pending(store) == {namesake.id}
    assert {run.job_id for run in (await store.transact(fire, ids, Fire())).runs} == {namesake.id}
    assert await store.transact(unhold, "acme")
    assert not await store.transact(unhold, "acme")
    assert await pending(store) == {sibling.id}
    assert {run.job_id for run in (await store.transact(fire, ids, Fire())).runs} == {sibling.id}
    assert [(it.tenant, it.project) for it in await store.holds()] == [("acme", "etl")]


async def test_a_hold_lasts_and_is_seen_by_others_with_who_and_when(another: Open) -> None:
    first, second = await another(), await another()
    before = await first.now()
    await hold(first, "acme")
    await hold(first, "acme")
    (held,) = await second.holds()
    assert (held.tenant, held.project, held.actor) == ("acme", "", "test")
    assert held.held_at is not None
    assert before - timedelta(seconds=1) <= held.held_at <= await first.now()
    assert [it.kind for it in await second.events()] == ["cluster.paused"]
    assert await second.transact(unhold, "acme")
    assert await first.holds() == ()


async def test_when_a_hold_returns_nothing_fires_any_more(another: Open) -> None:
    """A firing that was under way is waited for."""
    firing, holding = await another(), await another()
    for turn in range(12):
        jobs = await due_jobs(firing, 60, rule=EVERY_SECOND, overlap=allow(10**6))
        under_way = asyncio.ensure_future(firing.transact(fire, [job.id for job in jobs], Fire()))
        await asyncio.sleep(0.002 * turn)
        await hold(holding)
        there = await fired(holding)
        await under_way
        assert await fired(holding) == there
        await holding.transact(unhold)


async def late(store: Store, misfire: Misfire, rule: Rule | None = None) -> Job:
    """A job that was due some minutes ago, on a whole minute."""
    definition = a_definition(rule=rule, misfire=misfire, overlap=allow())
    await put(store, [definition], (await store.now() - timedelta(minutes=3)).replace(second=0, microsecond=0))
    return await stored(store, definition)


async def test_slots_of_the_pause_follow_the_misfire_policy_afterwards(store: Store) -> None:
    await hold(store)
    skips, once = await late(store, SKIP), await late(store, ONCE)
    await store.transact(fire, [skips.id, once.id], Fire())
    assert await fired(store) == 0
    await store.transact(unhold)
    runs = (await store.transact(fire, [skips.id, once.id], Fire())).runs
    found = {run.job_id: (run.state, run.reason) for run in runs}
    assert found == {skips.id: (RunState.SKIPPED, SkipReason.MISFIRE), once.id: (RunState.RUNNING, None)}


async def apply(store: Store, definition: Definition) -> None:
    """As people do, by way of control."""
    await Control(store, SystemClock()).jobs.apply([definition])


async def test_a_change_of_a_held_job_fires_nothing_and_its_slot_is_owed_later(store: Store) -> None:
    job = await late(store, ONCE, EVERY_MINUTE)
    await hold(store)
    titled = msgspec.structs.replace(job.definition, title="new")
    async with asyncio.timeout(20):
        await apply(store, titled)
    assert await fired(store) == 0
    after = await stored(store, titled)
    assert (after.version, after.next_slot_at) == (2, job.next_slot_at)
    await store.transact(unhold)
    await store.transact(fire, [job.id], Fire())
    assert RunState.RUNNING in {run.state for run in await store.runs(RunFilter(limit=100))}


async def test_a_held_job_can_be_paused_deleted_and_triggered(store: Store) -> None:
    control = Control(store, SystemClock())
    jobs = [await late(store, ONCE) for _ in range(3)]
    names = [job.definition.full_name for job in jobs]
    await control.holds.hold()
    async with asyncio.timeout(20):
        assert [it.state for it in await control.jobs.pause([names[0]])] == [JobState.PAUSED]
        assert [it.state for it in await control.jobs.delete([names[1]])] == [JobState.DELETED]
        run = await control.jobs.trigger(names[2], {})
    assert run.state is RunState.WAITING
    assert [it.id for it in await store.runs(RunFilter(limit=100))] == [run.id]
    assert [str(it) for it in await control.holds.on(names[2])] == ["everything"]


async def test_a_new_job_of_a_held_scope_waits(store: Store) -> None:
    await hold(store, "acme")
    definition = a_definition(rule=EVERY_SECOND, tenant="acme", overlap=allow())
    await store.transact(change, [definition.full_name], Apply(definitions=(definition,)))
    job = await stored(store, definition)
    assert job.next_fire_at is not None
    async with asyncio.timeout(20):
        while await store.now() <= job.next_fire_at:
            await asyncio.sleep(0.05)
    assert (await store.transact(fire, [job.id], Fire())).plan.is_empty


async def test_a_scope_that_is_no_name_is_refused(store: Store) -> None:
    control = Control(store, SystemClock())
    with pytest.raises(InvalidInput, match="tenant: the name must be"):
        await control.holds.hold("a b")
    with pytest.raises(InvalidInput, match="project: a project belongs to a tenant"):
        await control.holds.hold("", "etl")
    with pytest.raises(InvalidInput, match="project: the name must be"):
        await control.holds.unhold("acme", "/")
    assert await store.holds() == ()


async def test_a_pause_of_what_nobody_has_is_refused_with_the_name_that_was_meant(store: Store) -> None:
    control = Control(store, SystemClock())
    await put(store, [msgspec.structs.replace(a_definition(), tenant="acme", project="nightly")], None)
    await control.limits.set_quota("globex")
    with pytest.raises(NotFound, match="there is no tenant acmee; did you mean acme"):
        await control.holds.hold("acmee")
    with pytest.raises(NotFound, match="tenant acme has no project nightl; did you mean nightly"):
        await control.holds.hold("acme", "nightl")
    with pytest.raises(NotFound, match="there is no tenant acmee"):
        await control.holds.hold("acmee", "nightly")
    assert await control.holds.all() == ()
    await control.holds.hold("acme")
    await control.holds.hold("acme", "nightly")
    await control.holds.hold("globex")
    assert len(await control.holds.all()) == 3
