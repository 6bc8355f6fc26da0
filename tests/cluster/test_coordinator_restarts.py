"""A coordinator that is restarted again and again leaves every job firing; sessions come back by themselves (P9, P15;
docs/failure.md). Lost coordinators: `continue`, `stop` and `exit`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.config import CoordinatorConfig, PlacementConfig, SchedulerConfig
from rota.control import Control
from rota.loops.placer.claim import ClaimPlacer
from rota.loops.placer.participation import Participation, participate
from rota.loops.scheduler import Scheduler
from rota.loops.signals import Signals
from rota.model.cluster import Peer
from rota.model.plan import RunFilter
from rota.model.run import Run
from rota.model.trigger import Every
from rota.ports import Store
from rota.wiring import open_coordinator, open_store
from tests.cluster.processes import LEEWAY_S
from tests.conftest import installed
from tests.factories import a_definition, allow
from tests.servers.etcd import EtcdServer
from tests.servers.process import PrivateServer
from tests.servers.zookeeper import ZooKeeperServer

JOBS = 12
SESSION_S = 4.0
SERVERS = {"zookeeper": ZooKeeperServer, "etcd": EtcdServer}


class Stage:
    """Two schedulers in this process, on one file and one server."""

    def __init__(self, stack: AsyncExitStack, store: Store, kind: str, server: PrivateServer) -> None:
        self._stack, self._kind = stack, kind
        self.store, self.server = store, server
        self.control = Control(store, SystemClock())
        self.parts: list[Participation] = []
        self.exits: list[str] = []

    def start(self, name: str, on_lost: str = "continue") -> None:
        clock = SystemClock()
        where = CoordinatorConfig(url=f"{self._kind}://127.0.0.1:{self.server.port}", session_s=SESSION_S)
        coordinator = open_coordinator(where, self.store, clock)
        peer = Peer(name=name, incarnation=clock.token(), address=f"{name}:7700")
        signals, config = Signals(), PlacementConfig()
        part = participate(self.store, coordinator, clock, config, lambda: peer, signals=signals, on_lost=on_lost)
        scheduler = Scheduler(
            self.store, clock, SchedulerConfig(), ownership=part.placer, signals=signals, overdue_s=SESSION_S + 1
        )
        signals.ownership_changed.on(scheduler.wake)
        signals.coordinator_given_up.on(lambda: self.exits.append(name))
        self.parts.append(part)
        tasks = [asyncio.create_task(it.run()) for it in (scheduler, *part.loops)]
        self._stack.push_async_callback(self._end, tasks, part)

    async def _end(self, tasks: list[asyncio.Task[None]], part: Participation) -> None:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await part.coordinator.close()

    def held(self) -> int:
        return sum(len(part.placer.held) for part in self.parts if isinstance(part.placer, ClaimPlacer))

    async def until(self, what: str, within_s: float, condition: object) -> None:
        assert callable(condition)
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"waited {within_s:g} s for {what}: {self.held()} jobs are held") from None

    async def fired(self, until: float, within_s: float) -> tuple[Run, ...]:
        """Wait until every job has fired a slot at `until` or later; all runs."""
        give_up = asyncio.get_running_loop().time() + within_s
        while True:
            runs = await self.store.runs(RunFilter(limit=100_000))
            last = {job_id: max(slots) for job_id, slots in slots_of(runs).items()}
            if sum(slot >= until for slot in last.values()) == JOBS:
                return runs
            late = f"waited {within_s:g} s for all jobs to fire; before {until}: {last}, {self.held()} are held"
            assert asyncio.get_running_loop().time() < give_up, late
            await asyncio.sleep(0.2)


def slots_of(runs: Iterable[Run]) -> dict[int, list[float]]:
    """The slots that were fired, by job."""
    found: dict[int, list[float]] = {}
    for run in runs:
        assert run.slot_at is not None
        found.setdefault(run.job_id, []).append(run.slot_at.timestamp())
    return found


@asynccontextmanager
async def a_stage(kind: str, folder: Path) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(installed(SERVERS[kind]))
        store = open_store(f"sqlite:///{folder}/rota.db", SystemClock(), actor="test")
        stack.push_async_callback(store.close)
        await store.migrate()
        stage = Stage(stack, store, kind, server)
        rule = Every(every_s=1)
        await stage.control.jobs.apply([a_definition(f"job-{n}", rule=rule, overlap=allow(10**6)) for n in range(JOBS)])
        yield stage


async def restarted(kind: str, folder: Path, times: int) -> None:
    async with a_stage(kind, folder) as stage:
        stage.start("a")
        stage.start("b")
        await stage.until("all jobs to have owners", 30, lambda: stage.held() == JOBS)
        for number in range(times):
            await asyncio.to_thread(stage.server.kill if number % 2 else stage.server.stop)
            await asyncio.to_thread(stage.server.start)
        await stage.until("all jobs to have owners again", 30, lambda: stage.held() == JOBS)
        runs = await stage.fired((await stage.store.now()).timestamp() + 2, within_s=30)
        for slots in slots_of(runs).values():
            assert sorted(slots) == list(range(int(min(slots)), int(max(slots)) + 1))
        late = max((run.created_at - run.due_at).total_seconds() for run in runs)
        print(f"\n{kind}: {times} restarts, {len(runs)} runs, latest {late:.1f} s")
        assert late <= SESSION_S + 1 + LEEWAY_S, "what is overdue by a session and a second, anybody fires"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", SERVERS)
async def test_eight_restarts_leave_every_job_firing(kind: str, tmp_path: Path) -> None:
    await restarted(kind, tmp_path, 8)


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", SERVERS)
async def test_fifty_restarts_leave_every_job_firing(kind: str, tmp_path: Path) -> None:
    await restarted(kind, tmp_path, 50)


@pytest.mark.timeout(120)
async def test_what_a_scheduler_does_without_its_coordinator_is_as_it_was_told(tmp_path: Path) -> None:
    """Going on, stopping (the overdue rule remains), or asking for the end of the process; and all come back."""
    async with a_stage("etcd", tmp_path) as stage:
        stage.start("goes-on", "continue")
        stage.start("stops", "stop")
        stage.start("ends", "exit")
        claimers = [part.placer for part in stage.parts if isinstance(part.placer, ClaimPlacer)]
        await stage.until("each to have its share", 60, lambda: [len(it.held) for it in claimers] == [JOBS // 3] * 3)
        owned = [set(it.held) for it in claimers]
        await asyncio.to_thread(stage.server.kill)
        await stage.until("one to ask for its end", 30, lambda: stage.exits == ["ends"] * max(len(stage.exits), 1))
        now = await stage.store.now()
        mine = {part.keeper.peer.name: part.placer for part in stage.parts}
        await stage.until("one to stop", 30, lambda: not any(mine["stops"].owns(job_id, now) for job_id in owned[1]))
        assert all(mine["goes-on"].owns(job_id, now) for job_id in owned[0])
        await asyncio.to_thread(stage.server.start)
        await stage.until("all jobs to have owners again", 30, lambda: stage.held() == JOBS)
        await stage.until(
            "the one that stopped to go on",
            30,
            lambda: any(mine["stops"].owns(job_id, now) for job_id in range(1, JOBS + 1)),
        )
