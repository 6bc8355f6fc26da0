"""Several items of one task at a time: coroutines in the event loop, plain functions in threads.

What a task prints is told apart by the context that prints it. A plain function cannot be stopped; a request can.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import partial
from typing import Any

import msgspec

from rota.client.context import enter
from rota.runners.wire import LOOP, PIECE, THREAD, Order, Orders, Setup, Task
from rota.runners.worker import call
from rota.runners.worker.call import Caller
from rota.runners.worker.channel import EXIT_CUT_OFF, Channel, Outbox, end
from rota.runners.worker.herald import Herald
from rota.runners.worker.item import Item
from rota.runners.worker.leftovers import OWN, Leftovers
from rota.runners.worker.load import Functions
from rota.runners.worker.requests import Request
from rota.runners.worker.stdio import Outputs, Text, flush_c
from rota.runners.worker.ticks import monotonic

PRINTED_S = 1.0
"""How long output may wait in the worker."""

_decode = msgspec.msgpack.Decoder(Orders).decode
_item: ContextVar[Item | None] = ContextVar("rota_item", default=None)


class Shared:
    """Serves many orders at a time."""

    def __init__(self, channel: Channel, functions: Functions, outputs: Outputs, setup: Setup) -> None:
        self._channel = channel
        self._outbox = Outbox(channel)
        self._functions = functions
        self._outputs = outputs
        self._leftovers = Leftovers()
        self._ended: list[int] = []
        self._setup = setup
        self._tasks: dict[int, Task] = {}
        self._items: dict[int, tuple[Item, asyncio.Task[None]]] = {}
        self._dirty: set[Item] = set()
        self._flushing = False
        self._thread = threading.get_ident()
        self._pool = ThreadPoolExecutor(setup.concurrency, OWN + "item")
        self._loop = asyncio.new_event_loop()
        self._leftovers.serve(self._loop)
        self._herald = Herald(lambda: self._outbox.has_starts, self._outbox.flush_starts)

    def serve(self) -> None:
        self._outputs.make_by(lambda: [Text(self._take, 1), Text(self._take, 2)])
        self._loop.add_reader(self._channel.link, self._hear)
        for frame in self._channel.taken():
            self._loop.call_soon(self._obey, frame)
        self._loop.run_forever()

    def _hear(self) -> None:
        frames = self._channel.ready()
        if frames is None:
            end(EXIT_CUT_OFF if self._items else 0)
        for frame in frames:
            self._obey(frame)

    def _obey(self, frame: bytes) -> None:
        orders = _decode(frame)
        for task in orders.tasks:
            self._tasks[task.number] = task
        for order in orders.orders:
            self._begin(order)
        for number in orders.cancel:
            self._cancel(number)

    def _begin(self, order: Order) -> None:
        item = Item(order, self._tasks[order.task])
        try:
            work = self._work(item)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            self._over(item)
            self._failed(item, error)
            self._soon()
            return
        self._items[item.number] = (item, self._loop.create_task(self._attempt(item, work)))

    def _work(self, item: Item) -> Any:
        if item.task.runner == "http":
            item.stop = Request(item, self._setup.hosts)
            return self._in_thread(item, item.stop.make)
        caller = self._functions.caller(item.task)
        called = self._bound(caller, item)
        return self._in_loop(item, called) if caller.is_async else self._in_thread(item, called)

    def _bound(self, caller: Caller, item: Item) -> Any:
        if caller.listens:
            return partial(caller.function, item.told())
        arguments = caller.arguments(item)
        return partial(caller.function, **arguments) if arguments else caller.function

    async def _attempt(self, item: Item, work: Any) -> None:
        enter(item.context)
        _item.set(item)
        try:
            result = call.encoded(await work)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            self._over(item)
            self._failed(item, error)
        else:
            self._over(item)
            self._bring(item)
            self._outbox.done(item.number, item.started_s or monotonic(), result)
        self._soon()

    def _over(self, item: Item) -> None:
        """It is about to be told of. The last one leaves nothing behind, or that is told with its end."""
        self._items.pop(item.number, None)
        self._ended.append(item.number)
        self._outbox.files += self._functions.new_files()
        if not self._items:
            self._outputs.settle()
            self._outbox.left = self._leftovers.clear()

    async def _in_loop(self, item: Item, called: Any) -> Any:
        if item.cancelled:
            raise asyncio.CancelledError
        item.started_s = monotonic()
        self._outbox.start(item.number, item.started_s, LOOP)
        self._herald.watch()
        self._soon()
        return await called()

    async def _in_thread(self, item: Item, called: Any) -> Any:
        if item.cancelled:
            raise asyncio.CancelledError
        context = copy_context()
        value = await self._loop.run_in_executor(self._pool, context.run, self._call, item, called)
        return await value if inspect.isawaitable(value) else value

    def _call(self, item: Item, called: Any) -> Any:
        item.started_s = monotonic()
        self._loop.call_soon_threadsafe(self._note_start, item)
        try:
            return item.interruptible.run(called)
        except StopIteration as error:  # a future would not take it
            raise RuntimeError("the function raised StopIteration") from error
        finally:
            self._leftovers.clear_thread()

    def _note_start(self, item: Item) -> None:
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

    def _failed(self, item: Item, error: BaseException) -> None:
        if call.succeeds(error):
            self._bring(item)
            self._outbox.done(item.number, item.started_s or monotonic(), None)
            return
        self._keep(item, call.told(error).encode(errors="backslashreplace"))
        self._bring(item)
        self._outbox.failed(call.failure(item, error))

    def _soon(self) -> None:
        """Tell what there is when everything that is ready now has run."""
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
        """Something was printed, in whatever task or thread."""
        item = _item.get()
        if item is None:
            os.write(1, data)
        else:
            self._keep(item, data)

    def _keep(self, item: Item, data: bytes) -> None:
        """Beyond the bound of a log only one byte is kept, which tells the agent that there was more."""
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

    def _mark(self, item: Item) -> None:
        if item.number not in self._items or item.pending >= PIECE:
            self._bring(item)
            self._soon()
        elif item not in self._dirty:
            if not self._dirty:
                self._loop.call_later(PRINTED_S, self._bring_all)
            self._dirty.add(item)

    def _bring_all(self) -> None:
        dirty, self._dirty = self._dirty, set()
        for item in dirty:
            self._bring(item)
        self._soon()

    def _bring(self, item: Item) -> None:
        if not item.printed:
            return
        item.pending = 0
        data = b"".join(item.printed.popleft() for _ in range(len(item.printed)))
        for at in range(0, len(data), PIECE):
            self._outbox.output(item.number, data[at : at + PIECE])
