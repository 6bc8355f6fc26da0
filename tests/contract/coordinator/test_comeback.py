"""Whatever a coordinator loses or holds wrongly, the cluster comes back by itself, and the doctor says what happened:
on the coordinators of all stores, on ZooKeeper and on etcd, with real time. Every key by itself is a matter of
`tests/sim/test_damage.py` and of the nightly walk; every time, all keys at once."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rota.clock import SystemClock
from rota.config import CoordinatorConfig, PlacementConfig, SchedulerConfig
from rota.control import Control
from rota.loops.placer.participation import Participation, participate
from rota.loops.scheduler import Scheduler
from rota.loops.signals import Signals
from rota.model.cluster import Peer, Placement
from rota.model.plan import RunFilter
from rota.model.trigger import Every
from rota.ports import Coordinator, Store
from rota.wiring import open_coordinator, open_store
from tests.contract.conftest import Migrated, empty
from tests.contract.coordinator.damage import Damage, EtcdDamage, ZooKeeperDamage, damage_of
from tests.contract.coordinator.layout import KINDS, Blow, blows, faults
from tests.factories import a_definition, allow
from tests.sim.test_scheduler import define

COORDINATORS = ("memory", "sqlite", "postgresql", "mariadb", "zookeeper", "etcd")
PLACEMENTS = ("claim", "scope", "beat")
SESSION_S = 2.0
REPAIR_S = 0.5
BEAT_S = 4.0
BACK_S = 60.0
JOBS = 6


class Place:
    """Two schedulers in this process, on a store and a coordinator."""

    def __init__(self, stack: AsyncExitStack, store: Store, where: CoordinatorConfig, damage: Damage | None) -> None:
        self._stack, self._where, self.store = stack, where, store
        self.parts: dict[str, Participation] = {}
        self.watcher = self.client()
        self.damage = damage or damage_of(self.watcher)
        self.placement = ""

    def client(self) -> Coordinator:
        made = open_coordinator(self._where, self.store, SystemClock())
        self._stack.push_async_callback(made.close)
        return made

    async def start(self, placement: str) -> None:
        self.placement = placement
        rule = Every(every_s=1.0)
        await define(self.store, [a_definition(rule=rule, overlap=allow(10**6)) for _ in range(JOBS)])
        for name in "ab":
            self._start(name, PlacementConfig(kind=placement, beat_s=BEAT_S, faults=2, alarm=5))
        await self.comes_back("nothing")

    def _start(self, name: str, config: PlacementConfig) -> None:
        clock, coordinator = SystemClock(), self.client()
        told = Peer(
            name=name,
            incarnation=clock.token(),
            address=f"{name}:7700",
            placement=Placement(config.kind),
            faults=config.faults,
            alarm=config.alarm,
        )
        signals = Signals()
        self.parts[name] = part = participate(
            self.store, coordinator, clock, config, lambda: told, signals=signals, repair_s=REPAIR_S
        )
        scheduler = Scheduler(
            self.store, clock, SchedulerConfig(), ownership=part.placer, signals=signals, overdue_s=SESSION_S + 1
        )
        signals.ownership_changed.on(scheduler.wake)
        tasks = [asyncio.create_task(it.run()) for it in (scheduler, *part.loops)]
        self._stack.push_async_callback(self._end, tasks)

    async def _end(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def blows(self, kind: str) -> list[Blow]:
        found = await blows(self.watcher, self.damage, self.placement, await self.store.now(), BEAT_S)
        return [it for it in found if it.kind == kind]

    async def doctor_says(self, *words: str) -> None:
        """What was put right is told, each by whoever did it, at its next look."""
        control = Control(self.store, SystemClock(), coordinator=self.watcher)
        told: set[str] = set()
        try:
            async with asyncio.timeout(BACK_S):
                while not all(any(word in it for it in told) for word in words):
                    await asyncio.sleep(0.1)
                    told = {it.what for it in await control.doctor.findings() if it.code == "repaired"}
        except TimeoutError:
            raise AssertionError(f"not all of {words} in {told}") from None

    async def comes_back(self, blow: str) -> None:
        """Everything is as it should be again, twice in a row, and every job fires."""
        left, well = ["not looked at yet"], 0
        ids = sorted((await self.store.placeable(-1)).jobs or ())
        try:
            async with asyncio.timeout(BACK_S):
                while well < 2:
                    await asyncio.sleep(0.1)
                    left = await faults(self.parts, self.watcher, self.store, ids, BEAT_S)
                    well = 0 if left else well + 1
        except TimeoutError:
            raise AssertionError(f"{blow}: {left}") from None
        since, late = await self.store.now(), set(ids)
        async with asyncio.timeout(BACK_S):
            while late:
                await asyncio.sleep(0.1)
                runs = await self.store.runs(RunFilter(limit=JOBS * 10))
                late -= {it.job_id for it in runs if it.due_at > since}


@pytest.fixture(params=COORDINATORS)
async def place(request: pytest.FixtureRequest, migrated: Migrated) -> AsyncIterator[Place]:
    async with AsyncExitStack() as stack:
        kind: str = request.param
        if kind in ("zookeeper", "etcd"):
            port = request.getfixturevalue(f"{kind}_server").port
            name = f"damage-{secrets.token_hex(4)}"
            where = CoordinatorConfig(url=f"{kind}://127.0.0.1:{port}", namespace=name, session_s=SESSION_S)
            damage: Damage = ZooKeeperDamage(port, name) if kind == "zookeeper" else EtcdDamage(port, name)
            stack.push_async_callback(damage.close)
            yield Place(stack, open_store("memory:", SystemClock(), actor="test"), where, damage)
            return
        url = "memory:" if kind == "memory" else await migrated(kind, request)
        store = open_store(url, SystemClock(), actor="test")
        stack.push_async_callback(store.close)
        if kind != "memory":
            await empty(store)
        yield Place(stack, store, CoordinatorConfig(session_s=SESSION_S), None)


@pytest.mark.prove
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.timeout(300)
async def test_a_cluster_comes_back_from_blows_to_all_keys_and_the_doctor_says_so(place: Place, placement: str) -> None:
    await place.start(placement)
    await place.damage.wipe()
    await place.comes_back("wipe")
    for blow in await place.blows("replace"):
        await blow.fall(place.damage, place.watcher)
    await place.comes_back("replace everything")
    await place.doctor_says("removed", "took part anew")


@pytest.mark.nightly
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(900)
async def test_a_cluster_comes_back_from_a_blow_to_any_key(place: Place, placement: str, kind: str) -> None:
    await place.start(placement)
    for blow in await place.blows(kind):
        await blow.fall(place.damage, place.watcher)
        await place.comes_back(str(blow))
