"""The inside of the testing kit: a store in memory and the loops of a node, on virtual time, with a runner that calls
functions.

The node is put together as every node is. Of its loops only those run that something wakes: one that looks every second
would make a year of virtual time a long one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from rota.client.inline import NOWHERE, InlineRunner, nobody_running
from rota.config import (
    Config,
    CoordinatorConfig,
    DefinitionsConfig,
    DispatchConfig,
    ExecutorConfig,
    LeaseConfig,
    LogsConfig,
    NodeConfig,
    PlacementConfig,
    RetentionConfig,
    SchedulerConfig,
    StoreConfig,
)
from rota.control import Control
from rota.loops.identity import Identity
from rota.loops.loop import Loop
from rota.model.node import Place
from rota.model.run import Item
from rota.node import Ports, Tuning, build
from rota.ports import Store
from rota.storage.memory import MemoryStore
from rota.virtual import VirtualClock, VirtualLoop

T = TypeVar("T")

NAME = "kit"
FOR_EVER_S = 1e9
LOOK_S = 3600.0
"""Nobody else changes anything, so that a scheduler need not look often."""
ALONE = Tuning(finishers=1, gather_s=0.0, rests_until_woken=True)


class KitHost:
    """What the node of a kit asks of its host (`HostFacts`): nothing is known, and nothing is busy."""

    address = ""
    skew_s = None

    def place(self) -> Place:
        return NOWHERE

    def is_gone(self, place: Place) -> bool:
        return False

    def cpu(self) -> float:
        return 0.0

    def memory(self) -> float:
        return 0.0

    def kinds(self) -> tuple[str, ...]:
        return ()

    def promises(self, boundary: str) -> dict[str, str]:
        return {}


class KitApps:
    """What the node of a kit can call (`Apps`)."""

    listeners = ()
    homes = ()
    digest = ""

    def __init__(self, functions: Mapping[str, Callable[..., Any]]) -> None:
        self.handlers = tuple(functions)


class Engine:
    """One node, all of whose work happens in a loop of its own, and only while somebody runs it."""

    def __init__(self, functions: Mapping[str, Callable[..., Any]], now: datetime, seats: int) -> None:
        self._loop = VirtualLoop()
        self.clock = clock = VirtualClock(self._loop, NAME, now)
        self.store: Store = MemoryStore(clock, actor=NAME)
        self.control = Control(self.store, clock)
        self._runner = InlineRunner(functions, clock, on_outside=self._watch_outside)
        self._changed = asyncio.Event()
        ports = Ports(
            store=self.store,
            clock=clock,
            identity=Identity(NAME),
            host=KitHost(),
            runner=self._runner,
            apps=KitApps(functions),
        )
        self._node = node = build(_config(seats), ports, ALONE)
        assert node.executor is not None
        self._loops: list[Loop] = [node.scheduler, node.dispatcher, node.executor, *node.finishers]
        self._tasks: list[asyncio.Task[None]] = []
        node.signals.committed.on(self._changed.set)

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
        await self._runner.open(self._node.in_hand)
        await self._node.member.once()
        self._tasks = [asyncio.ensure_future(loop.run()) for loop in self._loops]

    async def _stop(self) -> None:
        await self._runner.close()
        for loop in self._loops:
            loop.stop()
        await asyncio.gather(*self._tasks)

    def wake(self) -> None:
        """Something may have changed."""
        self._node.scheduler.wake()
        self._node.dispatcher.wake()

    async def changed(self) -> None:
        """Wait until an attempt has ended."""
        self._changed.clear()
        await self._changed.wait()

    def raised(self, items: Sequence[Item]) -> BaseException | None:
        """What the function of one of these items raised last."""
        return next((self._runner.raised[item.id] for item in items if item.id in self._runner.raised), None)

    def raised_by(self, item_id: int) -> BaseException | None:
        """What the function of an item raised last."""
        return self._runner.raised.get(item_id)

    def _watch_outside(self) -> None:
        """Items that are finished from outside can run out of time: from now on somebody looks."""
        expirer = self._node.expirer
        if expirer not in self._loops:
            self._loops.append(expirer)
            self._tasks.append(asyncio.ensure_future(expirer.run()))


def _config(seats: int) -> Config:
    return Config(
        store=StoreConfig(url="memory:", may_forget=True),
        node=NodeConfig(name=NAME),
        coordinator=CoordinatorConfig(),
        placement=PlacementConfig(kind="none"),
        scheduler=SchedulerConfig(look_s=LOOK_S),
        lease=LeaseConfig(lease_s=FOR_EVER_S),
        dispatch=DispatchConfig(idle_s=FOR_EVER_S),
        executor=ExecutorConfig(seats=seats),
        retention=RetentionConfig(),
        logs=LogsConfig(),
        definitions=DefinitionsConfig(path="", watch_s=LOOK_S, sweep_s=LOOK_S),
    )
