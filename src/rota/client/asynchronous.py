"""A client of rota for programs with an event loop, over a store (S2.16 to S2.21); and a run and its items as
programs see them: one shape, with results as values."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from rota.control import Control
from rota.control import job_name as name_of
from rota.control.assigning import Answer, Assigned
from rota.control.calling import Results
from rota.control.limits import KEEP, AnyRate, Keep, QuotaState, Removed
from rota.control.runs import Cancellation, Explained, RunDetail
from rota.definitions.report import one_line
from rota.errors import NotFound, Refused, RotaError, StoreRefused
from rota.model.job import JobName
from rota.model.run import Item
from rota.model.states import ItemState, RunState, SkipReason
from rota.model.value import Json, Value, decode
from rota.model.work import Limit

if TYPE_CHECKING:
    from rota.definitions.assignment import Call
    from rota.ports import Store

log = logging.getLogger("rota")
"""Not the log of a node: a program that only asks has its own, and its standard output is not ours."""

SAY_S = 10.0
"""Who waits for so long without a limit is told what for."""
WHY_S = 5.0
"""How long the store is asked for that."""
WHY_MAX = 1000


class AsyncClient:
    """Asks a store: that of a URL, or that of the configuration (`ROTA_STORE`, `rota.toml`). Opens it when it is first
    asked; `close` it, or use `async with`."""

    def __init__(self, store_url: str | None = None, *, control: Control | None = None) -> None:
        self._url = store_url
        self._opening = asyncio.Lock()
        self._store: Store | None = None
        self._results: Results | None = None
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
        results, self._results = self._results, None
        if results is not None:
            await results.close()
        if store is not None:
            await store.close()

    async def assign(
        self,
        /,
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
        """Assign items to a tenant (S2.19): one run, with one item for each number.

        They may start at `start_at` (now) and should have started, spread evenly, by `end_at`. A handler (a task of an
        app, or `module:function`) does the work; without one, `on_start` is called and `finish` reports the end.
        `notify` names the listeners (`on_fail`, `on_timeout`) that are told. Listeners are those of the app
        (`tenant/project`), by default of the tenant's default project. Options: quota, group, retries (0),
        timeout_s (120), lost_max, hold_s, concurrency, resources. The same key assigns once.
        """
        control = await self._asked()
        return await control.assignments.assign(
            tenant,
            numbers,
            infos,
            start_at=start_at,
            end_at=end_at,
            handler=handler,
            notify=notify,
            app=app,
            key=key,
            **options,
        )

    async def call(self, name: JobName, call: Call, arguments: Sequence[Mapping[str, Any]]) -> Assigned:
        """Send calls of a task: what `delay` and `map` of a task do."""
        return await (await self._asked()).calls.send(name, call, arguments)

    async def wait(
        self, run_id: int, item_ids: Sequence[int], within_s: float | None = None, *, what: str = ""
    ) -> list[Item]:
        """Wait until items of a run have ended. Raises TimeoutError, which says what they wait for."""
        loop = asyncio.get_running_loop()
        until = None if within_s is None else loop.time() + within_s
        what = what or "the run"
        try:
            async with asyncio.timeout_at(until):
                control = await self._asked()
        except TimeoutError:
            raise TimeoutError(f"{what} did not end within {within_s:g} s: the store does not answer") from None
        if self._results is None:
            self._results = control.calls.results()
        ended = asyncio.gather(*(self._results.ended(it) for it in item_ids))
        try:
            if until is None and not await _within(ended, SAY_S):
                log.warning("%s waits (run %d): %s", what, run_id, await _why(control, run_id))
            elif until is not None and not await _within(ended, until - loop.time()):
                raise TimeoutError(f"{what} did not end within {within_s:g} s: {await _why(control, run_id)}")
            return list(await ended)
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)

    async def finish(
        self, item: int | str, token: int | None = None, *, result: Any = None, failed: str | None = None
    ) -> Answer:
        """Report the end of an item (S2.20). With its token it counts for that attempt only; without one only while the
        first attempt is under way. `failed` says what went wrong; then the retry policy decides."""
        return await (await self._asked()).assignments.finish(item, token, result=result, failed=failed)

    async def extend(self, item: int | str, seconds: float, token: int | None = None) -> datetime | None:
        """Give an item so much time from now; says until when. None: it is not under way any more."""
        return await (await self._asked()).assignments.extend(item, seconds, token)

    async def set_capacity(self, cap: int) -> Limit:
        """How many items may execute at a time in the whole cluster (S2.18)."""
        return await (await self._asked()).limits.set_capacity(cap)

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
        return await control.limits.set_quota(name, quota, cap=cap, weight=weight, rate=rate)

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
        return await control.limits.set_quota(name, quota, cap=cap, weight=weight, rate=rate)

    async def remove_tenant(self, name: str, *, cancel: bool = False) -> Removed:
        """Forget a tenant. Refused while it has unfinished items, unless they shall be cancelled."""
        return await (await self._asked()).limits.remove_tenant(name, cancel=cancel)

    async def tenants(self) -> list[QuotaState]:
        """All quotas of all tenants, with what is ready and what runs."""
        return await (await self._asked()).limits.quotas()

    async def trigger(self, job: str, params: Mapping[str, Any] | None = None, *, key: str | None = None) -> RunView:
        """Start a run of a job now; the same key starts it once."""
        control = await self._asked()
        return seen(await control.runs.detail((await control.jobs.trigger(name_of(job), params or {}, key)).id))

    async def cancel(self, *run_ids: int) -> Cancellation:
        """Cancel what of these runs has not started; ask the rest to stop."""
        return await (await self._asked()).runs.cancel(run_ids)

    async def run(self, run_id: int) -> RunView:
        """A run and its items, with their results."""
        return seen(await (await self._asked()).runs.detail(run_id))

    async def explain(self, run_id: int) -> Explained:
        """Why a run waits, or where it is."""
        return await (await self._asked()).runs.explain(run_id)

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


async def _within(work: asyncio.Future[Any], seconds: float) -> bool:
    """Whether something comes to its end in time."""
    done, _ = await asyncio.wait({work}, timeout=max(seconds, 0))
    return bool(done)


async def _why(control: Control, run_id: int) -> str:
    """Why a run has not ended, in one line; whoever waits for it is not stopped by a store that cannot say."""
    try:
        async with asyncio.timeout(WHY_S):
            reasons = (await control.runs.explain(run_id)).reasons
    except (RotaError, TimeoutError) as error:
        return one_line(f"the store does not say why: {str(error) or 'it does not answer'}", length=WHY_MAX)
    texts = list(dict.fromkeys(it.text for it in reasons))
    return one_line("; ".join(texts[:3]), length=WHY_MAX) or f"nobody knows why; see: rota run explain {run_id}"


async def _known(control: Control, tenant: str, quota: str) -> bool:
    return any(
        (it.tenant, it.quota) == (tenant, quota) and it.limit is not None for it in await control.limits.quotas()
    )


class ItemView(Value, frozen=True, kw_only=True):
    """An item of a run."""

    id: int
    """What rota calls it."""
    state: ItemState
    """`waiting`, `ready`, `assigned`, `running`, or how it ended."""
    number: str | None = None
    """The client's own number of an assigned item."""
    info: Any = None
    """What the client gave with it; of a call, its arguments."""
    ended_at: datetime | None = None
    """When it ended; none while it has not."""
    result: Any = None
    """What came back."""
    message: str = ""
    """Why it failed."""
    traceback: str = ""
    """That of the function, as a text, if it raised something."""


class RunView(Value, frozen=True, kw_only=True):
    """A run, as it was when it was read."""

    id: int
    """Its number; `rota run show` takes it."""
    job: str
    """The name of the job, or of the task that was called; empty for assignments."""
    state: RunState
    """`waiting`, `running`, `succeeded`, `failed`, `cancelled` or `skipped`."""
    reason: SkipReason | None = None
    """Why it was skipped."""
    due_at: datetime
    """When it was due."""
    slot_at: datetime | None = None
    """The instant of its trigger; none if no trigger fired it."""
    ended_at: datetime | None = None
    """When it ended; none while it has not."""
    params: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """Its parameters."""
    attempts: int = 0
    """How many attempts at its items are over."""
    items: tuple[ItemView, ...] = ()
    """Its items, each with `id`, `state`, `number`, `info`, `ended_at`, `result`, `message` and `traceback`."""

    @property
    def result(self) -> Any:
        """What came back, of a run with one item."""
        return self.items[0].result if len(self.items) == 1 else None

    @property
    def message(self) -> str:
        """Why it failed."""
        return next((it.message for it in self.items if it.message), "")


def seen(detail: RunDetail) -> RunView:
    run = detail.run
    return RunView(
        id=run.id,
        job=run.called if detail.job is None else str(detail.job),
        state=run.state,
        reason=run.reason,
        due_at=run.due_at,
        slot_at=run.slot_at,
        ended_at=run.ended_at,
        params=run.params,
        attempts=len(detail.attempts),
        items=tuple(_item(it, detail) for it in detail.items),
    )


def _item(item: Item, detail: RunDetail) -> ItemView:
    live = detail.live.get(item.id)
    return ItemView(
        id=item.id,
        state=item.state if live is None else live.state,
        number=item.number,
        info=None if item.info is None else decode(item.info, object),
        ended_at=item.ended_at,
        result=item.value,
        message=item.message or "",
        traceback=item.traceback,
    )
