"""A client of rota for programs without an event loop. Any thread may ask; it works on after a fork, too."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar

from rota.client.asynchronous import AsyncClient
from rota.client.view import RunView
from rota.control import KEEP, Answer, AnyRate, Assigned, Cancellation, Explained, Keep, QuotaState, Removed
from rota.model.job import JobName
from rota.model.run import Item
from rota.model.work import Limit

if TYPE_CHECKING:
    from rota.definitions.assignment import Call

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
        """Have a question asked in the thread."""

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

    def assign(
        self,
        tenant: str,
        numbers: Sequence[str],
        infos: Sequence[Any] | None = None,
        *,
        start_at: datetime | str | None = None,
        end_at: datetime | str | None = None,
        handler: str | None = None,
        notify: Sequence[str] = (),
        app: str | None = None,
        key: str | None = None,
        **options: Any,
    ) -> Assigned:
        """Assign items to a tenant: one run, with one item for each number. See `AsyncClient.assign`."""
        more: dict[str, Any] = {"start_at": start_at, "end_at": end_at, "handler": handler, "notify": notify}
        more |= {"app": app, "key": key, **options}
        return self._ask(lambda client: client.assign(tenant, numbers, infos, **more))

    def call(self, name: JobName, call: Call, arguments: Sequence[Mapping[str, Any]]) -> Assigned:
        """Send calls of a task: what `delay` and `map` of a task do."""
        return self._ask(lambda client: client.call(name, call, arguments))

    async def call_async(self, name: JobName, call: Call, arguments: Sequence[Mapping[str, Any]]) -> Assigned:
        """The same, without holding up the event loop."""
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

    def finish(
        self, item: int | str, token: int | None = None, *, result: Any = None, failed: str | None = None
    ) -> Answer:
        """Report the end of an item: `finished`, `stale` or `unknown`. See `AsyncClient.finish`."""
        return self._ask(lambda client: client.finish(item, token, result=result, failed=failed))

    def extend(self, item: int | str, seconds: float, token: int | None = None) -> datetime | None:
        """Give an item so much time from now; says until when. None: it is not under way any more."""
        return self._ask(lambda client: client.extend(item, seconds, token))

    def set_capacity(self, cap: int) -> Limit:
        """How many items may execute at a time in the whole cluster."""
        return self._ask(lambda client: client.set_capacity(cap))

    def create_tenant(
        self,
        name: str,
        *,
        quota: str = "default",
        cap: int | None = None,
        weight: int = 1,
        rate: AnyRate = None,
    ) -> Limit:
        """Make a quota of a tenant. Refused if it is there."""
        return self._ask(lambda client: client.create_tenant(name, quota=quota, cap=cap, weight=weight, rate=rate))

    def update_tenant(
        self,
        name: str,
        *,
        quota: str = "default",
        cap: int | Keep | None = KEEP,
        weight: int | Keep = KEEP,
        rate: AnyRate | Keep = KEEP,
    ) -> Limit:
        """Change a quota of a tenant; what is not given stays as it is."""
        return self._ask(lambda client: client.update_tenant(name, quota=quota, cap=cap, weight=weight, rate=rate))

    def remove_tenant(self, name: str, *, cancel: bool = False) -> Removed:
        """Forget a tenant. Refused while it has unfinished items, unless they shall be cancelled."""
        return self._ask(lambda client: client.remove_tenant(name, cancel=cancel))

    def tenants(self) -> list[QuotaState]:
        """All quotas of all tenants, with what is ready and what runs."""
        return self._ask(lambda client: client.tenants())

    def trigger(self, job: str, params: Mapping[str, Any] | None = None, *, key: str | None = None) -> RunView:
        """Start a run of a job now; the same key starts it once."""
        return self._ask(lambda client: client.trigger(job, params, key=key))

    def cancel(self, *run_ids: int) -> Cancellation:
        """Cancel what of these runs has not started; ask the rest to stop."""
        return self._ask(lambda client: client.cancel(*run_ids))

    def run(self, run_id: int) -> RunView:
        """A run and its items, with their results."""
        return self._ask(lambda client: client.run(run_id))

    def explain(self, run_id: int) -> Explained:
        """Why a run waits, or where it is."""
        return self._ask(lambda client: client.explain(run_id))

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
