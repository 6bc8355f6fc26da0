"""What placement needs of every store: jobs that want an owner, and the offline list by role (A0.14, A0.16, S0.42)."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.core.fire import Fire
from rota.model.cluster import Drain, Role
from rota.model.job import JobName
from rota.model.node import NodeState
from rota.model.plan import JobFilter
from rota.model.trigger import Cron, Every, Manual, Once
from rota.ports import Store
from rota.transactions.fire import fire
from rota.transactions.members import drain, undrain
from tests.contract.test_nodes import a_node, node_of
from tests.factories import a_definition

YEARLY = Cron(expression="0 0 1 1 *")


async def placed(store: Store) -> set[str]:
    """The names of the jobs that want an owner."""
    found = await store.placeable(-1)
    assert found.jobs is not None
    names = {job.id: job.definition.name for job in await store.jobs(JobFilter(limit=1000))}
    return {names[job_id] for job_id in found.jobs}


async def test_only_enabled_jobs_with_a_trigger_want_an_owner(store: Store) -> None:
    control = Control(store, SystemClock())
    await control.jobs.apply(
        [
            a_definition("cron", rule=YEARLY),
            a_definition("every", rule=Every(every_s=3600)),
            a_definition("manual", rule=Manual()),
        ]
    )
    assert await placed(store) == {"cron", "every"}
    await control.jobs.pause([JobName("default", "default", "cron")])
    assert await placed(store) == {"every"}
    await control.jobs.resume([JobName("default", "default", "cron")])
    assert await placed(store) == {"cron", "every"}
    await control.jobs.apply([a_definition("every", rule=Manual()), a_definition("manual", rule=YEARLY)])
    assert await placed(store) == {"cron", "manual"}
    await control.jobs.delete([JobName("default", "default", "cron")])
    assert await placed(store) == {"manual"}
    await control.jobs.apply([a_definition("cron", rule=YEARLY)])
    assert await placed(store) == {"cron", "manual"}


async def test_the_set_is_told_again_only_when_it_has_changed(store: Store) -> None:
    control = Control(store, SystemClock())
    await control.jobs.apply([a_definition("first", rule=YEARLY)])
    first = await store.placeable(-1)
    assert (await store.placeable(first.revision)).jobs is None
    assert (await store.upcoming(within_s=1, limit=10)).placed == first.revision
    await control.jobs.apply([a_definition("first", title="changed", rule=YEARLY)])
    assert (await store.placeable(first.revision)).jobs is None
    await control.jobs.apply([a_definition("second", rule=YEARLY)])
    second = await store.placeable(first.revision)
    assert second.revision > first.revision
    assert second.jobs is not None
    assert len(second.jobs) == 2
    assert (await store.upcoming(within_s=1, limit=10)).placed == second.revision


async def test_firing_does_not_change_the_set(store: Store) -> None:
    """A job that has fired for the last time keeps its owner: the set changes with what people do."""
    control = Control(store, SystemClock())
    at = await store.now() + timedelta(milliseconds=300)
    await control.jobs.apply([a_definition("once", rule=Once(once_at=at))])
    before = await store.placeable(-1)
    assert before.jobs is not None
    while not (await store.transact(fire, before.jobs, Fire())).runs:
        pass
    assert (await store.placeable(before.revision)).jobs is None


async def test_jobs_with_a_live_run_are_busy(store: Store) -> None:
    control = Control(store, SystemClock())
    await control.jobs.apply([a_definition(name, rule=YEARLY) for name in ("one", "two")])
    jobs = (await store.placeable(-1)).jobs
    assert jobs is not None
    assert await store.busy_jobs(jobs) == frozenset()
    assert await store.busy_jobs([]) == frozenset()
    await control.jobs.trigger(JobName("default", "default", "one"), {})
    assert await store.busy_jobs(jobs) == {jobs[0]}
    assert await store.busy_jobs([jobs[1]]) == frozenset()


async def test_the_offline_list_is_kept_by_name_and_role(store: Store) -> None:
    node = await a_node(store, "alpha")
    until = await store.now() + timedelta(seconds=60)
    await store.transact(drain, [Drain(name="alpha", roles=(Role.SCHEDULER,), keep=3, deadline_at=until)])
    (listed,) = (await store.drains()).drains
    assert (listed.name, listed.roles, listed.keep, listed.deadline_at) == ("alpha", (Role.SCHEDULER,), 3, until)
    assert (await node_of(store, node)).state is NodeState.ONLINE, "it still executes"
    await store.transact(drain, [Drain(name="alpha", roles=(Role.EXECUTOR,))])
    (listed,) = (await store.drains()).drains
    assert listed.roles == (Role.SCHEDULER, Role.EXECUTOR)
    assert (await node_of(store, node)).state is NodeState.DRAINING
    await store.transact(undrain, ["alpha"], (Role.EXECUTOR,))
    (listed,) = (await store.drains()).drains
    assert listed.roles == (Role.SCHEDULER,)
    assert (await node_of(store, node)).state is NodeState.ONLINE
    await store.transact(undrain, ["alpha", "nobody"], tuple(Role))
    assert (await store.drains()).drains == ()


@pytest.mark.parametrize("passed", [True, False])
async def test_a_deadline_is_judged_by_the_clock_of_the_store(store: Store, passed: bool) -> None:
    at = await store.now() + timedelta(seconds=-1 if passed else 3600)
    await store.transact(drain, [Drain(name="alpha", deadline_at=at)])
    listed = await store.drains()
    assert listed.drains[0].is_over(listed.now) is passed
