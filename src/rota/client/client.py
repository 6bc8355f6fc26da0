"""A client of rota for programs without an event loop. Any thread may ask; it works on after a fork, too."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from rota.client.asynchronous import AsyncClient
from rota.control.assigning import Assigned
from rota.model.job import JobName
from rota.model.run import Item

if TYPE_CHECKING:
    from rota.definitions.assignment import Call

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_S = 5.0


class _Thread:
    """An event loop in a thread of its own, and the client that lives in it."""

    def __init__(self, store_url: str | None) -> None:
        self.pid = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="rota-client", daemon=True)
        self._client = AsyncClient(store_url)
        self._thread.start()

    def send(self, question: Callable[[AsyncClient], Awaitable[T]]) -> Future[T]:
        async def asked() -> T:
            return await question(self._client)

        return asyncio.run_coroutine_threadsafe(asked(), self._loop)

    def ask(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        future = self.send(question)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End it. In a child of a fork there is nothing to end, and a thread does not wait for itself."""
        if self._loop.is_closed() or self.pid != os.getpid():
            return
        if threading.current_thread() is self._thread:
            self._loop.call_soon(self._loop.stop)
            return
        asyncio.run_coroutine_threadsafe(self._client.close(), self._loop).result(CLOSE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CLOSE_S)
        self._loop.close()


def _asking(question: Callable[Concatenate[AsyncClient, P], Awaitable[T]]) -> Callable[Concatenate[Client, P], T]:
    """The question of an asynchronous client, for callers who wait for the answer."""

    @wraps(question)
    def asked(client: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return client._ask(lambda inner: question(inner, *args, **kwargs))  # noqa: SLF001 - of the same module

    return asked


class Client:
    """Asks a store: that of a URL, or that of the configuration (`ROTA_STORE`, `rota.toml`). Opens it when it is first
    asked; `close` it, or use `with`. What each question means: see `AsyncClient`."""

    def __init__(self, store_url: str | None = None) -> None:
        self._url = store_url
        self._starting = threading.Lock()
        self._thread: _Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of everything. The next question opens it anew."""
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()

    assign = _asking(AsyncClient.assign)
    call = _asking(AsyncClient.call)
    finish = _asking(AsyncClient.finish)
    extend = _asking(AsyncClient.extend)
    set_capacity = _asking(AsyncClient.set_capacity)
    create_tenant = _asking(AsyncClient.create_tenant)
    update_tenant = _asking(AsyncClient.update_tenant)
    remove_tenant = _asking(AsyncClient.remove_tenant)
    tenants = _asking(AsyncClient.tenants)
    trigger = _asking(AsyncClient.trigger)
    cancel = _asking(AsyncClient.cancel)
    run = _asking(AsyncClient.run)
    explain = _asking(AsyncClient.explain)

    async def call_async(self, name: JobName, call: Call, arguments: Sequence[Mapping[str, Any]]) -> Assigned:
        """Send calls of a task, without holding up the event loop."""
        return await self._ask_async(lambda client: client.call(name, call, arguments))

    def wait(self, run_id: int, item_ids: Sequence[int], timeout: float | None = None, *, what: str = "") -> list[Item]:
        """Wait until items of a run have ended. Raises TimeoutError, which says what they wait for."""
        return self._ask(lambda client: client.wait(run_id, item_ids, timeout, what=what))

    async def wait_async(self, run_id: int, item_ids: Sequence[int], *, what: str = "") -> list[Item]:
        """The same, without holding up the event loop."""
        return await self._ask_async(lambda client: client.wait(run_id, item_ids, what=what))

    def raised(self, item_id: int) -> BaseException | None:
        """What the function of an item raised, where it was called in this very process."""
        return None

    def _ask(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        return self._started().ask(question)

    async def _ask_async(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        return await asyncio.wrap_future(self._started().send(question))

    def _started(self) -> _Thread:
        with self._starting:
            if self._thread is None or self._thread.pid != os.getpid():
                self._thread = _Thread(self._url)
                # At the end of the process everything goes anyway, and there is nobody left who could wait.
                weakref.finalize(self, self._thread.close).atexit = False
            return self._thread
