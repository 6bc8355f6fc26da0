"""The live view of `rota up`: what it shows is read at most once a second, and drawn four times a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from rota.cli.format import compact, count, reason, whose
from rota.cli.output import coloured, say
from rota.cli.serve import Stopping
from rota.cli.session import Session
from rota.control.runs import as_seen
from rota.control.values import cause as cause_of
from rota.control.values import lateness, trigger
from rota.core.masking import without_passwords
from rota.errors import StoreUnavailable
from rota.model.job import Job, JobName
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Run

READ_S = 1.0
DRAW_S = 0.25
JOBS_MAX = 500
RUNS_MAX = 50
LOOKUPS_MAX = 20
WIDE = 100
LINES_MAX = 3
FRAME = 9
"""Lines that are always there: header, headings, rules, footer."""


class Picture(NamedTuple):
    store: str
    node: str
    path: str
    now: datetime
    names: dict[int, JobName]
    last: dict[int, Run | None]
    up_s: float = 0.0
    trouble: str = ""
    jobs: Sequence[Job] = ()
    jobs_more: bool = False
    runs: Sequence[Run] = ()
    tally: str = ""
    lines: Sequence[str] = ()
    ended: bool = False


def render(seen: Picture, width: int, height: int) -> RenderableType:
    """The whole picture, at most `height` lines high."""
    lines = [] if seen.ended else seen.lines[-LINES_MAX:]
    room = max(height - FRAME - len(lines), 4)
    jobs_room = max(min(len(seen.jobs) + 1, room // 2), 2)
    runs_room = max(room - jobs_room, 1)
    parts: list[RenderableType] = [
        _header(seen),
        Rule(style="dim"),
        _jobs(seen, jobs_room, wide=width >= WIDE),
        Text(),
        _runs(seen, runs_room, wide=width >= WIDE),
        Rule(style="dim"),
        *(Text(_short_line(line), style="dim", no_wrap=True, overflow="ellipsis") for line in lines),
    ]
    if not seen.ended:
        parts.append(Text("Ctrl-C stops", style="dim"))
    return Group(*parts)


def _header(seen: Picture) -> RenderableType:
    made = Table.grid(expand=True, padding=(0, 2, 0, 0))
    made.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    made.add_column(no_wrap=True, justify="right")
    reach = Text("out of reach", style="bold red") if seen.trouble else Text("reachable", style="green")
    made.add_row(Text.assemble(("rota ", "bold"), seen.store), Text.assemble("store ", reach))
    jobs = f"{len(seen.jobs)}+ jobs" if seen.jobs_more else count(len(seen.jobs), "job")
    figures = f"{jobs} · {seen.tally} · up {compact(int(seen.up_s))}"
    made.add_row(Text(f"node {seen.node} · {seen.path}", style="dim"), figures)
    return made


def _jobs(seen: Picture, room: int, *, wide: bool) -> RenderableType:
    if not seen.jobs:
        return Text(f"no jobs yet: put one into {seen.path}; it is read again when it changes", style="yellow")
    made = _table()
    made.add_column("JOB", ratio=2, no_wrap=True, overflow="ellipsis")
    made.add_column("TRIGGER", ratio=3, no_wrap=True, overflow="ellipsis")
    made.add_column("NEXT", width=11, no_wrap=True)
    made.add_column("AT (UTC)", width=12, no_wrap=True)
    made.add_column("LAST RUN", width=17 if wide else 9, no_wrap=True)
    ordered = sorted(seen.jobs, key=lambda job: (job.next_fire_at is None, job.next_fire_at or seen.now, job.id))
    shown = ordered if len(ordered) <= room else ordered[: room - 1]
    for job in shown:
        made.add_row(
            Text(str(job.definition.full_name)),
            Text(trigger(job.definition.schedule.rule)),
            _next(job, seen.now),
            Text(_at(job.next_fire_at, seen.now)),
            _state(seen.last.get(job.id), wide=wide),
        )
    if len(shown) < len(ordered):
        made.add_row(Text(f"… {len(ordered) - len(shown)} more", style="dim"))
    return made


def _runs(seen: Picture, room: int, *, wide: bool) -> RenderableType:
    if not seen.runs:
        return Text(_no_runs(seen), style="dim")
    made = _table()
    made.add_column("RUN", no_wrap=True)
    made.add_column("JOB", ratio=1, no_wrap=True, overflow="ellipsis")
    made.add_column("STATE", width=9, no_wrap=True)
    made.add_column("REASON", width=12, no_wrap=True)
    if wide:
        made.add_column("CAUSE", width=6, no_wrap=True)
    made.add_column("DUE (UTC)", width=12, no_wrap=True)
    made.add_column("LATE", width=7, no_wrap=True, justify="right")
    for run in seen.runs[:room]:
        cause = [Text(cause_of(run))] if wide else []
        name = Text(whose(run, seen.names.get(run.job_id)))
        late = Text(compact(max(lateness(run), 0)))
        due = Text(_at(run.due_at, seen.now))
        made.add_row(Text(str(run.id)), name, coloured(run.state), Text(reason(run)), *cause, due, late)
    return made


def _no_runs(seen: Picture) -> str:
    coming = [job.next_fire_at for job in seen.jobs if job.next_fire_at is not None]
    if not coming:
        return "no runs yet"
    return f"no runs yet: the first is due {_ahead(min(coming), seen.now)}"


def _next(job: Job, now: datetime) -> Text:
    if job.next_fire_at is None:
        return coloured(job.state) if job.state != "enabled" else Text("-", style="dim")
    return Text(_ahead(job.next_fire_at, now))


def _ahead(moment: datetime, now: datetime) -> str:
    seconds = (moment - now).total_seconds()
    return f"in {compact(int(seconds))}" if seconds >= 1 else "now"


def _at(moment: datetime | None, now: datetime) -> str:
    """The time today, the day and time within a year, or the date."""
    if moment is None:
        return ""
    moment = moment.astimezone(UTC)
    if moment.date() == now.date():
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%d %b %H:%M" if abs((moment - now).days) < 300 else "%Y-%m-%d")


def _state(run: Run | None, *, wide: bool) -> Text:
    if run is None:
        return Text("-", style="dim")
    state = coloured(run.state)
    return state.append(f" {run.reason}") if wide and run.reason else state


def _short_line(line: str) -> str:
    """A log line without its date and the parts of its seconds."""
    first = line.split("\n", 1)[0]
    return f"{first[11:19]} {first[28:]}"


def _table() -> Table:
    return Table(box=None, expand=True, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))


class Watch:
    """The live view of an embedded node."""

    def __init__(
        self, session: Session, stopping: Stopping, tally: Callable[[], str], path: str, lines: Sequence[str]
    ) -> None:
        self._session = session
        self._stopping = stopping
        self._tally = tally
        self._since = self._read_s = session.clock.monotonic()
        self._lines = lines
        url = without_passwords(session.config.store.url)
        self._read_picture = Picture(url, session.config.node.name, path, session.clock.wall(), {}, {})
        """As it was at the last reading of the store, at `_read_s`."""
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
        store, control, was = self._session.store, self._session.control, self._read_picture
        names, last = was.names, was.last
        try:
            now = await store.now()
            read_s = self._session.clock.monotonic()
            jobs = await store.jobs(JobFilter(limit=JOBS_MAX))
            runs = await as_seen(store, await store.runs(RunFilter(limit=RUNS_MAX)))
            names |= {job.id: job.definition.full_name for job in jobs}
            if any(run.job_id and run.job_id not in names for run in runs):
                names |= await control.runs.names(runs)
            last |= {run.job_id: run for run in reversed(runs)}
            for job in [job for job in jobs if job.id not in last][:LOOKUPS_MAX]:
                found = await as_seen(store, await store.runs(RunFilter(job=job.definition.full_name, limit=1)))
                last[job.id] = found[0] if found else None
        except StoreUnavailable as fault:
            self._read_picture = was._replace(trouble=without_passwords(str(fault)))
            return
        more = len(jobs) == JOBS_MAX
        self._read_picture = was._replace(now=now, trouble="", jobs=jobs, jobs_more=more, runs=runs)
        self._read_s = read_s

    def _seen(self, *, ended: bool = False) -> Picture:
        elapsed, read = self._session.clock.monotonic(), self._read_picture
        now, up_s = read.now + timedelta(seconds=elapsed - self._read_s), elapsed - self._since
        return read._replace(now=now, up_s=up_s, tally=self._tally(), lines=tuple(self._lines), ended=ended)
