"""One item at a time, in the main thread: plain functions as they are, coroutines in an event loop that waits between
items. What the process prints is the item's."""

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
from rota.runners.wire import LOOP, MAIN, Orders, Report, Setup, Task
from rota.runners.worker import call
from rota.runners.worker.channel import EXIT_CUT_OFF, Channel, Outbox, end
from rota.runners.worker.item import Item
from rota.runners.worker.leftovers import Leftovers
from rota.runners.worker.load import Functions
from rota.runners.worker.stdio import Outputs
from rota.runners.worker.strike import strike
from rota.runners.worker.ticks import monotonic

_decode = msgspec.msgpack.Decoder(Orders).decode


class Serial:
    """Serves one order after the other."""

    def __init__(self, channel: Channel, functions: Functions, outputs: Outputs, setup: Setup) -> None:
        self._channel = channel
        self._outbox = Outbox(channel)
        self._functions = functions
        self._outputs = outputs
        self._tasks: dict[int, Task] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: tuple[Item, asyncio.Task[Any]] | None = None
        self._plain: Item | None = None
        """The item whose plain function runs."""
        self._is_listening = False
        self._pid = os.getpid()
        self._flags = fcntl.fcntl(channel.link, fcntl.F_GETFL)
        fcntl.fcntl(channel.link, fcntl.F_SETOWN, self._pid)
        signal.signal(signal.SIGIO, self._listen)
        signal.signal(signal.SIGTERM, self._end_early)
        _Forking()
        self._leftovers = Leftovers(setup.folder)

    def serve(self) -> None:
        while (frame := self._channel.next()) is not None:
            orders = _decode(frame)
            for task in orders.tasks:
                self._tasks[task.number] = task
            for order in orders.orders:
                self._attempt(Item(order, self._tasks[order.task]))

    def _attempt(self, item: Item) -> None:
        enter_alone(item.context)
        try:
            result = call.encoded(self._call(item))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            self._plain = None
            self._stay_one()
            self._ended_by(item, error)
        else:
            self._stay_one()
            self._settle()
            self._outbox.done(item.number, item.started_s or monotonic(), result)
        enter_alone(None)
        self._outbox.flush()

    def _settle(self) -> None:
        """Bring out what was printed and leave nothing to the next item, before the end is told."""
        self._outputs.settle()
        self._outbox.left = self._leftovers.clear()
        self._outbox.files = self._functions.new_files()

    def _call(self, item: Item) -> Any:
        caller = self._functions.caller(item.task)
        if caller.listens:
            return self._enter(item, caller.is_async, caller.function, item.told())
        return self._enter(item, caller.is_async, caller.function, **caller.arguments(item))

    def _enter(self, item: Item, is_async: bool, function: Any, /, *args: Any, **arguments: Any) -> Any:
        if is_async:
            return self._complete(item, function(*args, **arguments))
        item.started_s = monotonic()
        self._outbox.start(item.number, item.started_s, MAIN)
        self._outbox.flush()
        value = self._stoppably(item, function, *args, **arguments)
        return self._complete(item, value) if inspect.isawaitable(value) else value

    def _stoppably(self, item: Item, function: Any, /, *args: Any, **arguments: Any) -> Any:
        """Call a plain function so that a word from the agent raises `Stopped` in it: the kernel says by a signal that
        there is something to read."""
        fcntl.fcntl(self._channel.link, fcntl.F_SETFL, self._flags | os.O_ASYNC)
        self._plain = item
        try:
            self._listen()  # it may have come before
            return function(*args, **arguments)
        finally:
            self._plain = None
            fcntl.fcntl(self._channel.link, fcntl.F_SETFL, self._flags)

    def _listen(self, _: int = 0, frame: FrameType | None = None) -> None:
        """Hear what there is, in the midst of a plain function."""
        item = self._plain
        if item is None or self._is_listening or os.getpid() != self._pid:
            return
        self._is_listening = True
        try:
            is_asked = False
            while frames := self._channel.peek():
                is_asked = is_asked or any(item.number in _decode(frame).cancel for frame in frames)
                self._channel.put_back([frame for frame in frames if _decode(frame).orders])
            if frames is None:
                end(EXIT_CUT_OFF)
            if is_asked and not item.cancelled:
                item.cancelled = True
                self._channel.send(Report(stopping=[item.number]))
                strike(frame, Stopped("its time is up, or it was cancelled"), lambda: self._plain is item)
        finally:
            self._is_listening = False

    def _end_early(self, number: int, frame: FrameType | None) -> None:
        """The signal that follows when the word was not heard; whoever else sends it ends the process, as usual."""
        self._listen(number, frame)
        if self._plain is not None and self._plain.cancelled:
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _complete(self, item: Item, awaitable: Any) -> Any:
        loop = self._own_loop()
        task = loop.create_task(self._awaited(item, awaitable))
        self._running = (item, task)
        try:
            return loop.run_until_complete(task)
        finally:
            self._running = None
            self._end_strays(loop)

    async def _awaited(self, item: Item, awaitable: Any) -> Any:
        item.started_s = item.started_s or monotonic()
        self._outbox.start(item.number, item.started_s, LOOP)
        self._outbox.flush()  # before the function can block the loop
        return await awaitable

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop.add_reader(self._channel.link, self._hear)
            self._leftovers.serve(self._loop)
        return self._loop

    def _hear(self) -> None:
        """A word from the agent while a coroutine runs: it wants it to end, or is gone."""
        frames = self._channel.ready()
        if frames is None:
            end(EXIT_CUT_OFF)
        for frame in frames:
            if self._running is not None and self._running[0].number in _decode(frame).cancel:
                self._running[0].cancelled = True
                self._running[1].cancel()

    def _end_strays(self, loop: asyncio.AbstractEventLoop) -> None:
        """Nothing that an item has set going in the loop may run on in the next one's time."""
        if strays := asyncio.all_tasks(loop):
            for stray in strays:
                stray.cancel()
            loop.run_until_complete(asyncio.wait(strays, timeout=1))

    def _ended_by(self, item: Item, error: BaseException) -> None:
        if call.succeeds(error):
            self._settle()
            self._outbox.done(item.number, item.started_s or monotonic(), None)
            return
        with suppress(Exception):  # the task may have closed it
            sys.stderr.write(call.told(error))
        self._settle()
        self._outbox.failed(call.failure(item, error))

    def _stay_one(self) -> None:
        """A task that forked comes back here twice: once too often."""
        if os.getpid() != self._pid:
            with suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            end(0)


class _Forking:
    """Processes that a task forks end by a signal as any process does, also by one that comes at once: what arrives
    between the fork and the change of its handler would be forgotten."""

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
