"""A client of rota for programs without an event loop. Any thread may ask; it works on after a fork, too."""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

from rota.client.asynchronous import AsyncClient
from rota.control import KEEP, Answer, AnyRate, Assigned, Cancellation, Explained, Keep, QuotaState, Removed, RunDetail
from rota.model.run import Run
from rota.model.work import Limit

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

    def ask(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        async def asked() -> T:
            return await question(self._client)

        future = asyncio.run_coroutine_threadsafe(asked(), self._loop)
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
        key: str | None = None,
        **options: Any,
    ) -> Assigned:
        """Assign items to a tenant: one run, with one item for each number. See `AsyncClient.assign`."""
        more = {"start_at": start_at, "end_at": end_at, "handler": handler, "notify": notify, "key": key, **options}
        return self._ask(lambda client: client.assign(tenant, numbers, infos, **more))

    def finish(self, uuid: str, token: int | None = None, *, result: Any = None, failed: str | None = None) -> Answer:
        """Report the end of an item: `finished`, `stale` or `unknown`. See `AsyncClient.finish`."""
        return self._ask(lambda client: client.finish(uuid, token, result=result, failed=failed))

    def extend(self, uuid: str, seconds: float, token: int | None = None) -> datetime | None:
        """Give an item so much time from now; says until when. None: it is not under way any more."""
        return self._ask(lambda client: client.extend(uuid, seconds, token))

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

    def trigger(self, job: str, params: Mapping[str, Any] | None = None, *, key: str | None = None) -> Run:
        """Start a run of a job now; the same key starts it once."""
        return self._ask(lambda client: client.trigger(job, params, key=key))

    def cancel(self, *run_ids: int) -> Cancellation:
        """Cancel what of these runs has not started; ask the rest to stop."""
        return self._ask(lambda client: client.cancel(*run_ids))

    def run(self, run_id: int) -> RunDetail:
        """A run, its items, its attempts and its history."""
        return self._ask(lambda client: client.run(run_id))

    def explain(self, run_id: int) -> Explained:
        """Why a run waits, or where it is."""
        return self._ask(lambda client: client.explain(run_id))

    def _ask(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        with self._starting:
            if self._thread is None or self._thread.pid != os.getpid():
                self._thread = _Thread(self._url)
                # At the end of the process everything goes anyway, and there is nobody left who could wait.
                weakref.finalize(self, self._thread.close).atexit = False
            thread = self._thread
        return thread.ask(question)
