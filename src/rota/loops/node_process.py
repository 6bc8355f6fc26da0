"""Run the loops of a node in one process: in which order they start, and how they end.

open the runner ──> join ──> all loops run
drain: fire nothing more, be given nothing more, finish what is in hand, leave
stop at once: kill what is in hand, see it gone, write that, leave

Told to stop while its store is away, a node does not wait for it: after `AWAY_S` it stops at once, and what it cannot
write is left to rescue. Each step of leaving has its own bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

from rota.core.advance import Advance
from rota.errors import StoreUnavailable
from rota.logger import log
from rota.loops.executor import Executor
from rota.loops.finisher import Finisher
from rota.loops.in_hand import AttemptsInHand
from rota.loops.loop import Loop
from rota.loops.member import Identity, Member
from rota.loops.outage import Outage
from rota.loops.placer.participation import Participation
from rota.loops.scheduler import Scheduler
from rota.loops.signals import Signals
from rota.model.work import Attempt
from rota.ports import Runner, Store
from rota.transactions.members import leave, retire
from rota.waiting import first_of

AWAY_S = 10.0
"""For how long a node that drains bears with a store that is away."""
LEAVE_S = 5.0


class NodeDoor(Protocol):
    """The port at which others reach a node."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...


@dataclass(slots=True, kw_only=True)
class Execution:
    """What a node that executes has more than others."""

    runner: Runner
    in_hand: AttemptsInHand
    executor: Executor


@dataclass(slots=True, kw_only=True)
class NodeProcess:
    """Runs the loops of a node until it is told to stop."""

    store: Store
    identity: Identity
    member: Member
    firing: Sequence[Loop]
    """Loops that make new work: the first to end when the node drains."""
    working: Sequence[Loop]
    execution: Execution | None = None
    participation: Participation | None = None
    door: NodeDoor | None = None
    outages: Sequence[Outage] = ()
    """What is known of the store and the coordinator, for all loops."""
    coordinator_lost: bool = False
    """Whether it has ended because its coordinator was lost."""
    signals: Signals = field(default_factory=Signals)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _at_once: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def finished(self) -> int:
        return sum(loop.finished for loop in self.working if isinstance(loop, Finisher))

    @property
    def fired(self) -> int:
        """Runs that this node has started, or lets wait for their turn."""
        return sum(it.fired for it in self._schedulers)

    @property
    def missed(self) -> int:
        """Slots that it found too late."""
        return sum(it.missed for it in self._schedulers)

    @property
    def skipped(self) -> int:
        """Slots that an overlap policy or a calendar left out."""
        return sum(it.skipped for it in self._schedulers)

    @property
    def _schedulers(self) -> list[Scheduler]:
        return [it for it in self.firing if isinstance(it, Scheduler)]

    @property
    def in_hand(self) -> Collection[Attempt]:
        """The attempts that this node has begun or is about to begin."""
        return () if self.execution is None else self.execution.in_hand.attempts.values()

    async def run(self) -> None:
        """Run until the node has drained, or was stopped at once."""
        try:
            if self.door is not None:
                await self.door.open()
            if self.execution is not None:
                await self.execution.runner.open(self.execution.in_hand)
            async with asyncio.TaskGroup() as group:
                watching = {it.server: group.create_task(it.watch(), name=it.server) for it in self.outages}
                tasks = [group.create_task(self.member.run(self.outages), name="Member")]
                await first_of(self.member.joined.wait(), self._ending.wait())
                others = (*self.working, *self.firing) if self.member.joined.is_set() else ()
                tasks += [group.create_task(loop.run(self.outages), name=type(loop).__name__) for loop in others]
                await self._end(tasks, watching, has_begun=bool(others))
                for task in (*tasks, *watching.values()):
                    task.cancel()  # one that still waits for an answer
        finally:
            if self.execution is not None:
                await self.execution.runner.close()
            if self.door is not None:
                await self.door.close()

    def stop(self) -> None:
        """Drain, then end."""
        self._ending.set()

    def stop_at_once(self) -> None:
        """Kill what is in hand, then end."""
        self._at_once.set()
        self._ending.set()

    def lose_coordinator(self) -> None:
        """End at once, for somebody to start it again."""
        self.coordinator_lost = True
        self.stop_at_once()

    async def _end(
        self, tasks: Sequence[asyncio.Task[None]], watching: Mapping[str, asyncio.Task[None]], *, has_begun: bool
    ) -> None:
        """Leave in order. A node that was told to stop before it had joined has not begun, and drains nothing: even if
        it joins meanwhile."""
        await self._ending.wait()
        for loop in self.firing:
            loop.stop()
        if self.participation is not None:
            await self.participation.leave()
        if "coordinator" in watching:
            watching["coordinator"].cancel()  # it was closed, and must not be asked any more
        if self.execution is not None:
            if has_begun:
                await self._drain(self.execution)
            await self.execution.runner.close()
            if not self._is_store_away:
                with suppress(TimeoutError):
                    async with asyncio.timeout(LEAVE_S):
                        await self.execution.in_hand.idle.wait()  # the ends of what was killed are written
        self.member.stop()
        await asyncio.wait(tasks[:1], timeout=LEAVE_S)  # a renewal after the leave would make it join again
        await self._leave()
        for loop in self.working:
            loop.stop()
        await asyncio.wait(tasks, timeout=LEAVE_S)

    @property
    def _is_store_away(self) -> bool:
        return any(it.is_on for it in self.outages if it.server == "store")

    async def _drain(self, execution: Execution) -> None:
        """Finish what is in hand, unless told to stop at once, or the store stays away."""
        self.member.draining = True
        away = (it.lasted(AWAY_S) for it in self.outages if it.server == "store")
        await first_of(self._drained(execution.executor), self._at_once.wait(), *away)

    async def _drained(self, executor: Executor) -> None:
        while self.identity.id is not None:
            try:
                await self.store.transact(retire, self.identity.id)
                break
            except StoreUnavailable:
                await self._store_back(executor)
        executor.look()
        await executor.all_in_hand()
        self.signals.all_in_hand.emit()
        await executor.drained()

    async def _store_back(self, executor: Executor) -> None:
        await executor.pause()
        for outage in self.outages:
            if outage.server == "store":
                await outage.over()

    async def _leave(self) -> None:
        """Whatever is still in hand was seen gone, and goes back. A store that is away must not keep the process."""
        if self.identity.id is None:
            return
        if not self._is_store_away:
            with suppress(StoreUnavailable, TimeoutError):
                async with asyncio.timeout(LEAVE_S):
                    await self.store.transact(leave, self.identity.id, rule=Advance())
                return
        log.warning("node.left_unannounced", reason="the store is out of reach")
