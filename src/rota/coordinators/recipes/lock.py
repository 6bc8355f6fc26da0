"""A lock that one task of the cluster has at a time, and may take again while it has it (S0.2, S0.3).

    free ──claim──> held, once ──enter──> held, twice ──leave──> held, once ──leave──> free
                      └── the session ends: whoever held it finds out at its next fenced write

A lock says who should try. What must not be done twice is fenced where it is written, by `fence` or otherwise.
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from rota.ports import Clock, Coordinator

LOOK_S = 0.5
"""How often whoever waits looks by itself, whether it was woken or not."""


class Lock:
    """One lock, as one client sees it. Use it as `async with lock:`."""

    def __init__(self, coordinator: Coordinator, clock: Clock, name: str) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._key = f"lock/{name}"
        self._task: asyncio.Task[object] | None = None
        self._depth = 0
        self._turn = asyncio.Lock()
        self._news = asyncio.Event()
        self._listening = False
        self.fence = 0
        """The number of this holding; a later one has a higher."""

    async def __aenter__(self) -> Self:
        if self._task is not asyncio.current_task():
            await self._turn.acquire()
            try:
                await self._claim()
            except BaseException:
                self._turn.release()
                raise
            self._task = asyncio.current_task()
        self._depth += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._task = None
        try:
            await self._coordinator.release({self._key: self.fence})
        finally:
            self._turn.release()

    async def _claim(self) -> None:
        if not self._listening:
            self._listening = True
            self._coordinator.listen("lock", self._news.set)
        while True:
            self._news.clear()
            won = await self._coordinator.claim({self._key: self._coordinator.session or ""})
            if self._key in won:
                self.fence = won[self._key]
                return
            await self._wait()

    async def _wait(self) -> None:
        looking = asyncio.ensure_future(self._clock.sleep(LOOK_S))
        told = asyncio.ensure_future(self._news.wait())
        try:
            await asyncio.wait({looking, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            looking.cancel()
            told.cancel()
