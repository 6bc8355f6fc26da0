"""A worker that runs one item at a time, in the main thread: plain functions directly, coroutines in an event loop.

Whatever the process prints belongs to the item.
"""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import os
import signal
import sys
from contextlib import suppress
from types import FrameType
from typing import Any

import msgspec

from rota.client.context import Stopped, enter_alone
from rota.execution.worker import call
from rota.execution.worker.channel import EXIT_CUT_OFF, AgentChannel, Outbox, end
from rota.execution.worker.clock import monotonic
from rota.execution.worker.functions import Functions
from rota.execution.worker.interrupt import raise_in_frame
from rota.execution.worker.item import WorkerItem
from rota.execution.worker.leftovers import Leftovers
from rota.execution.worker.stdio import Outputs
from rota.execution.worker_protocol import LOOP, MAIN, Orders, Setup, WorkerReport, WorkerTask

_decode = msgspec.msgpack.Decoder(Orders).decode


class SerialWorker:
    """Serves one order after the other."""

    def __init__(self, channel: AgentChannel, functions: Functions, outputs: Outputs, setup: Setup) -> None:
        self._channel = channel
        self._outbox = Outbox(channel)
        self._functions = functions
        self._outputs = outputs
        self._tasks: dict[int, WorkerTask] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: tuple[WorkerItem, asyncio.Task[Any]] | None = None
        self._plain: WorkerItem | None = None
        """The item whose plain function runs."""
        self._is_reading = False
        self._pid = os.getpid()
        self._flags = fcntl.fcntl(channel.link, fcntl.F_GETFL)
        fcntl.fcntl(channel.link, fcntl.F_SETOWN, self._pid)
        signal.signal(signal.SIGIO, self._read_orders)
        signal.signal(signal.SIGTERM, self._on_sigterm)
        _Forking()
        self._leftovers = Leftovers(setup.folder)

    def serve(self) -> None:
        while (frame := self._channel.next()) is not None:
            orders = _decode(frame)
            for task in orders.tasks:
                self._tasks[task.number] = task
            for order in orders.orders:
                self._attempt(WorkerItem(order, self._tasks[order.task]))

    def _attempt(self, item: WorkerItem) -> None:
        enter_alone(item.context)
        try:
            result = call.encoded(self._call(item))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is reported
            self._plain = None
            self._exit_if_forked()
            self._ended_by(item, error)
        else:
            self._exit_if_forked()
            self._settle()
            self._outbox.done(item.number, item.started_s or monotonic(), result)
        enter_alone(None)
        self._outbox.flush()

    def _settle(self) -> None:
        """Flush what was printed and put the process back, before the end is reported."""
        self._outputs.settle()
        self._outbox.left = self._leftovers.clear()
        self._outbox.files = self._functions.new_files()

    def _call(self, item: WorkerItem) -> Any:
        caller = self._functions.caller(item.task)
        if caller.listens:
            return self._enter(item, caller.is_async, caller.function, item.told())
        return self._enter(item, caller.is_async, caller.function, **caller.arguments(item))

    def _enter(self, item: WorkerItem, is_async: bool, function: Any, /, *args: Any, **arguments: Any) -> Any:
        if is_async:
            return self._complete(item, function(*args, **arguments))
        item.started_s = monotonic()
        self._outbox.start(item.number, item.started_s, MAIN)
        self._outbox.flush()
        value = self._call_stoppable(item, function, *args, **arguments)
        return self._complete(item, value) if inspect.isawaitable(value) else value

    def _call_stoppable(self, item: WorkerItem, function: Any, /, *args: Any, **arguments: Any) -> Any:
        """Call a plain function so that a cancel from the agent raises `Stopped` in it: with O_ASYNC the kernel sends
        SIGIO when there is something to read."""
        fcntl.fcntl(self._channel.link, fcntl.F_SETFL, self._flags | os.O_ASYNC)
        self._plain = item
        try:
            self._read_orders()  # a cancel may have come before
            return function(*args, **arguments)
        finally:
            self._plain = None
            fcntl.fcntl(self._channel.link, fcntl.F_SETFL, self._flags)

    def _read_orders(self, _: int = 0, frame: FrameType | None = None) -> None:
        """Handle SIGIO: read orders while a plain function runs, and raise `Stopped` in it if it is cancelled."""
        item = self._plain
        if item is None or self._is_reading or os.getpid() != self._pid:
            return
        self._is_reading = True
        try:
            is_asked = False
            while frames := self._channel.peek():
                is_asked = is_asked or any(item.number in _decode(frame).cancel for frame in frames)
                self._channel.put_back([frame for frame in frames if _decode(frame).orders])
            if frames is None:
                end(EXIT_CUT_OFF)
            if is_asked and not item.cancelled:
                item.cancelled = True
                self._channel.send(WorkerReport(stopping=[item.number]))
                raise_in_frame(frame, Stopped("its time is up, or it was cancelled"), lambda: self._plain is item)
        finally:
            self._is_reading = False

    def _on_sigterm(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGTERM, which the agent sends when `Stopped` was not seen in time; from others it ends the
        process."""
        self._read_orders(number, frame)
        if self._plain is not None and self._plain.cancelled:
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _complete(self, item: WorkerItem, awaitable: Any) -> Any:
        loop = self._own_loop()
        task = loop.create_task(self._awaited(item, awaitable))
        self._running = (item, task)
        try:
            return loop.run_until_complete(task)
        finally:
            self._running = None
            self._cancel_stray_tasks(loop)

    async def _awaited(self, item: WorkerItem, awaitable: Any) -> Any:
        item.started_s = item.started_s or monotonic()
        self._outbox.start(item.number, item.started_s, LOOP)
        self._outbox.flush()  # before the function can block the loop
        return await awaitable

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.add_reader(self._channel.link, self._on_readable)
            self._leftovers.serve(self._loop)
        return self._loop

    def _on_readable(self) -> None:
        """Read orders while a coroutine runs: cancel it, or exit if the agent is gone."""
        frames = self._channel.ready()
        if frames is None:
            end(EXIT_CUT_OFF)
        for frame in frames:
            if self._running is not None and self._running[0].number in _decode(frame).cancel:
                self._running[0].cancelled = True
                self._running[1].cancel()

    def _cancel_stray_tasks(self, loop: asyncio.AbstractEventLoop) -> None:
        """Cancel tasks that an item has left in the loop, so that they do not run during the next item."""
        if strays := asyncio.all_tasks(loop):
            for stray in strays:
                stray.cancel()
            loop.run_until_complete(asyncio.wait(strays, timeout=1))

    def _ended_by(self, item: WorkerItem, error: BaseException) -> None:
        if call.succeeds(error):
            self._settle()
            self._outbox.done(item.number, item.started_s or monotonic(), None)
            return
        with suppress(Exception):  # the task may have closed it
            sys.stderr.write(call.traceback_text(error))
        self._settle()
        self._outbox.failed(call.failure(item, error))

    def _exit_if_forked(self) -> None:
        """Exit in a child that a task has forked and that returned from the function."""
        if os.getpid() != self._pid:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            end(0)


class _Forking:
    """Gives processes that a task forks the default signal handlers. SIGTERM is blocked around the fork: one that
    arrives between the fork and the change of its handler would get lost."""

    def __init__(self) -> None:
        self._before: set[int | signal.Signals] = set()
        os.register_at_fork(before=self._hold, after_in_parent=self._go_on, after_in_child=self._be_plain)

    def _hold(self) -> None:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])

    def _go_on(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def _be_plain(self) -> None:
        for number in (signal.SIGTERM, signal.SIGIO):
            signal.signal(number, signal.SIG_DFL)
        self._go_on()
