"""The inside of the testing kit: a store in memory and the loops of a node, on virtual time, with a crew that calls
functions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from rota.backends.memory import MemoryStore
from rota.client.inline import NOWHERE, InlineCrew, nobody_running
from rota.config import DispatchConfig, ExecutorConfig, LeaseConfig, SchedulerConfig
from rota.control import Control
from rota.loops.dispatcher import Dispatcher
from rota.loops.executor import Executor
from rota.loops.finisher import Finisher
from rota.loops.identity import Identity
from rota.loops.live import Live
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.loops.rescuer import Rescuer
from rota.loops.scheduler import Scheduler
from rota.model.node import NewNode
from rota.model.run import Item
from rota.ports import Store
from rota.virtual import VirtualClock, VirtualLoop

T = TypeVar("T")

FOR_EVER_S = 1e9
LOOK_S = 3600.0
"""Nobody else changes anything, so that a scheduler need not look often."""


class Engine:
    """One node, all of whose work happens in a loop of its own, and only while somebody runs it."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], now: datetime, seats: int) -> None:
        self._loop = VirtualLoop()
        self.clock = clock = VirtualClock(self._loop, "kit", now)
        self.store: Store = MemoryStore(clock, actor="kit")
        self.control = Control(self.store, clock)
        store = self.store
        self._functions = functions
        self._seats = seats
        self._identity = Identity("kit")
        self._live = Live()
        self._crew = InlineCrew(functions, clock)
        self._crew.on_outside = self._watch_outside
        self._changed = asyncio.Event()
        loader = Loader(store)
        parts = (store, clock, ExecutorConfig(seats=seats), self._identity)
        executor = Executor(*parts, self._crew, self._live, loader)
        self._finisher = Finisher(*parts, self._live, loader)
        self._dispatcher = Dispatcher(
            store, clock, DispatchConfig(idle_s=FOR_EVER_S), self._identity, executor, hears=True
        )
        self._scheduler = Scheduler(store, clock, SchedulerConfig(look_s=LOOK_S))
        self._rescuer = Rescuer(store, clock, LeaseConfig(), self._identity, self._crew, loader)
        self._loops: list[Loop] = [self._scheduler, self._dispatcher, executor, self._finisher]
        self._tasks: list[asyncio.Task[None]] = []
        self._live.wake_finisher = self._finisher.wake
        self._scheduler.on_fired = lambda _: self._dispatcher.wake()
        self._finisher.on_finished = self._finished

    @property
    def is_running(self) -> bool:
        return self._loop.is_running()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the loop run until this is done. Whoever asks may be a coroutine of another loop."""
        with nobody_running():
            return self._loop.run_until_complete(work)

    def run_now(self, work: Coroutine[Any, Any, T]) -> T:
        """The same inside of the loop, for work that does not wait: a store in memory never does."""
        try:
            work.send(None)
        except StopIteration as answer:
            self.wake()
            return answer.value  # type: ignore[no-any-return]
        raise AssertionError("a question to a kit had to wait")

    async def settle(self) -> None:
        """Let everything happen that can happen at this instant."""
        self.wake()
        await self.clock.sleep(0)
        while not self._loop.is_settled:
            await self.clock.sleep(0)

    def close(self) -> None:
        self.run(self._stop())
        self._loop.close()

    async def start(self) -> None:
        """Join, and begin."""
        await self._crew.open(self._live)
        node = NewNode(
            name=self._identity.name,
            incarnation="kit",
            place=NOWHERE,
            seats=self._seats,
            handlers=tuple(self._functions),
            boundary=self._crew.boundary,
        )
        joined = await self.store.join(node, lease_s=FOR_EVER_S)
        self._identity.id = joined.id
        self._tasks = [asyncio.ensure_future(loop.run()) for loop in self._loops]

    async def _stop(self) -> None:
        await self._crew.close()
        for loop in self._loops:
            loop.stop()
        await asyncio.gather(*self._tasks)

    def wake(self) -> None:
        """Something may have changed."""
        self._scheduler.wake()
        self._dispatcher.wake()

    async def changed(self) -> None:
        """Wait until an attempt has ended."""
        self._changed.clear()
        await self._changed.wait()

    def raised(self, items: Sequence[Item]) -> BaseException | None:
        """What the function of one of these items raised last."""
        return next((self._crew.raised[item.id] for item in items if item.id in self._crew.raised), None)

    def raised_by(self, item_id: int) -> BaseException | None:
        """What the function of an item raised last."""
        return self._crew.raised.get(item_id)

    def _finished(self) -> None:
        self._changed.set()
        self._dispatcher.wake()

    def _watch_outside(self) -> None:
        """Items that are finished from outside can run out of time: from now on somebody looks."""
        if self._rescuer not in self._loops:
            self._loops.append(self._rescuer)
            self._tasks.append(asyncio.ensure_future(self._rescuer.run()))
