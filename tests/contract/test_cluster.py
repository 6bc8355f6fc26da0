"""What people ask of the cluster, on every store with its own coordinator: show, drain, rebalance, claim,
release, doctor, dump."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from sqlalchemy import Connection, delete

from rota.clock import SystemClock
from rota.config import PlacementConfig
from rota.control import Control, Finding
from rota.coordinators.recipes import handover_key, read_handover, write_handover
from rota.core.define import Apply
from rota.errors import InvalidInput, NotFound, Refused
from rota.loops.placer.claim import ClaimPlacer
from rota.loops.placer.participation import Participation, participate
from rota.model.cluster import Handover, Peer, Placement, Role
from rota.model.job import Definition, JobName
from rota.model.node import NodeState
from rota.model.value import encode
from rota.ports import Coordinator, Store
from rota.storage.sql import schema
from rota.storage.sql.store import SqlStore
from rota.transactions.change import change, misplaced, place_again
from rota.transactions.members import leave
from rota.wiring import own_coordinator
from tests.contract.conftest import Open
from tests.factories import HANDLER, MANUAL, a_definition, a_node, assigned, given

SESSION_S = 4.0
LONG_S = 10.0
"""Where a session must not end: whoever looks first when a busy machine goes on would have all jobs."""


class Town:
    """A store, its coordinator, and schedulers: real ones, or such that only say that they are there."""

    def __init__(self, open_: Open, store: Store, stack: AsyncExitStack) -> None:
        self._open, self._stack = open_, stack
        self.store, self.clock = store, SystemClock()
        self.desk = own_coordinator(store, self.clock, ttl_s=SESSION_S)
        self.control = Control(store, self.clock, coordinator=self.desk)
        self.parts: dict[str, Participation] = {}

    async def jobs(self, count: int) -> list[Definition]:
        definitions = [a_definition() for _ in range(count)]
        await self.store.transact(change, [it.full_name for it in definitions], Apply(definitions=tuple(definitions)))
        return definitions

    async def says(self, name: str, jobs: range = range(0), **peer: Any) -> Coordinator:
        """A scheduler that claims jobs, and does nothing with them."""
        coordinator = own_coordinator(await self._open(), self.clock, ttl_s=60.0)
        self._stack.push_async_callback(coordinator.close)
        await coordinator.join()
        told = Peer(**{"name": name, "incarnation": name, "placement": Placement.CLAIM, **peer})
        await coordinator.claim({f"live/{name}": encode(told), **{f"jobs/{it}": name for it in jobs}})
        return coordinator

    async def starts(self, name: str, *, kind: str = "claim", session_s: float = SESSION_S, **config: Any) -> None:
        """A scheduler that works."""
        store = await self._open()
        coordinator = own_coordinator(store, self.clock, ttl_s=session_s)
        incarnation, placement = self.clock.token(), Placement(kind)
        peer = Peer(name=name, incarnation=incarnation, placement=placement)
        placing = PlacementConfig(kind=kind, **config)
        part = self.parts[name] = participate(store, coordinator, self.clock, placing, lambda: peer)
        tasks = [asyncio.create_task(loop.run()) for loop in (part.keeper, part.placer)]
        self._stack.push_async_callback(self._stop, part, tasks)

    async def _stop(self, part: Participation, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await part.leave()

    async def held(self) -> dict[str, int]:
        return dict((await self.control.cluster.facts()).held)

    async def until_held(self, wanted: dict[str, int]) -> None:
        async with asyncio.timeout(30):
            while (seen := {name: count for name, count in (await self.held()).items() if count}) != wanted:
                print(seen)
                await asyncio.sleep(0.1)

    def believed(self) -> dict[str, int]:
        """How many jobs each scheduler believes to have."""
        drivers = {name: part.placer for name, part in self.parts.items()}
        return {name: len(it.held) for name, it in drivers.items() if isinstance(it, ClaimPlacer)}


@pytest.fixture
async def town(another: Open) -> AsyncIterator[Town]:
    async with AsyncExitStack() as stack:
        yield Town(another, await another(), stack)


# Show


async def test_an_empty_cluster_is_shown_as_one(town: Town) -> None:
    await town.jobs(3)
    seen = await town.control.cluster.facts()
    assert (seen.placement, seen.peers, len(seen.jobs), seen.unowned) == (None, (), 3, ())


async def test_claims_are_counted_and_jobs_without_an_owner_named(town: Town) -> None:
    jobs = await town.jobs(6)
    await town.says("a", range(1, 4), alarm=5)
    await town.says("b", range(4, 5), weight=2.0)
    await town.control.nodes.drain(["c"], force=True)
    seen = await town.control.cluster.facts()
    assert seen.placement is Placement.CLAIM
    assert seen.held == {"a": 3, "b": 1}
    assert seen.limits == {"a": 7, "b": 7}
    assert seen.unowned == (5, 6)
    assert await town.control.cluster.job_names(seen.unowned) == {5: jobs[4].full_name, 6: jobs[5].full_name}
    assert [(it.name, it.roles) for it in seen.drains] == [("c", tuple(Role))]


async def test_the_owners_of_scope_come_from_the_plan_and_its_leader_is_named(town: Town) -> None:
    await town.jobs(5)
    for name in "ab":
        await town.starts(name, kind="scope")
    async with asyncio.timeout(30):
        while len((seen := await town.control.cluster.facts()).held) < 2:
            await asyncio.sleep(0.1)
    assert (seen.placement, sum(seen.held.values()), seen.unowned) == (Placement.SCOPE, 5, ())
    assert seen.plan is not None
    assert seen.plan.epoch >= 1
    assert seen.leader in ("a", "b")
    name = JobName("default", "default", (await town.jobs(1))[0].name)
    for verb in (
        town.control.cluster.claim(name),
        town.control.cluster.release(name),
        town.control.cluster.rebalance(),
    ):
        with pytest.raises(Refused, match="the placement here is scope, which has no claims"):
            await verb


async def test_every_scheduler_that_ever_took_part_is_remembered(town: Town) -> None:
    await town.starts("a")
    async with asyncio.timeout(30):
        while not await town.control.nodes.former_schedulers():
            await asyncio.sleep(0.05)
    assert [it.name for it in await town.control.nodes.former_schedulers()] == ["a"]


# Drain


async def test_more_than_n_are_not_drained_at_once_unless_forced(town: Town) -> None:
    await town.jobs(4)
    for name in "abc":
        await town.says(name)
    with pytest.raises(Refused, match="2 schedulers would be drained at once"):
        await town.control.nodes.drain(["a", "b"])
    assert (await town.store.drains()).drains == ()
    await town.control.nodes.drain(["a"])
    with pytest.raises(Refused, match="2 schedulers would be drained at once"):
        await town.control.nodes.drain(["b"])
    await town.control.nodes.drain(["b"], roles=[Role.EXECUTOR])
    await town.control.nodes.drain(["b"], force=True)
    assert (await town.control.cluster.facts()).drained == {"a", "b"}
    await town.control.nodes.undrain(["a", "b"], roles=[Role.SCHEDULER])
    assert {it.name: it.roles for it in (await town.store.drains()).drains} == dict.fromkeys("ab", (Role.EXECUTOR,))


async def test_the_last_scheduler_is_not_drained_while_there_are_jobs(town: Town) -> None:
    await town.jobs(1)
    await town.says("a")
    with pytest.raises(Refused, match="the 0 that would be left could hold 0 of 1 jobs"):
        await town.control.nodes.drain(["a"])


async def test_a_drain_that_keeps_some_and_one_with_a_deadline(town: Town) -> None:
    await town.jobs(9)
    for name, jobs in (("a", range(1, 8)), ("b", range(8, 10)), ("c", range(0))):
        await town.says(name, jobs)
    await town.control.nodes.drain(["a"], roles=[Role.SCHEDULER], release=5, deadline_s=60.0)
    (drain,) = (await town.store.drains()).drains
    assert (drain.keep, drain.roles) == (2, (Role.SCHEDULER,))
    assert drain.deadline_at is not None
    left_s = (drain.deadline_at - await town.store.now()).total_seconds()
    assert 30 < left_s <= 60
    with pytest.raises(InvalidInput, match="release: stranger is no scheduler that claims jobs here"):
        await town.control.nodes.drain(["stranger"], release=1)


async def test_a_drain_is_waited_for_until_jobs_and_items_are_gone(town: Town) -> None:
    await town.jobs(2)
    scheduler = await town.says("a", range(1, 3))
    await town.says("b")
    node_id = await a_node(town.store, "a")
    await assigned(town.store, 3)
    assert len(await given(town.store, node_id)) == 3
    await town.control.nodes.drain(["a"])
    told: list[tuple[int, int]] = []
    left = await town.control.nodes.drained(["a"], tuple(Role), lambda load: told.append(tuple(load)), 0.0)
    assert (tuple(left), told) == ((2, 3), [(2, 3)])
    assert tuple(await town.control.nodes.drained(["a"], [Role.SCHEDULER], lambda _: None, 0.0)) == (2, 0)
    await scheduler.leave()
    await town.store.transact(leave, node_id)
    assert (await town.control.nodes.drained(["a"], tuple(Role), lambda _: None, 30.0)).is_none


async def test_real_schedulers_give_up_their_jobs_when_drained_and_get_them_back(town: Town) -> None:
    await town.jobs(6)
    for name in "abc":
        await town.starts(name)
    await town.until_held({"a": 2, "b": 2, "c": 2})
    await town.control.nodes.drain(["a"])
    assert (await town.control.nodes.drained(["a"], [Role.SCHEDULER], lambda _: None, 30.0)).is_none
    await town.until_held({"b": 3, "c": 3})
    await town.control.nodes.undrain(["a"])
    await town.until_held({"a": 2, "b": 2, "c": 2})


# Rebalance


async def test_a_rebalance_is_shown_first_and_adds_to_what_is_on_its_way(town: Town) -> None:
    await town.jobs(8)
    await town.says("a", range(1, 9))
    await town.says("b")
    await town.desk.put(handover_key("a"), write_handover({8: Handover(to="b", force=True)}))
    _, plan = await town.control.cluster.rebalance(dry_run=True)
    assert (plan.before, plan.after, len(plan.shifts)) == ({"a": 8, "b": 0}, {"a": 4, "b": 4}, 3)
    (entry,) = await town.desk.read("handover")
    assert set(read_handover(entry)) == {8}
    await town.control.cluster.rebalance()
    (entry,) = await town.desk.read("handover")
    assert read_handover(entry) == {
        8: Handover(to="b", force=True),
        **{it.job_id: Handover(to="b") for it in plan.shifts},
    }
    again = await town.control.cluster.rebalance()
    assert again[1].shifts == ()


async def test_real_schedulers_share_the_jobs_out_when_told(town: Town) -> None:
    await town.jobs(7)
    await town.starts("a", automatic=False, session_s=LONG_S)
    await town.until_held({"a": 7})
    await town.starts("b", automatic=False, session_s=LONG_S)
    async with asyncio.timeout(30):
        while len((await town.control.cluster.facts()).peers) < 2:
            await asyncio.sleep(0.05)
    _, plan = await town.control.cluster.rebalance()
    told: list[int] = []
    assert await town.control.cluster.arrived(plan.shifts, told.append, 30.0) == 3
    assert told[-1] == 3
    await town.until_held({"a": 4, "b": 3})


async def test_without_anybody_there_is_nothing_to_rebalance(town: Town) -> None:
    with pytest.raises(Refused, match="no scheduler takes part here: there is nothing to rebalance"):
        await town.control.cluster.rebalance()


# Claim and release


async def test_a_job_is_not_given_to_who_has_enough_or_is_drained_unless_forced(town: Town) -> None:
    jobs = await town.jobs(4)
    await town.says("a", range(1, 4))
    await town.says("b", range(4, 5))
    await town.says("c")
    name = jobs[3].full_name
    with pytest.raises(Refused, match="a has 3 jobs, and its limit N is 3"):
        await town.control.cluster.claim(name, node="a")
    await town.control.cluster.claim(name, node="a", force=True)
    (entry,) = await town.desk.read("handover")
    assert (entry.name, read_handover(entry)) == ("b", {4: Handover(to="a", force=True)})
    await town.control.nodes.drain(["c"])
    with pytest.raises(Refused, match="c is on the offline list"):
        await town.control.cluster.claim(name, node="c")
    done = await town.control.cluster.claim(name, node="c", force=True)
    assert (done.giver, done.receiver, done.undrained) == ("b", "c", True)
    assert (await town.control.cluster.facts()).drained == frozenset()
    with pytest.raises(NotFound, match="no scheduler stranger"):
        await town.control.cluster.claim(name, node="stranger")


async def test_a_job_that_nobody_fires_has_no_owner(town: Town) -> None:
    definition = a_definition(rule=MANUAL)
    await town.store.transact(change, [definition.full_name], Apply(definitions=(definition,)))
    await town.says("a")
    with pytest.raises(Refused, match="needs no owner"):
        await town.control.cluster.claim(definition.full_name)
    with pytest.raises(NotFound, match="there is no job nothing"):
        await town.control.cluster.release(JobName("default", "default", "nothing"))


async def test_real_schedulers_take_the_job_that_is_given_to_them(town: Town) -> None:
    jobs = await town.jobs(4)
    await town.starts("a", automatic=False, session_s=LONG_S)
    await town.until_held({"a": 4})
    await town.starts("b", automatic=False, session_s=LONG_S)
    async with asyncio.timeout(30):
        while len((await town.control.cluster.facts()).peers) < 2:
            await asyncio.sleep(0.05)
    given_ = await town.control.cluster.claim(jobs[2].full_name)
    assert (given_.giver, given_.receiver) == ("a", "b")
    await town.until_held({"a": 3, "b": 1})
    assert (await town.control.cluster.facts()).owners[given_.job_id] == "b"


async def test_a_released_job_goes_to_whoever_may_have_it_and_its_former_owner_knows(town: Town) -> None:
    jobs = await town.jobs(1)
    await town.starts("a", automatic=False)
    await town.until_held({"a": 1})
    thief = await town.says("thief")
    done = await town.control.cluster.release(jobs[0].full_name)
    assert done.owner == "a"
    won = await thief.claim({f"jobs/{done.job_id}": "thief"})
    await town.until_held({"thief": 1} if won else {"a": 1})
    async with asyncio.timeout(30):
        while town.believed() != {"a": 0 if won else 1}:
            await asyncio.sleep(0.05)


async def test_a_control_without_a_coordinator_still_drains_and_says_what_it_lacks(town: Town) -> None:
    control = Control(town.store, town.clock)
    await a_node(town.store, "a")
    assert [it.state for it in (await control.nodes.drain(["a"])).nodes] == [NodeState.DRAINING]
    with pytest.raises(Refused, match="there is no coordinator here"):
        await control.cluster.facts()


# Doctor and dump


def found_by(findings: tuple[Finding, ...]) -> set[tuple[str, str]]:
    return {(it.code, it.about) for it in findings}


async def test_the_doctor_finds_what_is_wrong_and_repairs_what_is_safe(town: Town) -> None:
    await town.jobs(3)
    await town.says("a", range(1, 3), held=2)
    await town.says("b", range(3, 4), held=5)
    await town.desk.put(handover_key("gone"), write_handover({1: Handover(to="a"), 3: Handover(to="a")}))
    town.desk.ttl_s = 0.1
    before = found_by(await town.control.doctor.findings())
    assert {("few_schedulers", ""), ("wrong_belief", "b"), ("stale_handover", "gone")} <= before
    assert await town.control.doctor.repair() == ("removed 1 hand-overs of gone", "woke every scheduler")
    (entry,) = await town.desk.read("handover")
    assert set(read_handover(entry)) == {3}, "this one is still under way"
    assert await town.desk.get("notice/release") is not None
    assert found_by(await town.control.doctor.findings()) == before - {("stale_handover", "gone")}


async def test_jobs_that_are_wrongly_listed_are_found_and_listed_anew(town: Town) -> None:
    if not isinstance(town.store, SqlStore):
        assert await place_again(town.store) == 0
        return
    await town.jobs(3)
    manual = a_definition(rule=MANUAL)
    await town.store.transact(change, [manual.full_name], Apply(definitions=(manual,)))
    before = await town.store.placeable(-1)

    def spoil(conn: Connection) -> None:
        conn.execute(delete(schema.placed).where(schema.placed.c.job_id == 2))
        conn.execute(schema.placed.insert().values(job_id=4))

    await town.store._db.write(spoil)
    assert await town.store.look(misplaced) == 2
    assert await place_again(town.store) == 2
    assert await town.store.look(misplaced) == 0
    after = await town.store.placeable(before.revision)
    assert after.jobs == before.jobs == (1, 2, 3), "and whoever has looked before looks again"


async def test_an_item_that_nobody_can_run_is_found(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rota.core.doctor.READY_S", -60.0)
    town.desk.ttl_s = 0.1
    await a_node(town.store, "a", handlers=())
    run = await assigned(town.store, 1)
    (item,) = await town.store.items(run.id)
    stuck = [it for it in await town.control.doctor.findings() if it.code == "not_runnable"]
    assert [it.about for it in stuck] == [f"item {item.id} of run {run.id}"]
    await a_node(town.store, "b", handlers=(HANDLER,))
    assert "not_started" in {it.code for it in await town.control.doctor.findings()}


async def test_a_dump_has_everything_and_gives_nobody_away(town: Town) -> None:
    await town.jobs(2)
    await town.says("a", range(1, 3), address="10.1.2.3:7700")
    await a_node(town.store, "host-4711")
    await town.control.limits.set_quota("acme", cap=3)
    await assigned(town.store, 2)
    await town.control.holds.hold("acme")
    settings = {"store.url": "postgresql://me:s3cret@db.example/rota", "alarm.smtp_password": "s3cret"}
    whole = await town.control.dump.make(settings)
    text = json.dumps(whole)
    assert not [it for it in ("s3cret", "db.example", "10.1.2.3", ': "host"') if it in text]
    assert [it["owns"] for it in whole["cluster"]["peers"]] == [2]
    assert whole["nodes"][0]["host"] == whole["nodes"][0]["name"].removesuffix("-4711")
    assert [(it["tenant"], it["ready"]) for it in whole["queue"]] == [("acme", 2)]
    assert [it["name"] for it in whole["limits"]] == ["quota:acme/default"]
    assert [it["tenant"] for it in whole["cluster"]["paused"]] == ["acme"]
    assert "cluster.paused" in {it["kind"] for it in whole["events"]}
