"""The testing kit: the jobs of an app under a virtual clock, their functions called right here.

The scheduler, the dispatch rule, retries and overlap policies are the product's own; the store is in memory, and only
processes are replaced by calls. Time passes when the test says so, and at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self, TypeVar

from rota.client.app import App, functions_of
from rota.client.asynchronous import AsyncClient, RunView, seen
from rota.client.client import Client
from rota.client.engine import Engine
from rota.control import job_name
from rota.core.define import Sources
from rota.core.preview import COUNT_MAX, preview
from rota.errors import InvalidInput, Refused, RotaError
from rota.model.job import Job
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Item, Run
from rota.model.states import JobState, RunState

T = TypeVar("T")

START = "2026-01-01T00:00Z"
PATIENCE_S = 366 * 86400.0
"""For how long, in virtual time, `trigger` waits for the end of a run."""
RUNS_MAX = 10_000


class RunFailed(RotaError):
    """A run that was triggered did not succeed; its cause is what the function raised."""


KitRun = RunView
"""A run as a test sees it: as every program does."""


class Kit:
    """A rota in a test. Use it in `with`."""

    def __init__(self, apps: Sequence[App], now: datetime, seats: int) -> None:
        functions = functions_of(apps)
        self._apps = tuple(apps)
        self._engine = Engine(functions, now, seats)
        self._control = self._engine.control
        self._clients: list[Client | None] = []
        self.client: Client = _KitClient(self._engine)
        """What `rota.Client` is in the real world; `app.client` is this one as long as the kit is open."""

    def __enter__(self) -> Self:
        self._engine.run(self._open())
        self._clients = [app.lend(self.client) for app in self._apps]
        return self

    def __exit__(self, *_: object) -> None:
        for app, client in zip(self._apps, self._clients, strict=True):
            app.lend(client)
        self._engine.close()

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return self._engine.clock.wall()

    def advance(self, seconds: float = 0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let time pass: everything that falls due meanwhile happens, at its instant."""
        span = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if span < timedelta(0):
            raise InvalidInput.of("seconds", "time does not go back")
        self._engine.run(self._pass(span.total_seconds()))

    def until(self, instant: datetime | str) -> None:
        """Let time pass until an instant, what is due then included."""
        self.advance((_instant("instant", instant) - self.now).total_seconds())

    def trigger(self, name: str, /, **params: Any) -> Any:
        """Start a run of a job, let it come to its end (retries and all), and return what the function returned.

        Raises RunFailed, from what the function raised, if it did not succeed.
        """
        return self._engine.run(self._triggered(name, params))

    def runs(self, name: str | None = None) -> list[KitRun]:
        """The runs of a job, or all, oldest first."""
        return self._engine.run(self._runs(name))

    def would_fire(self, until: datetime | str) -> list[tuple[datetime, str]]:
        """What would fire from now until an instant, that instant included: instants and jobs, in their order.

        Nothing is fired. Where a trigger follows the end of a run, every run is taken to end as it starts.
        """
        return self._engine.run(self._would_fire(_instant("until", until)))

    def explain(self, run_id: int) -> list[str]:
        """Why a run waits, in words."""
        found = self._engine.run(self._control.runs.explain(run_id))
        return [reason.text for reason in found.reasons]

    async def _open(self) -> None:
        await self._engine.start()
        for app in self._apps:
            found = app.definitions(self.now.date())
            sources = {"/".join(it.full_name): app.source for it in found if app.source}
            await self._control.jobs.apply(found, Sources(by_name=sources))
        await self._engine.settle()

    async def _pass(self, seconds: float) -> None:
        await self._engine.settle()
        if seconds > 0:
            await self._engine.clock.sleep(seconds)
            await self._engine.settle()

    async def _triggered(self, name: str, params: dict[str, Any]) -> Any:
        run = await self._control.jobs.trigger(job_name(name), params)
        try:
            async with asyncio.timeout(PATIENCE_S):
                while run.state.live:
                    await self._engine.settle()
                    run = await self._found(run.id)
                    if run.state.live:
                        await self._engine.changed()
        except TimeoutError:
            told = await self._control.runs.explain(run.id)
            raise RunFailed(f"{name} does not come to an end: {told.reasons[0].text}") from None
        detail = await self._control.runs.detail(run.id)
        if run.state is RunState.SUCCEEDED:
            return seen(detail).result
        reason = seen(detail).message or (f"({run.reason})" if run.reason else "")
        raise RunFailed(f"{name} {run.state}: {reason}") from self._engine.raised(*(it.id for it in detail.items))

    async def _found(self, run_id: int) -> Run:
        run = await self._engine.store.run(run_id)
        assert run is not None
        return run

    async def _runs(self, name: str | None) -> list[KitRun]:
        wanted = RunFilter(job=None if name is None else job_name(name), limit=RUNS_MAX)
        found = [await self._control.runs.detail(run.id) for run in await self._control.runs.find(wanted)]
        return [seen(detail) for detail in reversed(found)]

    async def _would_fire(self, until: datetime) -> list[tuple[datetime, str]]:
        jobs = await self._control.jobs.find(JobFilter(states=(JobState.ENABLED,), limit=RUNS_MAX))
        return sorted((due, str(job.definition.full_name)) for job in jobs for due in _coming(job, self.now, until))


def _coming(job: Job, now: datetime, until: datetime) -> Iterator[datetime]:
    after, pending = now, job.pending
    if pending is None or pending.due_at > until:
        return
    while True:
        found = preview(job.definition, after, COUNT_MAX, pending=pending)
        yield from (it.instant.due_at for it in found if it.instant.due_at <= until and not it.skipped)
        if len(found) < COUNT_MAX or found[-1].instant.slot_at > until:
            return
        pending = found[-1].instant
        after = pending.due_at


class _KitClient(Client):
    """The client of a kit: the same questions, asked of the kit's store. Functions of the app may ask, too."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self._engine = engine
        self._inner = AsyncClient(control=engine.control)

    def close(self) -> None:
        """The kit closes it."""

    def wait(self, run_id: int, item_ids: Sequence[int], timeout: float | None = None, *, what: str = "") -> list[Item]:
        """Time passes until they have ended."""
        if self._engine.is_running:
            raise Refused("a plain function cannot wait for a task inside of a testing kit; make it async, and await")
        return super().wait(run_id, item_ids, PATIENCE_S if timeout is None else timeout, what=what)

    def raised(self, item_id: int) -> BaseException | None:
        return self._engine.raised(item_id)

    async def _ask_async(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        return await self._asked(question) if self._engine.is_running else self._ask(question)

    def _ask(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        asked = self._asked(question)
        return self._engine.run_now(asked) if self._engine.is_running else self._engine.run(asked)

    async def _asked(self, question: Callable[[AsyncClient], Awaitable[T]]) -> T:
        """A store in memory wakes nobody: the loops look, before and after."""
        self._engine.wake()
        try:
            return await question(self._inner)
        finally:
            self._engine.wake()


def kit(*apps: App, now: datetime | str = START, seats: int = 16) -> Kit:
    """A rota for the jobs of these apps, that begins at this virtual instant: `with kit(app) as kit: ...`."""
    return Kit(apps, _instant("now", now), seats)


def _instant(field: str, value: datetime | str) -> datetime:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        if moment.utcoffset() is not None:
            return moment.astimezone(UTC)
    except (ValueError, AttributeError):
        pass
    raise InvalidInput.of(field, f"must be an instant with an offset from UTC like 2026-01-31T12:00Z, not {value!r}")
