"""`rota job list|show|preview`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rota.cli.arguments import LIMIT
from rota.cli.format import channel_words, reason, relative
from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, facts, say, say_json, table
from rota.cli.session import Session, ask
from rota.control import job_name
from rota.control.shapes.jobs import job_detail_shape, job_shape, preview_shape
from rota.control.shapes.values import short
from rota.control.shapes.values import trigger as words_of
from rota.errors import InvalidInput, NotFound
from rota.model.alarm import JobAlarm
from rota.model.cluster import Hold
from rota.model.job import Definition, Job, JobName
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Run
from rota.model.states import JobState

if TYPE_CHECKING:
    from rich.text import Text

    from rota.core.preview import Preview

if TYPE_CHECKING:
    from rich.text import Text

PRESENT = (JobState.ENABLED, JobState.PAUSED)


@click.command(name="list", cls=Command)
@click.option("--tenant", metavar="TENANT", help="Only jobs of this tenant.")
@click.option("--project", metavar="PROJECT", help="Only jobs of this project.")
@click.option(
    "--state",
    type=click.Choice([str(it) for it in JobState]),
    help="Only jobs in this state. [default: all but deleted]",
)
@click.option("--limit", type=LIMIT, default=100, show_default=True, help="At most so many.")
@click.pass_context
def list_(ctx: click.Context, tenant: str | None, project: str | None, state: str | None, limit: int) -> None:
    """List jobs in order of their creation."""
    for field, word in (("--tenant", tenant), ("--project", project)):
        _refuse_bad_word(field, word)
    states = PRESENT if state is None else (JobState(state),)
    wanted = JobFilter(tenant=tenant, project=project, states=states, limit=limit + 1)

    async def work(session: Session) -> tuple[datetime, tuple[Job, ...]]:
        return await session.store.now(), await session.control.jobs(wanted)

    now, jobs = ask(ctx, work)
    if as_json(ctx):
        say_json([job_shape(job) for job in jobs[:limit]])
    else:
        _show_list(jobs[:limit], now, more=len(jobs) > limit)


def _show_list(jobs: Sequence[Job], now: datetime, *, more: bool) -> None:
    if not jobs:
        say("no jobs; store some with: rota job apply PATH")
        return
    table(
        ["JOB", "STATE", "TRIGGER", "NEXT", "AT"],
        [
            (
                str(job.definition.full_name),
                coloured(job.state),
                words_of(job.definition.schedule.rule),
                relative(job.next_fire_at, now) if job.next_fire_at else "-",
                short(job.next_fire_at),
            )
            for job in jobs
        ],
    )
    if more:
        say(f"there are more than {len(jobs)}; see them with --limit")


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.pass_context
def show(ctx: click.Context, name: str) -> None:
    """Show a job: its state, its definition, its latest runs and its history."""
    wanted = job_name(name)

    async def work(session: Session) -> None:
        job = await session.control.job(wanted)
        runs = await session.control.runs(RunFilter(job=wanted, limit=5))
        history = await session.store.events(job_id=job.id, limit=10)
        holds = await session.control.holds_on(wanted)
        if as_json(ctx):
            say_json(job_detail_shape(job, holds, history))
        else:
            _show_job(job, runs, holds, await session.store.now())

    ask(ctx, work)


def _show_job(job: Job, runs: Sequence[Run], holds: Sequence[Hold], now: datetime) -> None:
    made = job.definition
    schedule = made.schedule
    due = f"{short(job.next_fire_at)} ({relative(job.next_fire_at, now)})" if job.next_fire_at else "-"
    bounds = [f"{word} {short(at)}" for word, at in (("from", schedule.start_at), ("until", schedule.end_at)) if at]
    optional = [
        ("held", "; ".join(f"{it} is paused since {short(it.held_at)}; see: rota cluster show" for it in holds)),
        ("title", made.title),
        ("bounds", " ".join(bounds)),
        ("jitter", f"up to {schedule.jitter_s:g} s" if schedule.jitter_s else ""),
        ("calendar", schedule.calendar.name if schedule.calendar else ""),
        ("params", ", ".join(f"{name}={value!r}" for name, value in made.params.items())),
        ("source", job.source),
        ("alarms", "; ".join(_told(it) for it in made.alarms)),
    ]
    facts(
        [
            ("job", str(made.full_name)),
            ("state", coloured(job.state)),
            ("trigger", words_of(schedule.rule)),
            ("next", due),
            *((name, value) for name, value in optional if value),
            ("misfire", f"{made.misfire.policy}, grace {made.misfire.grace_s:g} s"),
            ("overlap", str(made.overlap.policy) + (f", key {made.overlap.key}" if made.overlap.key else "")),
            ("tasks", ", ".join(f"{task.name} ({task.runner})" for task in made.tasks)),
            ("version", f"{job.version} (revision {job.revision}, digest {job.digest[:12]})"),
            ("created", short(job.created_at)),
            ("changed", short(job.changed_at)),
        ]
    )
    if runs:
        say("\nlatest runs")
        table(["RUN", "STATE", "REASON", "DUE"], [_run_row(run) for run in runs])


def _told(alarm: JobAlarm) -> str:
    kinds = ", ".join(map(str, alarm.kinds)) or "all"
    return f"{kinds} to {channel_words(alarm.channel)}"


def _run_row(run: Run) -> tuple[str | Text, ...]:
    return str(run.id), coloured(run.state), reason(run), short(run.due_at)


def _refuse_bad_word(field: str, word: str | None) -> None:
    from rota.errors import InvalidInput, Problem

    if word is None:
        return
    try:
        name: JobName = job_name(word)
    except InvalidInput as error:
        raise InvalidInput(Problem(field, it.reason) for it in error.problems) from None
    if name.name != word:
        raise InvalidInput.of(field, f"must be one name, not {word!r}")


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many instants.")
@click.option("--file", "path", metavar="PATH", help="Take the definition from a file or folder, not from the store.")
@click.pass_context
def preview(ctx: click.Context, name: str, count: int, path: str | None) -> None:
    """Show the next instants of a job, as the wall clock of its zone shows them, with marks where that clock jumps."""
    wanted = job_name(name)
    if path is None:

        async def work(session: Session) -> tuple[Definition, tuple[Preview, ...]]:
            job, coming = await session.control.preview(wanted, count)
            return job.definition, coming

        definition, coming = ask(ctx, work)
    else:
        definition, coming = asyncio.run(_of_file(wanted, count, path))
    if as_json(ctx):
        say_json([preview_shape(it) for it in coming])
    elif coming:
        table(["LOCAL", "UTC", "MARK"], [_row(it) for it in coming])
    else:
        say(_why_none(definition))


async def _of_file(name: JobName, count: int, path: str) -> tuple[Definition, tuple[Preview, ...]]:
    """No store is needed to look at a file."""
    from rota.wiring import unstored

    control = unstored()
    loaded = await control.load([path])
    found = [it for it in loaded.definitions if it.full_name == name]
    if not found and loaded.problems:
        raise InvalidInput(loaded.problems)
    if not found:
        raise NotFound(f"there is no job {name} in {path}")
    return found[0], control.preview_of(found[0], count)


def _row(it: Preview) -> tuple[str, str, Text]:
    from rich.text import Text

    local = it.local_at.strftime("%a %Y-%m-%d %H:%M:%S ") + f"{it.local_at.tzname()} {it.local_at.strftime('%z')}"
    utc = it.instant.slot_at.strftime("%Y-%m-%d %H:%M:%SZ")
    marks = [
        *([Text(it.mark, style="bold yellow")] if it.mark else []),
        *([Text(f"skipped: {it.skipped}", style="magenta")] if it.skipped else []),
        *([Text(f"due {_jitter(it):.3f} s later", style="dim")] if _jitter(it) else []),
    ]
    return local, utc, Text("; ").join(marks)


def _jitter(it: Preview) -> float:
    return (it.instant.due_at - it.instant.slot_at).total_seconds()


def _why_none(definition: Definition) -> str:
    if not definition.fires_by_itself:
        return f"{definition.full_name} runs only when asked: rota job trigger {definition.full_name}"
    return f"{definition.full_name} has no instant left"
