"""A scheduler that is told to stop leaves for good, and says nothing of a session that it ended itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from structlog.testing import capture_logs

from rota.clock import SystemClock
from rota.coordinators.memory import MemoryCoordinator
from rota.coordinators.recipes import read_peer
from rota.errors import CoordinatorUnavailable, SessionLost
from rota.loops.loop import Loop
from rota.loops.placer.session_keeper import SessionKeeper
from rota.model.cluster import Peer
from rota.model.folders import LIVE
from rota.storage.memory import MemoryStore


class Slow(MemoryCoordinator):
    """Takes its time to begin a session."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store.realm, SystemClock(), ttl_s=60.0)
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def join(self) -> str:
        self.asked.set()
        await self.answer.wait()
        return await super().join()


async def test_one_that_leaves_while_it_enters_is_not_there_afterwards() -> None:
    coordinator = Slow(MemoryStore(SystemClock(), actor="test"))
    keeper = SessionKeeper(
        coordinator, SystemClock(), lambda: Peer(name="a", incarnation="1", address="127.0.0.1:7700")
    )
    entering = asyncio.create_task(keeper.run())
    await coordinator.asked.wait()
    leaving = asyncio.create_task(keeper.leave())
    await asyncio.sleep(0)
    coordinator.answer.set()
    await asyncio.gather(entering, leaving)
    assert (coordinator.session, keeper.session) == (None, None)
    assert await coordinator.keys(LIVE) == frozenset()
    await keeper.once()
    assert await coordinator.keys(LIVE) == frozenset()


class Late(Loop):
    """Finds its session gone; when it is told so, because this node is stopping."""

    def __init__(self, *, stopping: bool) -> None:
        super().__init__(SystemClock())
        self._when = stopping

    async def once(self) -> float:
        if self._when or self.failures:
            self.stop()
        raise SessionLost("over")


@pytest.mark.parametrize("stopping", [True, False])
async def test_a_session_is_lost_only_where_nobody_ended_it(*, stopping: bool) -> None:
    loop = Late(stopping=stopping)
    with capture_logs() as lines:
        await loop.run()
    assert [line["event"] for line in lines] == ([] if stopping else ["loop.session_lost"])


class Breaking(MemoryCoordinator):
    """Is out of reach when it is asked for the n-th time."""

    def __init__(self, store: MemoryStore, breaks_at: int) -> None:
        super().__init__(store.realm, SystemClock(), ttl_s=60.0)
        self._left = breaks_at

    def _count(self) -> None:
        self._left -= 1
        if self._left == 0:
            raise CoordinatorUnavailable("cut off")

    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        self._count()
        return await super().claim(values)

    async def update(self, key: str, fence: int, value: str) -> bool:
        self._count()
        return await super().update(key, fence, value)

    async def put(self, key: str, value: str, *, version: int | None = None) -> int | None:
        self._count()
        return await super().put(key, value, version=version)


@pytest.mark.parametrize("breaks_at", range(1, 6))
async def test_one_whose_entering_fails_half_way_enters_as_a_whole_the_next_time(breaks_at: int) -> None:
    """It claims its name, tells n, M and its balance, and puts itself on the list: five requests."""
    coordinator = Breaking(MemoryStore(SystemClock(), actor="test"), breaks_at)
    told = Peer(name="a", incarnation="1", address="127.0.0.1:7700", faults=2, alarm=7)
    keeper, entered, exits = SessionKeeper(coordinator, SystemClock(), lambda: told, on_lost="exit"), [], []
    keeper.signals.session_began.on(lambda: entered.append(1))
    keeper.signals.coordinator_given_up.on(lambda: exits.append(1))
    await a_round(keeper)
    assert (keeper.session, entered, exits) == (None, [], [])
    await a_round(keeper)
    entry, listed = await coordinator.get("live/a"), await coordinator.get("all/a")
    assert entry is not None
    assert listed is not None
    assert read_peer(entry) == told
    assert (keeper.session, entered) == (coordinator.session, [1])
    coordinator.believed_until_s, coordinator._left = 0.0, 1
    coordinator.renew = unreachable  # type: ignore[method-assign]
    await a_round(keeper)
    assert exits == [1]


async def unreachable() -> bool:
    raise CoordinatorUnavailable("cut off")


async def a_round(keeper: SessionKeeper) -> None:
    try:
        await keeper.once()
    except CoordinatorUnavailable as fault:
        await keeper._recover(fault)
