"""A scheduler that is told to stop leaves for good, and says nothing of a session that it ended itself."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from rota.backends.memory import MemoryStore
from rota.backends.memory.coordinator import MemoryCoordinator
from rota.clock import SystemClock
from rota.errors import SessionLost
from rota.loops.loop import Loop
from rota.loops.placement.attendant import Attendant
from rota.model.cluster import Peer
from rota.model.folders import LIVE


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
    attendant = Attendant(coordinator, SystemClock(), lambda: Peer(name="a", incarnation="1", address="127.0.0.1:7700"))
    entering = asyncio.create_task(attendant.run())
    await coordinator.asked.wait()
    leaving = asyncio.create_task(attendant.leave())
    await asyncio.sleep(0)
    coordinator.answer.set()
    await asyncio.gather(entering, leaving)
    assert (coordinator.session, attendant.session) == (None, None)
    assert await coordinator.keys(LIVE) == frozenset()
    await attendant.once()
    assert await coordinator.keys(LIVE) == frozenset()


class Late(Loop):
    """Finds its session gone; when it is told so, because this node is stopping."""

    def __init__(self, *, stopping: bool) -> None:
        super().__init__(SystemClock())
        self._when = stopping

    async def once(self) -> float:
        if self._when:
            self.stop()
        raise SessionLost("over")


@pytest.mark.parametrize("stopping", [True, False])
async def test_a_session_is_lost_only_where_nobody_ended_it(*, stopping: bool) -> None:
    loop = Late(stopping=stopping)
    with capture_logs() as lines:
        await loop._round()
    assert [line["event"].partition(";")[0] for line in lines] == ([] if stopping else ["the session was lost"])
