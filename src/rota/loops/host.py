"""One process: which loops run, in which order they start, and how they end.

open the crew ──> join ──> all loops run
drain: fire nothing more, be given nothing more, finish what is in hand, leave
stop at once: kill what is in hand, see it gone, write that, leave
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from rota.errors import StoreUnavailable
from rota.loops.executor import Executor
from rota.loops.finisher import Finisher
from rota.loops.identity import Identity
from rota.loops.live import Live
from rota.loops.loop import Loop
from rota.loops.member import Member
from rota.loops.placement.part import Part
from rota.ports import Crew, Store

LEAVE_S = 5.0

log = structlog.get_logger()


class Door(Protocol):
    """What a node serves to others."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Execution:
    """What a node that executes has more than others."""

    crew: Crew
    live: Live
    executor: Executor


@dataclass(slots=True, kw_only=True)
class Host:
    """Runs the loops of a node until it is told to stop."""

    store: Store
    identity: Identity
    member: Member
    firing: Sequence[Loop]
    """Loops that make new work: the first to end when the node drains."""
    working: Sequence[Loop]
    execution: Execution | None = None
    part: Part | None = None
    door: Door | None = None
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _at_once: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def finished(self) -> int:
        """How many attempts of this node have ended."""
        return sum(loop.finished for loop in self.working if isinstance(loop, Finisher))

    async def run(self) -> None:
        """Run until the node has drained, or was stopped at once."""
        if self.door is not None:
            await self.door.open()
        if self.execution is not None:
            await self.execution.crew.open(self.execution.live)
        try:
            async with asyncio.TaskGroup() as group:
                renewing = group.create_task(self.member.run(), name="Member")
                await _first(self.member.joined.wait(), self._ending.wait())
                for loop in (*self.working, *self.firing) if self.member.joined.is_set() else ():
                    group.create_task(loop.run(), name=type(loop).__name__)
                group.create_task(self._end(renewing), name="end")
        finally:
            if self.execution is not None:
                await self.execution.crew.close()
            if self.door is not None:
                await self.door.close()

    def stop(self) -> None:
        """Drain, then end."""
        self._ending.set()

    def stop_at_once(self) -> None:
        """Kill what is in hand, then end."""
        self._at_once.set()
        self._ending.set()

    async def _end(self, renewing: asyncio.Task[None]) -> None:
        await self._ending.wait()
        for loop in self.firing:
            loop.stop()
        if self.part is not None:
            await self.part.leave()
        if self.execution is not None:
            if self.member.joined.is_set():
                await self._drain(self.execution)
            await self.execution.crew.close()
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self.execution.live.idle.wait()  # the ends of what was killed are written
        self.member.stop()
        await asyncio.wait({renewing}, timeout=LEAVE_S)  # a renewal after the leave would make it join again
        await self._leave()
        for loop in self.working:
            loop.stop()

    async def _drain(self, execution: Execution) -> None:
        """Finish what is in hand, unless told to stop at once."""
        self.member.draining = True
        await _first(self._drained(execution.executor), self._at_once.wait())

    async def _drained(self, executor: Executor) -> None:
        while self.identity.id is not None:
            try:
                await self.store.retire(self.identity.id)
                break
            except StoreUnavailable:
                await executor.pause()
        executor.look()
        await executor.drained()

    async def _leave(self) -> None:
        """Whatever is still in hand was seen gone, and goes back. A store that is away must not keep the process."""
        if self.identity.id is None:
            return
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.store.leave(self.identity.id)
        except (StoreUnavailable, TimeoutError):
            log.warning("left without a word: the store is out of reach")


async def _first(*waits: Awaitable[object]) -> None:
    """Wait until one of these is there."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
