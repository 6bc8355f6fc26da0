"""Faults that the simulation has found in the product, each told by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from rota.config import LeaseConfig, PlacementConfig
from rota.coordinators.memory import MemoryCoordinator
from rota.coordinators.recipes import handover_key, write_handover
from rota.core.dispatch.board import Rounds
from rota.errors import CommitUnknown
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loader import Loader
from rota.loops.member import Identity, Member
from rota.loops.placer.claim import ClaimPlacer, Handovers
from rota.loops.placer.participation import participate
from rota.loops.reconciler import Reconciler
from rota.loops.scheduler import Scheduler
from rota.loops.signals import Signals
from rota.model.cluster import Handover, Peer
from rota.model.node import NewNode
from rota.sim.history import History
from rota.sim.loop import HostClock, SimClock, SimLoop, dice, simulate
from rota.sim.node import SCHEDULER
from rota.sim.plan import Mode, Placement, draw
from rota.sim.surroundings import SimRunner
from rota.sim.verdict import Case, verdict
from rota.storage.memory import MemoryStore
from rota.transactions.members import join
from rota.transactions.round import dispatch
from tests.factories import PLACE, a_definition, a_node, assigned
from tests.sim.test_scheduler import define

LEASE = LeaseConfig()


class Mute(MemoryStore):
    """The reply to the first join is lost."""

    joins = 0

    async def transact(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        done = await super().transact(work, *args, **kwargs)
        self.joins += work is join
        if work is join and self.joins == 1:
            raise CommitUnknown("the reply was lost")
        return done


def a_process(incarnation: str) -> NewNode:
    return NewNode(name="a", incarnation=incarnation, place=PLACE)


def test_a_join_that_was_repeated_counts_from_when_it_was_first_asked_for() -> None:
    """Its lease began then; switches that went by the second asking acted after the rescue."""

    async def main(loop: SimLoop) -> None:
        clock = HostClock(loop, 1, "node", 0.0)
        store = Mute(SimClock(loop, 1, name="store"), actor="test")
        runner = SimRunner(loop, clock, PLACE, dice(1, "crew"), History(scenario=draw(1, Placement.CLAIM, Mode.SAFETY)))
        member = Member(store, clock, LEASE, Identity("a"), runner, describe=a_process)
        asked_s = clock.boottime()
        with pytest.raises(CommitUnknown):
            await member.once()
        await clock.sleep(5)
        assert await member.once() == 0.0, "it renews at once"
        assert runner._until_s == asked_s + LEASE.lease_s - LEASE.margin_s
        await member.once()
        assert runner._until_s == asked_s + 5 + LEASE.lease_s - LEASE.margin_s

    simulate(main, seed=1)


def test_what_was_given_back_as_unknown_does_not_begin_any_more() -> None:
    """A slow executor loaded its grant while the net below it gave the item back."""

    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 1)
        store = MemoryStore(clock, actor="test")
        node_id = await a_node(store, "a")
        await assigned(store, 1)
        done = await dispatch(store, node_id, Rounds(), batch_max=10)
        live, identity, loader = AttemptsInHand(), Identity("a", node_id), Loader(store)
        reconciler = Reconciler(store, clock, identity, live, loader)
        attempts = (await loader.attempts(list(done.grants.values()))).attempts
        await reconciler.once()
        await reconciler.once()
        assert (await store.queued())[0].node_id is None
        assert live.add(attempts) == []
        assert live.attempts == {}

    simulate(main, seed=1)


class Held(MemoryCoordinator):
    """Some calls wait until somebody lets them through."""

    gates: dict[str, tuple[asyncio.Event, asyncio.Event]]

    def hold(self, call: str) -> tuple[asyncio.Event, asyncio.Event]:
        """Says when it has been asked for, and takes the word to let it through."""
        self.gates[call] = asyncio.Event(), asyncio.Event()
        return self.gates[call]

    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        await self._pass(f"claim {min(values).partition('/')[0]}")
        return await super().claim(values)

    async def keys(self, folder: str) -> frozenset[str]:
        await self._pass(f"keys {folder}")
        return await super().keys(folder)

    async def _pass(self, call: str) -> None:
        if call in self.gates:
            asked, let = self.gates[call]
            asked.set()
            await let.wait()


@pytest.mark.parametrize("held", ["claim jobs", "keys jobs"])
def test_a_claim_that_is_won_under_the_next_session_is_not_forgotten(held: str) -> None:
    """The sweep had begun under the last one, or while there was none yet that the scheduler was registered under;
    nobody fired such a job but by the rule for what is overdue."""

    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 1)
        store = MemoryStore(clock, actor="test")
        await define(store, [a_definition() for _ in range(3)])
        coordinator = Held(store.realm, clock, ttl_s=4.0)
        coordinator.gates = {}
        peer, signals = Peer(name="a", incarnation="one"), Signals()
        config = PlacementConfig(automatic=False)
        part = participate(store, coordinator, clock, config, lambda: peer, signals=signals)
        keeper, claimer = part.keeper, part.placer
        assert isinstance(claimer, ClaimPlacer)
        scheduler = Scheduler(store, clock, SCHEDULER, ownership=claimer, signals=signals)
        signals.ownership_changed.on(scheduler.wake)
        sweep_asked, let_sweep = coordinator.hold(held)
        tasks = [asyncio.create_task(it.run()) for it in (keeper, claimer)]
        await sweep_asked.wait()
        assert keeper.session is not None
        live_asked, let_live = coordinator.hold("claim live")
        store.realm.end(keeper.session)
        await live_asked.wait()
        let_sweep.set()
        await clock.sleep(1)
        assert len(await coordinator.read("jobs")) == 3, "void: the sweep has claimed nothing"
        let_live.set()
        await clock.sleep(5)
        assert claimer.held == {1, 2, 3}
        for task in tasks:
            task.cancel()

    simulate(main, seed=1)


def test_what_a_dead_giver_said_does_not_undo_what_a_living_one_says() -> None:
    """Else the living one takes its job back at once, and gives it away again, and so on."""

    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 1)
        realm = MemoryStore(clock, actor="test").realm
        coordinator = MemoryCoordinator(realm, clock, ttl_s=4.0)
        await coordinator.put(handover_key("a"), write_handover({1: Handover(to="b")}))
        await coordinator.put(handover_key("dead"), write_handover({1: Handover(to="a"), 2: Handover(to="a")}))
        found = await Handovers(coordinator, "a").read({"a", "b"}, owned=())
        assert {job_id: it.to for job_id, it in found.items()} == {1: "b", 2: "a"}

    simulate(main, seed=1)


def test_an_attempt_whose_grant_came_both_ways_begins_once() -> None:
    """A grant that could not be loaded waits to be tried again, and is handed over once more meanwhile."""
    assert verdict(Case(896, Placement.BEAT, Mode.SAFETY)).violations == ()
