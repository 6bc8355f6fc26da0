"""Read what the live view shows, at most once a second, and draw it four times a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from rich.console import Console
from rich.live import Live

from rota.cli.output import say
from rota.cli.serve import Stopping
from rota.cli.session import Session
from rota.cli.view import Picture, render
from rota.control.runs import as_seen
from rota.core.masking import without_passwords
from rota.errors import StoreUnavailable
from rota.model.job import Job, JobName
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Run
from rota.model.value import Value

READ_S = 1.0
DRAW_S = 0.25
JOBS_MAX = 500
RUNS_MAX = 50
LOOKUPS_MAX = 20


class _Snapshot(Value, frozen=True, kw_only=True):
    """The result of one read of the store."""

    now: datetime
    at: float
    jobs: tuple[Job, ...] = ()
    runs: tuple[Run, ...] = ()


class Watch:
    """The live view of an embedded node."""

    def __init__(
        self, session: Session, stopping: Stopping, tally: Callable[[], str], path: str, lines: Sequence[str]
    ) -> None:
        self._session = session
        self._stopping = stopping
        self._tally = tally
        self._path = path
        self._since = session.clock.monotonic()
        self._lines = lines
        self._reading: _Snapshot | None = None
        self._trouble = ""
        self._names: dict[int, JobName] = {}
        self._last: dict[int, Run | None] = {}
        self._told: list[str] = []
        self._is_closed = False

    def tell(self, text: str) -> None:
        """Say something as soon as the view is closed: what is printed into it goes away with it."""
        if self._is_closed:
            say(text, file=sys.stderr)
        else:
            self._told.append(text)

    async def show(self) -> None:
        """Draw until told to stop; leave the last picture behind."""
        console = Console(highlight=False)
        read_at = -READ_S
        with Live(console=console, screen=True, auto_refresh=False, redirect_stdout=False) as live:
            self._stopping.at_once = live.stop
            while True:
                if self._session.clock.monotonic() - read_at >= READ_S:
                    read_at = self._session.clock.monotonic()
                    await self._read()
                picture = render(self._seen(), console.width, console.height)
                live.update(picture, refresh=True)
                if await self._stopping.within(DRAW_S):
                    break
        console.print(render(self._seen(ended=True), console.width, console.height - 3))
        self._is_closed = True
        for text in self._told:
            say(text, file=sys.stderr)

    async def _read(self) -> None:
        store, control = self._session.store, self._session.control
        try:
            now = await store.now()
            at = self._session.clock.monotonic()
            jobs = await store.jobs(JobFilter(limit=JOBS_MAX))
            runs = await as_seen(store, await store.runs(RunFilter(limit=RUNS_MAX)))
            self._names |= {job.id: job.definition.full_name for job in jobs}
            if any(run.job_id and run.job_id not in self._names for run in runs):
                self._names |= await control.runs.names(runs)
            self._last |= {run.job_id: run for run in reversed(runs)}
            for job in [job for job in jobs if job.id not in self._last][:LOOKUPS_MAX]:
                found = await as_seen(store, await store.runs(RunFilter(job=job.definition.full_name, limit=1)))
                self._last[job.id] = found[0] if found else None
        except StoreUnavailable as fault:
            self._trouble = str(fault)
            return
        self._trouble = ""
        self._reading = _Snapshot(now=now, at=at, jobs=jobs, runs=runs)

    def _seen(self, *, ended: bool = False) -> Picture:
        elapsed = self._session.clock.monotonic()
        read = self._reading or _Snapshot(now=self._session.clock.wall(), at=elapsed)
        return Picture(
            store=without_passwords(self._session.config.store.url),
            node=self._session.config.node.name,
            path=self._path,
            up_s=elapsed - self._since,
            now=read.now + timedelta(seconds=elapsed - read.at),
            trouble=without_passwords(self._trouble),
            jobs=read.jobs,
            jobs_more=len(read.jobs) == JOBS_MAX,
            runs=read.runs,
            names=self._names,
            last=self._last,
            tally=self._tally(),
            lines=tuple(self._lines),
            ended=ended,
        )
