"""The inside of the testing kit: a store in memory and the loops of a node, on virtual time, with a runner that calls
functions.

The node is put together as every node is. Of its loops only those run that something wakes: one that looks every second
would make a year of virtual time a long one.

A plain function runs to its end at once and takes no time; a coroutine runs in the loop of the kit, where waiting costs
virtual time only. How functions are called and how their ends are told is the workers' own code.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import _get_running_loop, _set_running_loop
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from rota import config
from rota.client.context import enter
from rota.control import Control
from rota.execution.kinds.python import PythonKind
from rota.execution.kinds.registry import KINDS
from rota.execution.worker import call
from rota.execution.worker.functions import imported
from rota.execution.worker.item import WorkerItem
from rota.execution.worker_protocol import TaskFault, WorkerTask, order_of
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.model.listener import is_listener
from rota.model.node import Place
from rota.model.run import TRACEBACK
from rota.model.states import Outcome
from rota.model.value import encode
from rota.model.work import Attempt, AttemptEnd
from rota.node import Parts, Ports, Tuning
from rota.ports import Clock, Listener, Store
from rota.storage.memory import MemoryStore
from rota.virtual import VirtualClock, VirtualHost, VirtualLoop

T = TypeVar("T")

NAME = "kit"
FOR_EVER_S = 1e9
LOOK_S = 3600.0
"""Nobody else changes anything, so that a scheduler need not look often."""
ALONE = Tuning(finishers=1, gather_s=0.0, rests_until_woken=True)
NOWHERE = Place(host="testing", boot_id="", pid_namespace="", pid=0, pid_started=0)


class InlineRunner:
    """Calls functions instead of starting processes."""

    boundary = "inline"

    def __init__(
        self, functions: Mapping[str, Callable[..., Any]], clock: Clock, *, on_outside: Callable[[], None]
    ) -> None:
        self._functions = functions
        self._clock = clock
        self._listener: Listener | None = None
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self.raised: dict[int, BaseException] = {}
        """What the last attempt at an item raised."""
        self._on_outside = on_outside
        """Called before an item starts that is finished from outside."""

    async def open(self, listener: Listener) -> None:
        self._listener = listener

    def here(self) -> Place:
        return NOWHERE

    def gone(self, place: Place) -> bool:
        return False

    def renew(self, until_s: float) -> None:
        """There is nothing that could outlive its node."""

    def unable(self) -> str:
        return ""

    def begin(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            if attempt.spec.external:
                self._on_outside()
            self._begin(attempt, self._clock.monotonic())

    def cancel(self, item_ids: Sequence[int]) -> None:
        for item_id in item_ids:
            if item_id in self._tasks:
                self._tasks[item_id].cancel()

    def drop(self, attempts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """There is nothing that its store could lose."""
        return []

    async def close(self) -> None:
        self.cancel(list(self._tasks))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begin(self, attempt: Attempt, started_s: float) -> None:
        item = _item(attempt)
        try:
            value = self._called(item)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            self._end(attempt, self._failed(item, error), started_s)
            return
        if inspect.isawaitable(value):
            self._tasks[item.number] = asyncio.ensure_future(self._awaited(attempt, item, value, started_s))
        else:
            self._end(attempt, self._returned(item, value), started_s)

    def _called(self, item: WorkerItem) -> Any:
        caller = call.Caller(self._function(item.task), listens=is_listener(item.task.what))
        arguments = {} if caller.listens else caller.arguments(item)
        enter(item.context)
        try:
            with nobody_running():
                return caller.function(item.told()) if caller.listens else caller.function(**arguments)
        finally:
            enter(None)

    def _function(self, task: WorkerTask) -> Callable[..., Any]:
        if task.what in self._functions:
            return self._functions[task.what]
        if not isinstance(KINDS.find(task.runner), PythonKind) or ":" not in task.what:
            raise LookupError(f"the testing kit cannot run this: {task.runner} {task.what}; it calls functions only")
        return imported(task.what)

    async def _awaited(self, attempt: Attempt, item: WorkerItem, value: Any, started_s: float) -> None:
        assert self._listener is not None
        enter(item.context)
        self._listener.started([(attempt.item_id, attempt.attempt, started_s)])
        limit = asyncio.timeout(attempt.spec.timeout_s)
        try:
            async with limit:
                ending = self._returned(item, await value)
        except asyncio.CancelledError:
            ending = _Ending(Outcome.CANCELLED, message="cancelled")
        except TimeoutError as error:
            late = _Ending(Outcome.TIMED_OUT, "timeout", f"took longer than {attempt.spec.timeout_s:g} s")
            ending = late if limit.expired() else self._failed(item, error)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            ending = self._failed(item, error)
        del self._tasks[item.number]
        self._end(attempt, ending, started_s)

    def _returned(self, item: WorkerItem, value: Any) -> _Ending:
        try:
            return _Ending(Outcome.SUCCEEDED, result=call.encoded(value))
        except TaskFault as error:
            return self._failed(item, error)

    def _failed(self, item: WorkerItem, error: BaseException) -> _Ending:
        if isinstance(error, KeyboardInterrupt):
            raise error
        if call.succeeds(error):
            return _Ending(Outcome.SUCCEEDED)
        self.raised[item.number] = error
        told = call.failure(item, error)
        result = None if not told.traceback else encode({TRACEBACK: told.traceback})
        return _Ending(Outcome.FAILED, told.cause, told.message, result=result, code=told.code)

    def _end(self, attempt: Attempt, ending: _Ending, started_s: float) -> None:
        assert self._listener is not None
        what = {"item_id": attempt.item_id, "attempt": attempt.attempt, **ending._asdict()}
        self._listener.ended([AttemptEnd(started_s=started_s, ended_s=self._clock.monotonic(), **what)])


class _Ending(NamedTuple):
    """How an attempt ended, in words."""

    outcome: Outcome
    cause: str = ""
    message: str = ""
    result: str | None = None
    code: int | None = None


@contextmanager
def nobody_running() -> Iterator[None]:
    """Hide the loop that runs here, so that a function may run one of its own, as in a process of its own."""
    running = _get_running_loop()
    _set_running_loop(None)
    try:
        yield
    finally:
        _set_running_loop(running)


def _item(attempt: Attempt) -> WorkerItem:
    """An attempt as workers see it. The item's id is its number here."""
    told = attempt.spec.config
    what = str(told.get("listener") or told.get("handler") or told.get("function") or "")
    task = WorkerTask(0, attempt.spec.name, attempt.spec.tenant, attempt.spec.task, attempt.spec.runner, what)
    return WorkerItem(order_of(attempt, attempt.item_id, 0), task)


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
            host=VirtualHost("", self._runner),
            runner=self._runner,
            apps=KitApps(functions),
        )
        self._node = node = Parts(_config(seats), ports, ALONE)
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
        await self._runner.open(self._node.in_hand)
        await self._node.member.once()
        self._tasks = [asyncio.ensure_future(loop.run()) for loop in self._loops]

    async def _stop(self) -> None:
        await self._runner.close()
        for loop in self._loops:
            loop.stop()
        await asyncio.gather(*self._tasks)

    def wake(self) -> None:
        self._node.scheduler.wake()
        self._node.dispatcher.wake()

    async def changed(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def raised(self, *item_ids: int) -> BaseException | None:
        """What the function of one of these items raised last."""
        return next((self._runner.raised[it] for it in item_ids if it in self._runner.raised), None)

    def _watch_outside(self) -> None:
        """Items that are finished from outside can run out of time: from now on somebody looks."""
        expirer = self._node.expirer
        if expirer not in self._loops:
            self._loops.append(expirer)
            self._tasks.append(asyncio.ensure_future(expirer.run()))


def _config(seats: int) -> config.Config:
    return config.Config(
        store=config.StoreConfig(url="memory:", may_forget=True),
        node=config.NodeConfig(name=NAME),
        placement=config.PlacementConfig(kind="none"),
        scheduler=config.SchedulerConfig(look_s=LOOK_S),
        lease=config.LeaseConfig(lease_s=FOR_EVER_S),
        dispatch=config.DispatchConfig(idle_s=FOR_EVER_S),
        executor=config.ExecutorConfig(seats=seats),
    )
