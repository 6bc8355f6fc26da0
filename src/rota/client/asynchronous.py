"""A client of rota for programs with an event loop: document 2's interface, over a store."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from rota.control import (
    KEEP,
    Answer,
    AnyRate,
    Assigned,
    Cancellation,
    Control,
    Explained,
    Keep,
    QuotaState,
    Removed,
    RunDetail,
)
from rota.control import job_name as name_of
from rota.errors import NotFound, Refused, StoreRefused
from rota.model.run import Run
from rota.model.work import Limit

if TYPE_CHECKING:
    from rota.ports import Store


class AsyncClient:
    """Asks a store: that of a URL, or that of the configuration (`ROTA_STORE`, `rota.toml`). Opens it when it is first
    asked; `close` it, or use `async with`."""

    def __init__(self, store_url: str | None = None, *, control: Control | None = None) -> None:
        self._url = store_url
        self._opening = asyncio.Lock()
        self._store: Store | None = None
        self._control = control
        """Given: what to ask, open already, and closed by others."""

    async def __aenter__(self) -> Self:
        await self._asked()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of every connection. The next question opens them anew."""
        store, self._store, self._control = self._store, None, None
        if store is not None:
            await store.close()

    async def assign(
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
        """Assign items to a tenant (S2.19): one run, with one item for each number.

        They may start at `start_at` (now) and should have started, spread evenly, by `end_at`. A handler (a task of an
        app, or `module:function`) does the work; without one, `on_start` is called and `finish` reports the end.
        `notify` names the listeners (`on_fail`, `on_timeout`) that are told. Options: quota, group, retries (0),
        timeout_s (120), lost_max, hold_s, concurrency, resources. The same key assigns once.
        """
        control = await self._asked()
        return await control.assign(
            tenant,
            numbers,
            infos,
            start_at=start_at,
            end_at=end_at,
            handler=handler,
            notify=notify,
            key=key,
            **options,
        )

    async def finish(
        self, uuid: str, token: int | None = None, *, result: Any = None, failed: str | None = None
    ) -> Answer:
        """Report the end of an item (S2.20). With its token it counts for that attempt only; without one only while the
        first attempt is under way. `failed` says what went wrong; then the retry policy decides."""
        return await (await self._asked()).finish(uuid, token, result=result, failed=failed)

    async def extend(self, uuid: str, seconds: float, token: int | None = None) -> datetime | None:
        """Give an item so much time from now; says until when. None: it is not under way any more."""
        return await (await self._asked()).extend(uuid, seconds, token)

    async def set_capacity(self, cap: int) -> Limit:
        """How many items may execute at a time in the whole cluster (S2.18)."""
        return await (await self._asked()).set_capacity(cap)

    async def create_tenant(
        self,
        name: str,
        *,
        quota: str = "default",
        cap: int | None = None,
        weight: int = 1,
        rate: AnyRate = None,
    ) -> Limit:
        """Make a quota of a tenant. Refused if it is there."""
        control = await self._asked()
        if await _known(control, name, quota):
            raise Refused(f"tenant {name} has a quota {quota} already; change it with update_tenant")
        return await control.set_quota(name, quota, cap=cap, weight=weight, rate=rate)

    async def update_tenant(
        self,
        name: str,
        *,
        quota: str = "default",
        cap: int | Keep | None = KEEP,
        weight: int | Keep = KEEP,
        rate: AnyRate | Keep = KEEP,
    ) -> Limit:
        """Change a quota of a tenant; what is not given stays as it is."""
        control = await self._asked()
        if not await _known(control, name, quota):
            raise NotFound(f"tenant {name} has no quota {quota}; make it with create_tenant")
        return await control.set_quota(name, quota, cap=cap, weight=weight, rate=rate)

    async def remove_tenant(self, name: str, *, cancel: bool = False) -> Removed:
        """Forget a tenant. Refused while it has unfinished items, unless they shall be cancelled."""
        return await (await self._asked()).remove_tenant(name, cancel=cancel)

    async def tenants(self) -> list[QuotaState]:
        """All quotas of all tenants, with what is ready and what runs."""
        return await (await self._asked()).quotas()

    async def trigger(self, job: str, params: Mapping[str, Any] | None = None, *, key: str | None = None) -> Run:
        """Start a run of a job now; the same key starts it once."""
        return await (await self._asked()).trigger(name_of(job), params or {}, key)

    async def cancel(self, *run_ids: int) -> Cancellation:
        """Cancel what of these runs has not started; ask the rest to stop."""
        return await (await self._asked()).cancel(run_ids)

    async def run(self, run_id: int) -> RunDetail:
        """A run, its items, its attempts and its history."""
        return await (await self._asked()).run(run_id)

    async def explain(self, run_id: int) -> Explained:
        """Why a run waits, or where it is."""
        return await (await self._asked()).explain(run_id)

    async def _asked(self) -> Control:
        """The open store, fit for use."""
        async with self._opening:
            if self._control is None:
                self._store, self._control = await _opened(self._url)
            return self._control


async def _opened(url: str | None) -> tuple[Store, Control]:
    from rota.config import config_of, load, sqlite_path
    from rota.wiring import log_store, open_store, system_clock

    config = config_of(load({"store.url": url}))
    path = sqlite_path(config.store.url)
    if path is not None and not path.exists():
        raise StoreRefused(f"there is no store at {path}; name another, or make one there: rota store migrate")
    if config.store.url == "memory:" and not config.store.may_forget:
        raise StoreRefused("memory: is seen by no node; use sqlite:///rota.db, or rota.testing in tests")
    clock = system_clock()
    actor = f"client@{socket.gethostname()}"
    store = open_store(config.store.url, clock, actor=actor, may_forget=config.store.may_forget)
    try:
        await store.check()
    except BaseException:
        await store.close()
        raise
    return store, Control(store, clock, log_store(config))


async def _known(control: Control, tenant: str, quota: str) -> bool:
    return any((it.tenant, it.quota) == (tenant, quota) and it.limit is not None for it in await control.quotas())
