"""The placements in virtual time: owners after calm, take-over, drain (S0.13 to S0.50, S1.14, S4.5 to S4.11)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from rota.config import PlacementConfig, SchedulerConfig
from rota.coordinators.memory import MemoryCoordinator
from rota.coordinators.recipes import notify
from rota.loops.placer.claim import ClaimPlacer
from rota.loops.placer.participation import Participation, participate
from rota.loops.placer.scope import ScopePlacer
from rota.loops.placer.session_keeper import SessionKeeper
from rota.loops.scheduler import Scheduler
from rota.loops.signals import Signals
from rota.model.cluster import Drain, Peer, Role
from rota.model.plan import RunFilter
from rota.model.trigger import Every
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore
from rota.transactions.members import drain, undrain
from tests.factories import a_definition, allow
from tests.sim.test_scheduler import define

SESSION_S = 4.0
KINDS = ("claim", "scope", "beat")


class Town:
    """Some schedulers, one store, one coordinator."""

    def __init__(self, loop: SimLoop, seed: int, config: PlacementConfig) -> None:
        self._loop, self._seed, self._config = loop, seed, config
        self.clock = SimClock(loop, seed, name="store")
        self.store = MemoryStore(self.clock, actor="sim")
        self.parts: dict[str, Participation] = {}
        self._started = 0
        self.fired: Counter[str] = Counter()
        self._tasks: dict[str, list[asyncio.Task[None]]] = {}

    def start(self, name: str, **peer: Any) -> None:
        self._started += 1
        clock = SimClock(self._loop, self._seed, name=f"{name}-{self._started}")
        coordinator = MemoryCoordinator(self.store.realm, clock, ttl_s=SESSION_S)
        incarnation = clock.token()
        told, signals = Peer(name=name, incarnation=incarnation, address=f"{name}:7700", **peer), Signals()
        part = participate(self.store, coordinator, clock, self._config, lambda: told, signals=signals)
        config = SchedulerConfig()
        scheduler = Scheduler(
            self.store, clock, config, ownership=part.placer, signals=signals, overdue_s=SESSION_S + 1
        )
        signals.fired.on(lambda done: self.fired.update({name: len(done.runs)}))
        signals.ownership_changed.on(scheduler.wake)
        self.parts[name] = part
        self._tasks[name] = [asyncio.create_task(it.run()) for it in (scheduler, *part.loops)]

    def kill(self, name: str) -> None:
        for task in self._tasks.pop(name):
            task.cancel()
        del self.parts[name]

    async def stop(self, name: str) -> None:
        """In good order."""
        await self.parts[name].leave()
        self.kill(name)

    async def owners(self, job_ids: range) -> dict[int, list[str]]:
        now = self.clock.wall()
        return {
            job_id: [name for name, part in self.parts.items() if part.placer.owns(job_id, now)] for job_id in job_ids
        }

    async def late(self) -> float:
        """The latest start of a run, in seconds."""
        runs = await self.store.runs(RunFilter(limit=10**9))
        return max((run.created_at - run.due_at).total_seconds() for run in runs)


def town(
    main: Callable[[Town], Coroutine[Any, Any, None]], *, kind: str = "claim", seed: int = 1, **config: Any
) -> None:
    async def run(loop: SimLoop) -> None:
        place = Town(loop, seed, PlacementConfig(kind=kind, **config))
        try:
            await main(place)
        finally:
            for name in list(place.parts):
                place.kill(name)

    simulate(run, seed=seed)


async def jobs(place: Town, count: int, every_s: float = 2.0) -> range:
    rule = Every(every_s=every_s)
    await define(place.store, [a_definition(rule=rule, overlap=allow(10**6)) for _ in range(count)])
    return range(1, count + 1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_every_job_has_one_owner_and_fires_on_time_while_nothing_happens(kind: str, seed: int) -> None:
    async def main(place: Town) -> None:
        ids = await jobs(place, 30)
        for name in "abc":
            place.start(name)
        await asyncio.sleep(30)
        assert {len(names) for names in (await place.owners(ids)).values()} == {1}
        settled = place.clock.wall()
        await asyncio.sleep(60)
        runs = [run for run in await place.store.runs(RunFilter(limit=10**9)) if run.due_at > settled]
        assert len(runs) >= 30 * 29
        assert max((run.created_at - run.due_at).total_seconds() for run in runs) < 0.1

    town(main, kind=kind, seed=seed)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_the_jobs_of_one_that_dies_are_fired_within_a_session_and_a_second(kind: str, seed: int) -> None:
    """S0.48, S4.10, S4.11, P9."""

    async def main(place: Town) -> None:
        ids = await jobs(place, 30)
        for name in "abc":
            place.start(name)
        await asyncio.sleep(30)
        place.kill("a")
        await asyncio.sleep(SESSION_S + 5)
        assert {len(names) for names in (await place.owners(ids)).values()} == {1}
        await asyncio.sleep(20)
        assert await place.late() <= SESSION_S + 1 + 1.5

    town(main, kind=kind, seed=seed)


@pytest.mark.parametrize("kind", KINDS)
def test_one_that_leaves_in_good_order_costs_nothing(kind: str) -> None:
    async def main(place: Town) -> None:
        ids = await jobs(place, 30)
        for name in "abc":
            place.start(name)
        await asyncio.sleep(30)
        await place.stop("a")
        await asyncio.sleep(SESSION_S)
        assert {len(names) for names in (await place.owners(ids)).values()} == {1}
        await asyncio.sleep(20)
        assert await place.late() <= SESSION_S + 1.5

    town(main, kind=kind)


@pytest.mark.parametrize("seed", range(5))
def test_one_that_joins_gets_its_share_and_no_job_moves_twice(seed: int) -> None:
    """A0.11: max X - min X is at most one."""

    async def main(place: Town) -> None:
        ids = await jobs(place, 100)
        for name in "abc":
            place.start(name)
        await asyncio.sleep(30)
        before = await place.owners(ids)
        place.start("d")
        owners = [before]
        for _ in range(60):
            await asyncio.sleep(0.5)
            owners.append(await place.owners(ids))
        held = Counter(names[0] for names in owners[-1].values())
        assert max(held.values()) - min(held.values()) <= 1
        for job_id in ids:
            seen = [it[job_id][0] for it in owners if it[job_id]]
            changes = sum(one != other for one, other in pairwise(seen))
            assert changes == (before[job_id] != owners[-1][job_id])
        moved = [job_id for job_id in ids if before[job_id] != owners[-1][job_id]]
        assert len(moved) == 25

    town(main, seed=seed)


def test_without_automatic_rebalancing_nothing_moves() -> None:
    async def main(place: Town) -> None:
        ids = await jobs(place, 20)
        place.start("a")
        await asyncio.sleep(10)
        place.start("b")
        await asyncio.sleep(30)
        assert {tuple(names) for names in (await place.owners(ids)).values()} == {("a",)}

    town(main, automatic=False)


def test_a_drained_scheduler_gives_up_its_jobs_in_small_batches_and_can_be_called_back() -> None:
    """S0.32, S0.33, S0.42, S0.44, A0.9."""

    async def main(place: Town) -> None:
        await jobs(place, 400, every_s=10**6)
        for name in "ab":
            place.start(name)
        await asyncio.sleep(20)
        a, b = place.parts["a"].placer, place.parts["b"].placer
        assert isinstance(a, ClaimPlacer)
        assert isinstance(b, ClaimPlacer)
        assert len(a.held) == 200
        await place.store.transact(drain, [Drain(name="a", roles=(Role.SCHEDULER,))])
        a.wake()
        while len(a.held) == 200:
            await asyncio.sleep(0.05)
        assert 100 <= len(a.held) < 200
        await place.store.transact(undrain, ["a"], (Role.SCHEDULER,))
        a.wake()
        await asyncio.sleep(20)
        assert len(a.held) == len(b.held) == 200
        await place.store.transact(drain, [Drain(name="a", roles=(Role.SCHEDULER,))])
        await asyncio.sleep(30)
        assert (len(a.held), len(b.held)) == (0, 400)
        place.kill("a")
        place.start("a")
        await asyncio.sleep(20)
        again = place.parts["a"].placer
        assert isinstance(again, ClaimPlacer)
        assert len(again.held) == 0

    town(main)


def test_jobs_whose_runs_are_not_over_stay_until_the_deadline() -> None:
    """A0.9."""

    async def main(place: Town) -> None:
        await jobs(place, 10)
        await jobs(place, 10, every_s=10**6)
        place.start("a")
        place.start("b")
        await asyncio.sleep(20)
        a = place.parts["a"].placer
        assert isinstance(a, ClaimPlacer)
        running = {run.job_id for run in await place.store.runs(RunFilter(limit=10**9))}
        deadline_at = place.clock.wall() + timedelta(seconds=60)
        await place.store.transact(drain, [Drain(name="a", roles=(Role.SCHEDULER,), deadline_at=deadline_at)])
        await asyncio.sleep(40)
        assert a.held
        assert a.held <= running
        await asyncio.sleep(40)
        assert a.held == frozenset()

    town(main)


def test_a_scheduler_that_shall_keep_some_is_back_when_it_has_no_more() -> None:
    async def main(place: Town) -> None:
        await jobs(place, 20, every_s=10**6)
        place.start("a")
        await asyncio.sleep(10)
        place.start("b")
        await place.store.transact(drain, [Drain(name="a", roles=(Role.SCHEDULER,), keep=15)])
        await asyncio.sleep(30)
        a, b = place.parts["a"].placer, place.parts["b"].placer
        assert isinstance(a, ClaimPlacer)
        assert isinstance(b, ClaimPlacer)
        assert (len(a.held), len(b.held)) == (15, 5)
        assert (await place.store.drains()).drains == ()

    town(main, automatic=False)


def test_nobody_goes_back_to_an_older_plan() -> None:
    """A4.5."""

    async def main(place: Town) -> None:
        await jobs(place, 10)
        seen: dict[str, list[int]] = {name: [] for name in "abcd"}
        for name in "abc":
            place.start(name)
        for second in range(60):
            if second == 20:
                place.kill("a")
            if second == 40:
                place.start("d")
            await asyncio.sleep(1)
            for name, part in place.parts.items():
                assert isinstance(part.placer, ScopePlacer)
                seen[name].append(part.placer.epoch)
        for epochs in seen.values():
            assert epochs == sorted(epochs)
        assert seen["b"][-1] == seen["c"][-1] == seen["d"][-1] >= 3

    town(main, kind="scope")


def test_everybody_tells_the_range_that_it_acts_by() -> None:
    async def main(place: Town) -> None:
        await jobs(place, 9)
        for name in "abc":
            place.start(name)
            await asyncio.sleep(2 * SESSION_S)
        assert [part.keeper.peer.range for part in place.parts.values()] == ["1-3", "4-6", "7-"]

    town(main, kind="scope")


def test_who_shall_stop_without_a_coordinator_fires_only_while_its_claims_are_its_own() -> None:
    """The session may be over for everybody else before this scheduler has noticed."""

    async def main(loop: SimLoop) -> None:
        clock = SimClock(loop, 1, name="a")
        coordinator = MemoryCoordinator(MemoryStore(clock, actor="sim").realm, clock, ttl_s=SESSION_S)
        peer = Peer(name="a", incarnation="1", address="a:7700")
        keeper = SessionKeeper(coordinator, clock, lambda: peer, on_lost="stop")
        assert not keeper.may_fire, "it takes no part yet"
        await keeper.once()
        assert keeper.may_fire
        await clock.sleep(SESSION_S + 1)
        assert keeper.session is not None
        assert not keeper.may_fire

    simulate(main, seed=1)


def test_a_name_that_is_taken_fences_who_had_it() -> None:
    async def main(place: Town) -> None:
        ids = await jobs(place, 10)
        place.start("a")
        await asyncio.sleep(10)
        first = place.parts["a"]
        running = place._tasks["a"]
        place.start("a")
        await asyncio.sleep(20)
        assert first.keeper.session is None
        assert isinstance(first.placer, ClaimPlacer)
        assert first.placer.held == frozenset()
        assert {tuple(names) for names in (await place.owners(ids)).values()} == {("a",)}
        for task in running:
            task.cancel()

    town(main)


@pytest.mark.parametrize("seed", range(5))
def test_what_a_scheduler_gives_up_it_does_not_take_back_though_others_are_slow_to_hear(seed: int) -> None:
    async def main(place: Town) -> None:
        await jobs(place, 20, every_s=10**6)
        place.start("a")
        await asyncio.sleep(10)
        place.start("b")
        slow = place.parts["b"].coordinator
        at_once, later = slow.listen, asyncio.get_running_loop().call_later
        slow.listen = lambda folder, wake: at_once(folder, lambda: later(1.5, wake))  # type: ignore[method-assign]
        await asyncio.sleep(3)
        await place.store.transact(drain, [Drain(name="a", roles=(Role.SCHEDULER,), keep=15)])
        await notify(place.parts["a"].coordinator, place.clock, "drain")
        await asyncio.sleep(30)
        held = {
            name: len(part.placer.held) for name, part in place.parts.items() if isinstance(part.placer, ClaimPlacer)
        }
        assert held == {"a": 15, "b": 5}
        assert (await place.store.drains()).drains == ()

    town(main, automatic=False, seed=seed)


def test_a_scheduler_that_nobody_can_relieve_is_back_after_a_session() -> None:
    async def main(place: Town) -> None:
        await jobs(place, 20, every_s=10**6)
        place.start("a")
        await asyncio.sleep(10)
        await place.store.transact(drain, [Drain(name="a", roles=(Role.SCHEDULER,), keep=15)])
        await asyncio.sleep(40)
        a = place.parts["a"].placer
        assert isinstance(a, ClaimPlacer)
        assert len(a.held) == 20
        assert (await place.store.drains()).drains == ()

    town(main, automatic=False)
