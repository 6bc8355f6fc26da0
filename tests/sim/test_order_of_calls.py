"""The order of the calls of placement claim, as a coordinator and a store see them (S0.26 to S0.37)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from rota.config import PlacementConfig
from rota.coordinators.memory import MemoryCoordinator
from rota.coordinators.recipes import notify, read_peer
from rota.core.define import Delete
from rota.loops.placer.claim import ClaimPlacer, read_limit
from rota.loops.placer.cluster_view import ClusterView
from rota.loops.placer.session_keeper import SessionKeeper
from rota.model.cluster import Drain, Drains, Peer, Role
from rota.sim.loop import SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore
from rota.transactions.change import change
from rota.transactions.members import drain, undrain
from tests.factories import a_definition
from tests.sim.test_scheduler import define

ME = "127.0.0.1:7700"


class Recorder(MemoryCoordinator):
    """A coordinator that writes down what it is asked."""

    def __init__(self, store: MemoryStore, clock: SimClock, calls: list[str]) -> None:
        super().__init__(store.realm, clock, ttl_s=4.0)
        self.calls = calls

    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        won = await super().claim(values)
        self.calls += [f"claim {key}" for key in won]
        return won

    async def release(self, fences: Mapping[str, int]) -> None:
        self.calls += [f"release {key}" for key in fences]
        await super().release(fences)

    async def update(self, key: str, fence: int, value: str) -> bool:
        done = await super().update(key, fence, value)
        entry = await self.get(key)
        peer = None if entry is None else read_peer(entry)
        assert peer is not None
        self.calls.append(f"update {key} n={peer.faults} M={peer.alarm} X={peer.held} N={peer.limit}")
        return done

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        self.calls.append(f"listen {folder}")
        super().listen(folder, wake)


class Listed(MemoryStore):
    """A store that writes down who reads the offline list."""

    calls: list[str]

    async def drains(self) -> Drains:
        self.calls.append("read the offline list")
        return await super().drains()


Scene = Callable[[Listed, Recorder, ClaimPlacer, list[str]], Coroutine[Any, Any, None]]


def scene(main: Scene, *, jobs: int) -> None:
    """One scheduler with n = 2 and M = 1; the scene begins before it is started."""

    async def run(loop: SimLoop) -> None:
        clock, calls = SimClock(loop, 1), list[str]()
        store = Listed(clock, actor="sim")
        store.calls = calls
        await define(store, [a_definition() for _ in range(jobs)])
        coordinator = Recorder(store, clock, calls)
        peer, view = (
            Peer(name="a", incarnation="1", address=ME, faults=2, alarm=1),
            ClusterView(store, coordinator, clock),
        )
        keeper = SessionKeeper(coordinator, clock, lambda: peer, limit=lambda: read_limit(view, 2))
        claimer = ClaimPlacer(store, coordinator, clock, PlacementConfig(faults=2), keeper, view=view, order=sorted)
        signals = keeper.signals
        signals.ownership_changed.on(lambda: calls.append("schedule"))
        signals.acquired.on(lambda count, held: calls.append(f"acquired {count}, X={held}"))
        signals.session_began.on(claimer.wake)
        signals.session_lost.on(claimer.lose)
        tasks = [asyncio.create_task(it.run()) for it in (keeper, claimer)]
        await main(store, coordinator, claimer, calls)
        for task in tasks:
            task.cancel()

    simulate(run, seed=1)


def test_a_scheduler_starts_in_the_order_of_the_document() -> None:
    """S0.26 to S0.31, S0.34, S0.36: register, n, M, balance, own listing, watch the list, grab, watch the jobs."""

    async def main(store: Listed, coordinator: Recorder, claimer: ClaimPlacer, calls: list[str]) -> None:
        await asyncio.sleep(1)
        told = [call for call in calls if not call.startswith("read")]
        assert told[:5] == [
            "claim live/a",
            "update live/a n=2 M=None X=0 N=0",
            "update live/a n=2 M=1 X=0 N=0",
            "update live/a n=2 M=1 X=0 N=3",
            "listen notice/drain",
        ]
        balance, watch = calls.index("update live/a n=2 M=1 X=0 N=3"), calls.index("listen notice/drain")
        assert "read the offline list" in calls[balance:watch]
        grabbed = ["claim jobs/1", "claim jobs/2"]
        begun = told.index("claim jobs/1")
        assert told[begun : begun + 2] == grabbed
        assert told.index("listen notice/drain") < begun < told.index("listen jobs")
        rest = told[begun + 2 :]
        assert rest[:3] == ["schedule", "update live/a n=2 M=1 X=2 N=3", "acquired 2, X=2"]

    scene(main, jobs=2)


def test_one_on_the_offline_list_grabs_nothing_and_one_taken_off_it_grabs_after_it_has_read_so() -> None:
    """S0.31 to S0.33, S0.37."""

    async def main(store: Listed, coordinator: Recorder, claimer: ClaimPlacer, calls: list[str]) -> None:
        await store.transact(drain, [Drain(name="a", roles=(Role.SCHEDULER,))])
        await asyncio.sleep(20)
        assert not [call for call in calls if call.startswith("claim jobs")]
        calls.clear()
        await store.transact(undrain, ["a"], (Role.SCHEDULER,))
        await notify(coordinator, SimClock(asyncio.get_running_loop(), 2), "drain")  # type: ignore[arg-type]
        await asyncio.sleep(1)
        assert calls.index("read the offline list") < calls.index("claim jobs/1")

    scene(main, jobs=2)


def test_a_job_that_comes_is_acquired_and_one_that_goes_is_released() -> None:
    """S0.20, S0.21, S0.35, S0.38: N is read anew for every sweep."""

    async def main(store: Listed, coordinator: Recorder, claimer: ClaimPlacer, calls: list[str]) -> None:
        await asyncio.sleep(5)
        calls.clear()
        new = a_definition("coming")
        await define(store, [new])
        claimer.wake()
        await asyncio.sleep(1)
        told = [call for call in calls if not call.startswith("read")]
        assert told[:3] == ["claim jobs/2", "schedule", "update live/a n=2 M=1 X=2 N=3"]
        calls.clear()
        await store.transact(change, [new.full_name], Delete())
        claimer.wake()
        await asyncio.sleep(1)
        told = [call for call in calls if not call.startswith("read")]
        assert told[:3] == ["release jobs/2", "schedule", "update live/a n=2 M=1 X=1 N=2"]

    scene(main, jobs=1)
