"""A worker that runs several items of one task at a time: coroutines in its event loop, plain functions in threads.

The context variable of the printing code says to which item output belongs. The time of an attempt counts from its
start, so a thread reports starts while a coroutine blocks the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import msgspec

from rota.client.context import enter
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


class StartReporter:
    """A thread that reports what the loop did not report in time. It sleeps while everything is reported."""

    def __init__(self, has_unreported: Callable[[], bool], report: Callable[[], None]) -> None:
        self._has_unreported = has_unreported
        self._report = report
        self._wake = threading.Event()
        self._pause = threading.Event()
        self._is_idle = True
        threading.Thread(target=self._run, name="rota-starts", daemon=True).start()

    def watch(self) -> None:
        """Wake the thread: a start waits to be reported."""
        if self._is_idle:
            self._is_idle = False
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self._watch()

    def _watch(self) -> None:
        """Report what is still unreported after each pause; return when nothing is."""
        while not self._pause.wait(PATIENCE_S):
            if not self._has_unreported():
                self._is_idle = True
                # An item may have started after the check and before the flag was set.
                if not self._has_unreported():
                    return
                self._is_idle = False
            self._report()


class SharedWorker:
    """Serves many orders at a time."""

    def __init__(self, channel: AgentChannel, functions: Functions, outputs: Outputs, setup: Setup) -> None:
        self._channel = channel
        self._outbox = Outbox(channel)
        self._functions = functions
        self._outputs = outputs
        self._leftovers = Leftovers()
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
        self._start_reporter = StartReporter(lambda: self._outbox.has_starts, self._outbox.flush_starts)

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
        for order in orders.orders:
            self._begin(order)
        for number in orders.cancel:
            self._cancel(number)

    def _begin(self, order: AttemptOrder) -> None:
        item = WorkerItem(order, self._tasks[order.task])
        try:
            work = self._work(item)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
            self._over(item)
            self._failed(item, error)
            self._soon()
            return
        self._items[item.number] = (item, self._loop.create_task(self._attempt(item, work)))

    def _work(self, item: WorkerItem) -> Any:
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

    async def _attempt(self, item: WorkerItem, work: Any) -> None:
        enter(item.context)
        _item.set(item)
        try:
            result = call.encoded(await work)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
            self._over(item)
            self._failed(item, error)
        else:
            self._over(item)
            self._send_output(item)
            self._outbox.done(item.number, item.started_s or monotonic(), result)
        self._soon()

    def _over(self, item: WorkerItem) -> None:
        """Called before its end is reported. What the last item leaves behind is reported with its end."""
        self._items.pop(item.number, None)
        self._ended.append(item.number)
        self._outbox.files += self._functions.new_files()
        if not self._items:
            self._outputs.settle()
            self._outbox.left = self._leftovers.clear()

    async def _in_loop(self, item: WorkerItem, called: Any) -> Any:
        if item.cancelled:
            raise asyncio.CancelledError
        item.started_s = monotonic()
        self._outbox.start(item.number, item.started_s, LOOP)
        self._start_reporter.watch()
        self._soon()
        return await called()

    async def _in_thread(self, item: WorkerItem, called: Any) -> Any:
        if item.cancelled:
            raise asyncio.CancelledError
        context = copy_context()
        value = await self._loop.run_in_executor(self._pool, context.run, self._call, item, called)
        return await value if inspect.isawaitable(value) else value

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
