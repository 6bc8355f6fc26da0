"""A worker that runs several items of one task at a time: coroutines in its event loop, plain functions in threads.

The context variable of the printing code says to which item output belongs. The time of an attempt counts from its
start, so a thread reports starts while a coroutine blocks the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any, Protocol

import msgspec

from rota.client.context import enter
from rota.execution.isolation import kernel
from rota.execution.kinds.kind import WorkerKind
from rota.execution.kinds.registry import KINDS
from rota.execution.worker import call
from rota.execution.worker.call import Caller
from rota.execution.worker.channel import EXIT_CUT_OFF, AgentChannel, Outbox, end
from rota.execution.worker.clock import monotonic
from rota.execution.worker.functions import Functions
from rota.execution.worker.item import WorkerItem
from rota.execution.worker.leftovers import OWN, Leftovers
from rota.execution.worker.stdio import Outputs, OutputText, flush_c
from rota.execution.worker_protocol import LOOP, PIECE, THREAD, AttemptOrder, Orders, Setup, WorkerTask

PRINTED_S = 1.0
"""How long output may wait in the worker."""
PATIENCE_S = 0.02
"""How long the loop may take to report a start itself before a thread does."""

_decode = msgspec.msgpack.Decoder(Orders).decode
_item: ContextVar[WorkerItem | None] = ContextVar("rota_item", default=None)


class Countdown(Protocol):
    """Lets a thread sleep until the loop has said nothing for a while."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def wait(self) -> None:
        """Return when it has run out."""
        ...


class StartReporter:
    """A thread that reports what the loop did not report in time. It sleeps as long as the loop does."""

    def __init__(self, may_be_late: Callable[[], bool], report: Callable[[], None]) -> None:
        """`may_be_late`: whether starts wait to be reported, or items to be started."""
        self._may_be_late = may_be_late
        self._report = report
        timer = kernel.new_timer()
        self._countdown: Countdown = EventCountdown() if timer is None else TimerCountdown(timer)
        threading.Thread(target=self._run, name="rota-starts", daemon=True).start()

    def watch(self) -> None:
        """The loop is about to start items."""
        self._countdown.start()

    def rest(self) -> None:
        """The loop has reported all starts."""
        self._countdown.stop()

    def _run(self) -> None:
        while True:
            try:
                self._countdown.wait()
            except OSError:  # user code has closed all descriptors
                return
            if self._may_be_late():
                self._report()
                self._countdown.start()


class TimerCountdown:
    """A timer of the kernel: to set it wakes nobody."""

    def __init__(self, timer: int) -> None:
        self._timer = timer

    def start(self) -> None:
        kernel.set_timer(self._timer, PATIENCE_S)

    def stop(self) -> None:
        kernel.set_timer(self._timer, 0.0)

    def wait(self) -> None:
        os.read(self._timer, 8)


class EventCountdown:
    """Where the kernel has no such timers."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._pause = threading.Event()

    def start(self) -> None:
        self._started.set()

    def stop(self) -> None:
        """It runs out, and nothing is late then."""

    def wait(self) -> None:
        self._started.wait()
        self._started.clear()
        self._pause.wait(PATIENCE_S)


class SharedWorker:
    """Serves many orders at a time."""

    def __init__(self, channel: AgentChannel, functions: Functions, outputs: Outputs, setup: Setup) -> None:
        self._channel = channel
        self._outbox = Outbox(channel)
        self._functions = functions
        self._outputs = outputs
        self._unstarted = 0
        """How many items have not begun yet."""
        self._start_reporter = StartReporter(
            lambda: self._unstarted > 0 or self._outbox.has_starts, self._outbox.flush_starts
        )
        self._leftovers = Leftovers()  # it knows the threads that are there by now
        self._ended: list[int] = []
        self._setup = setup
        self._tasks: dict[int, WorkerTask] = {}
        self._items: dict[int, tuple[WorkerItem, asyncio.Task[None]]] = {}
        self._dirty: set[WorkerItem] = set()
        self._flushing = False
        self._thread = threading.get_ident()
        self._pool = ThreadPoolExecutor(setup.concurrency, OWN + "item")
        self._loop = asyncio.new_event_loop()
        self._leftovers.serve(self._loop)

    def serve(self) -> None:
        self._outputs.make_by(lambda: [OutputText(self._take, 1), OutputText(self._take, 2)])
        self._loop.add_reader(self._channel.link, self._on_readable)
        for frame in self._channel.taken():
            self._loop.call_soon(self._on_orders, frame)
        self._loop.run_forever()

    def _on_readable(self) -> None:
        frames = self._channel.ready()
        if frames is None:
            end(EXIT_CUT_OFF if self._items else 0)
        for frame in frames:
            self._on_orders(frame)

    def _on_orders(self, frame: bytes) -> None:
        orders = _decode(frame)
        for task in orders.tasks:
            self._tasks[task.number] = task
        if orders.orders:
            self._start_reporter.watch()
        for order in orders.orders:
            self._begin(order)
        for number in orders.cancel:
            self._cancel(number)
        self._soon()  # behind the first steps of all these items: what ends in its first step is reported once

    def _begin(self, order: AttemptOrder) -> None:
        item = WorkerItem(order, self._tasks[order.task])
        try:
            attempt = self._attempt(item)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
            self._over(item)
            self._failed(item, error)
            return
        self._unstarted += 1
        self._items[item.number] = (item, self._loop.create_task(attempt))

    def _attempt(self, item: WorkerItem) -> Coroutine[Any, Any, None]:
        kind = KINDS.find(item.task.runner)
        if isinstance(kind, WorkerKind) and (stoppable := kind.stoppable(item, self._setup.hosts)) is not None:
            item.stop = stoppable
            return self._in_thread(item, stoppable.make)
        caller = self._functions.caller(item.task)
        called = self._bound(caller, item)
        return self._in_loop(item, called) if caller.is_async else self._in_thread(item, called)

    def _bound(self, caller: Caller, item: WorkerItem) -> Any:
        if caller.listens:
            return partial(caller.function, item.told())
        arguments = caller.arguments(item)
        return partial(caller.function, **arguments) if arguments else caller.function

    async def _in_loop(self, item: WorkerItem, called: Any) -> None:
        try:
            self._enter(item)
            item.started_s = monotonic()
            self._outbox.start(item.number, item.started_s, LOOP)
            result = call.encoded(await called())
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
            self._ended_by(item, error)
        else:
            self._succeeded(item, result)

    async def _in_thread(self, item: WorkerItem, called: Any) -> None:
        try:
            self._enter(item)
            context = copy_context()
            value = await self._loop.run_in_executor(self._pool, context.run, self._call, item, called)
            result = call.encoded(await value if inspect.isawaitable(value) else value)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
            self._ended_by(item, error)
        else:
            self._succeeded(item, result)

    def _enter(self, item: WorkerItem) -> None:
        self._unstarted -= 1
        enter(item.context)
        _item.set(item)
        if item.cancelled:
            raise asyncio.CancelledError

    def _succeeded(self, item: WorkerItem, result: str | None) -> None:
        self._over(item)
        self._send_output(item)
        self._outbox.done(item.number, item.started_s or monotonic(), result)
        self._soon()

    def _ended_by(self, item: WorkerItem, error: BaseException) -> None:
        self._over(item)
        self._failed(item, error)
        self._soon()

    def _over(self, item: WorkerItem) -> None:
        """Called before its end is reported. What the last item leaves behind is reported with its end."""
        self._items.pop(item.number, None)
        self._ended.append(item.number)
        self._outbox.files += self._functions.new_files()
        if not self._items:
            self._outputs.settle()
            self._outbox.left = self._leftovers.clear()

    def _call(self, item: WorkerItem, called: Any) -> Any:
        item.started_s = monotonic()
        self._loop.call_soon_threadsafe(self._note_start, item)
        try:
            return item.interruptible.run(called)
        except StopIteration as error:  # a future would not take it
            raise RuntimeError("the function raised StopIteration") from error
        finally:
            self._leftovers.clear_thread()

    def _note_start(self, item: WorkerItem) -> None:
        assert item.started_s is not None
        if item.number in self._items:
            self._outbox.start(item.number, item.started_s, THREAD)
            self._soon()

    def _cancel(self, number: int) -> None:
        item, task = self._items.get(number, (None, None))
        if item is None or task is None:
            return
        item.cancelled = True
        if item.stop is not None:
            item.stop.stop()
        elif not self._functions.caller(item.task).is_async:
            item.interruptible.interrupt()
        elif item.started_s is not None:
            task.cancel()

    def _failed(self, item: WorkerItem, error: BaseException) -> None:
        if call.succeeds(error):
            self._send_output(item)
            self._outbox.done(item.number, item.started_s or monotonic(), None)
            return
        self._keep(item, call.traceback_text(error).encode(errors="backslashreplace"))
        self._send_output(item)
        self._outbox.failed(call.failure(item, error))

    def _soon(self) -> None:
        """Flush the reports after everything that is ready in the loop now has run."""
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        ended, self._ended = self._ended, []
        if ended and self._items:
            flush_c()
            self._outbox.flush(spent=not self._leftovers.is_clean(ended, self._items))
        else:
            self._outbox.flush()
        if not self._unstarted:
            self._start_reporter.rest()

    def _take(self, data: bytes) -> None:
        """Keep what was printed, by whatever task or thread."""
        item = _item.get()
        if item is None:
            os.write(1, data)
        else:
            self._keep(item, data)

    def _keep(self, item: WorkerItem, data: bytes) -> None:
        """Keep output up to the bound of a log and one byte more, by which the agent sees that there was more."""
        data = data[: max(0, self._setup.log_max + 1 - item.kept)]
        if not data:
            return
        item.kept += len(data)
        item.pending += len(data)
        item.printed.append(data)
        if threading.get_ident() == self._thread:
            self._mark(item)
        elif item.pending >= PIECE or item not in self._dirty:
            self._loop.call_soon_threadsafe(self._mark, item)

    def _mark(self, item: WorkerItem) -> None:
        if item.number not in self._items or item.pending >= PIECE:
            self._send_output(item)
            self._soon()
        elif item not in self._dirty:
            if not self._dirty:
                self._loop.call_later(PRINTED_S, self._send_all_output)
            self._dirty.add(item)

    def _send_all_output(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for item in dirty:
            self._send_output(item)
        self._soon()

    def _send_output(self, item: WorkerItem) -> None:
        if not item.printed:
            return
        item.pending = 0
        data = b"".join(item.printed.popleft() for _ in range(len(item.printed)))
        for at in range(0, len(data), PIECE):
            self._outbox.output(item.number, data[at : at + PIECE])
