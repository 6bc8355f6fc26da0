"""A runner without processes, for the testing kit: functions of apps are called right here, in the order of dispatch.

A plain function runs to its end at once and takes no time; a coroutine runs in the loop of the kit, where waiting costs
virtual time only. How functions are called and how their ends are told is the workers' own code.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
from asyncio import _get_running_loop, _set_running_loop
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rota.client.context import enter
from rota.execution.kinds.python import PythonKind
from rota.execution.kinds.registry import KINDS
from rota.execution.worker import call
from rota.execution.worker.errors import TaskFault
from rota.execution.worker.item import WorkerItem
from rota.execution.worker_protocol import AttemptOrder, WorkerTask
from rota.model.listener import is_listener
from rota.model.moment import micros
from rota.model.node import Place
from rota.model.run import TRACEBACK
from rota.model.states import Outcome
from rota.model.value import encode
from rota.model.work import Attempt, AttemptEnd
from rota.ports import Clock, Listener

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
            value = self._called(attempt, item)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            self._end(attempt, self._failed(item, error), started_s)
            return
        if inspect.isawaitable(value):
            self._tasks[item.number] = asyncio.ensure_future(self._awaited(attempt, item, value, started_s))
        else:
            self._end(attempt, self._returned(item, value), started_s)

    def _called(self, attempt: Attempt, item: WorkerItem) -> Any:
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
        module, _, path = task.what.partition(":")
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        return found  # type: ignore[no-any-return]

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
        end = AttemptEnd(
            item_id=attempt.item_id,
            attempt=attempt.attempt,
            outcome=ending.outcome,
            started_s=started_s,
            ended_s=self._clock.monotonic(),
            code=ending.code,
            cause=ending.cause,
            message=ending.message,
            result=ending.result,
        )
        self._listener.ended([end])


class _Ending:
    """How an attempt ended, in words."""

    def __init__(
        self,
        outcome: Outcome,
        cause: str = "",
        message: str = "",
        *,
        result: str | None = None,
        code: int | None = None,
    ) -> None:
        self.outcome = outcome
        self.cause = cause
        self.message = message
        self.result = result
        self.code = code


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
    config = attempt.spec.config
    what = str(config.get("listener") or config.get("handler") or config.get("function") or "")
    task = WorkerTask(0, attempt.spec.name, attempt.spec.tenant, attempt.spec.task, attempt.spec.runner, what)
    order = AttemptOrder(
        attempt.item_id,
        0,
        attempt.item_id,
        attempt.attempt,
        attempt.token,
        attempt.run_id,
        attempt.index,
        attempt.idempotency_key,
        attempt.params or None,
        attempt.number,
        attempt.info,
        None if attempt.slot_at is None else micros(attempt.slot_at),
        None,
    )
    return WorkerItem(order, task)
