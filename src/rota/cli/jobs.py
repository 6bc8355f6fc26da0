"""`rota job`: list, show and preview jobs; pause, resume, delete, trigger, claim and release them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rota.cli.arguments import LIMIT, names_of, params_of
from rota.cli.format import channel_words, count, reason, relative
from rota.cli.lazy import Command, Seconds
from rota.cli.output import Progress, answer, as_json, coloured, confirm, facts, listed, said, say, table
from rota.cli.session import COORDINATOR_OPTION, Session, ask
from rota.control import Shift, job_name
from rota.control.cluster import Transfer, claimed_shape, released_shape
from rota.control.jobs import job_detail_shape, job_shape, preview_shape
from rota.control.runs import run_shape
from rota.control.values import short
from rota.control.values import trigger as words_of
from rota.errors import InvalidInput, NotFound, Problem
from rota.model.cluster import Hold
from rota.model.job import Definition, Job, JobName
from rota.model.plan import JobFilter, RunFilter
from rota.model.run import Run
from rota.model.states import JobState, RunState

if TYPE_CHECKING:
    from rich.text import Text

    from rota.core.preview import Preview

PRESENT = (JobState.ENABLED, JobState.PAUSED)
LIVE_MAX = 1000
WAIT_S = 30.0


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
        return await session.store.now(), await session.control.jobs.find(wanted)

    now, jobs = ask(ctx, work)
    shapes = [job_shape(job) for job in jobs[:limit]]
    heads, rows = ["JOB", "STATE", "TRIGGER", "NEXT", "AT"], (_job_row(job, now) for job in jobs[:limit])
    listed(ctx, shapes, heads, rows, "no jobs; store some with: rota job apply PATH")
    if len(jobs) > limit and not as_json(ctx):
        say(f"there are more than {limit}; see them with --limit")


def _job_row(job: Job, now: datetime) -> tuple[str | Text, ...]:
    made, due = job.definition, relative(job.next_fire_at, now) if job.next_fire_at else "-"
    return str(made.full_name), coloured(job.state), words_of(made.schedule.rule), due, short(job.next_fire_at)


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.pass_context
def show(ctx: click.Context, name: str) -> None:
    """Show a job: its state, its definition, its latest runs and its history."""
    wanted = job_name(name)

    async def work(session: Session) -> None:
        job = await session.control.jobs.get(wanted)
        runs = await session.control.runs.find(RunFilter(job=wanted, limit=5))
        history = await session.store.events(job_id=job.id, limit=10)
        holds = await session.control.holds.on(wanted)
        now = await session.store.now()
        answer(ctx, job_detail_shape(job, holds, history), _show_job, job, runs, holds, now)

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
        ("alarms", "; ".join(f"{', '.join(it.kinds) or 'all'} to {channel_words(it.channel)}" for it in made.alarms)),
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
        table(
            ["RUN", "STATE", "REASON", "DUE"],
            [(str(it.id), coloured(it.state), reason(it), short(it.due_at)) for it in runs],
        )


def _refuse_bad_word(field: str, word: str | None) -> None:
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
            job, coming = await session.control.jobs.preview(wanted, count)
            return job.definition, coming

        definition, coming = ask(ctx, work)
    else:
        definition, coming = asyncio.run(_of_file(wanted, count, path))
    shapes = [preview_shape(it) for it in coming]
    listed(ctx, shapes, ["LOCAL", "UTC", "MARK"], map(_row, coming), _why_none(definition))


async def _of_file(name: JobName, count: int, path: str) -> tuple[Definition, tuple[Preview, ...]]:
    """No store is needed to look at a file."""
    from rota.wiring import unstored

    control = unstored()
    loaded = await control.jobs.load([path])
    found = [it for it in loaded.definitions if it.full_name == name]
    if not found and loaded.problems:
        raise InvalidInput(loaded.problems)
    if not found:
        raise NotFound(f"there is no job {name} in {path}")
    return found[0], control.jobs.preview_of(found[0], count)


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


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_context
def pause(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Fire nothing of these jobs until they are resumed. What runs goes on."""
    wanted = names_of(names)
    _tell(ctx, ask(ctx, lambda session: session.control.jobs.pause(wanted)))


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_context
def resume(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Fire these jobs again, from their first instant after now. What was missed while paused is not owed."""
    wanted = names_of(names)
    _tell(ctx, ask(ctx, lambda session: session.control.jobs.resume(wanted)))


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], yes: bool) -> None:
    """Forget jobs: they fire no more, queued runs are cancelled, what was started goes on. Their history stays."""
    wanted = names_of(names)

    async def work(session: Session) -> list[Job]:
        for name in wanted:
            await session.control.jobs.get(name)
        if not as_json(ctx):
            for name in wanted:
                say(await _consequence(session, name))
        confirm(ctx, f"Delete {count(len(wanted), 'job')}?", yes=yes)
        return await session.control.jobs.delete(wanted)

    _tell(ctx, ask(ctx, work))


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option("--param", "pairs", metavar="KEY=TEXT", multiple=True, help="One parameter, as text; may be repeated.")
@click.option("--params", "text", metavar="JSON", help="Parameters as one JSON object, at most 64 KiB.")
@click.option("--key", metavar="KEY", help="An idempotency key: the same key starts one run, however often.")
@click.pass_context
def trigger(ctx: click.Context, name: str, pairs: tuple[str, ...], text: str | None, key: str | None) -> None:
    """Start a run of a job now, under its overlap policy. Works for paused jobs too."""
    wanted, params = job_name(name), params_of(text, pairs)
    run = ask(ctx, lambda session: session.control.jobs.trigger(wanted, params, key))
    why = f": {run.reason}" if run.reason else ""
    said(ctx, run_shape(run, wanted), f"run {run.id} of {wanted} is {run.state}{why}")


async def _consequence(session: Session, name: JobName) -> str:
    live = (RunState.WAITING, RunState.RUNNING)
    # As stored: there, only runs queued behind others are waiting. A run that waits for a seat is not cancelled.
    runs = await session.store.runs(RunFilter(job=name, states=live, limit=LIVE_MAX))
    queued = sum(run.state is RunState.WAITING for run in runs)
    words = [
        *([f"{count(queued, 'queued run')} will be cancelled"] if queued else []),
        *([f"{count(len(runs) - queued, 'run')} will go on"] if len(runs) > queued else []),
    ]
    more = " (or more)" if len(runs) == LIVE_MAX else ""
    return f"{name}: " + ("; ".join(words) + more if words else "it has no live run")


def _tell(ctx: click.Context, jobs: Sequence[Job]) -> None:
    text = "\n".join(f"{job.definition.full_name} is {job.state}{_next(job)}" for job in jobs)
    said(ctx, [job_shape(job) for job in jobs], text)


def _next(job: Job) -> str:
    return f", next at {short(job.next_fire_at)}" if job.next_fire_at else ""


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option(
    "--node", metavar="NODE", help="The scheduler that shall have it. [default: the one with the fewest jobs]"
)
@click.option("--force", is_flag=True, help="Also above its limit N; a drained one is taken off the offline list.")
@click.option("--no-wait", is_flag=True, help="Do not wait until it has the job.")
@click.option("--within", metavar="S", type=Seconds(), default=WAIT_S, show_default=True, help="Wait at most so long.")
@COORDINATOR_OPTION
@click.pass_context
def claim(ctx: click.Context, name: str, node: str | None, force: bool, no_wait: bool, within: float) -> None:
    """Give a job to a scheduler. Its owner, if it has one, hands it over; nothing is fired twice or left out."""
    wanted = job_name(name)

    async def work(session: Session) -> tuple[Transfer, bool]:
        given = await session.control.cluster.claim(wanted, node=node, force=force)
        shift = Shift(job_id=given.job_id, giver=given.giver or "", receiver=given.receiver)
        with Progress(session.clock, f"{wanted} goes to {given.receiver}") as bar:
            there = await session.control.cluster.arrived(
                [shift], lambda _: bar.say("under way"), 0.0 if no_wait else within
            )
        return given, bool(there)

    given, there = ask(ctx, work, coordinated=True)
    said(ctx, claimed_shape(wanted, given, arrived=there), _words(str(wanted), given, there))


def _words(name: str, given: Transfer, there: bool) -> str:
    off = f"{given.receiver} is off the offline list; " if given.undrained else ""
    if given.giver == given.receiver:
        return f"{off}{name} is with {given.receiver} already"
    was = f", before with {given.giver}" if given.giver else ""
    return f"{off}{name} {'is now with' if there else 'is on its way to'} {given.receiver}{was}"


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@COORDINATOR_OPTION
@click.pass_context
def release(ctx: click.Context, name: str) -> None:
    """End the claim of a job's owner, so that whoever may takes it; that may be the same again."""
    wanted = job_name(name)
    done = ask(ctx, lambda session: session.control.cluster.release(wanted), coordinated=True)
    text = (
        f"{wanted} has no owner; whoever may takes it"
        if done.owner is None
        else f"{wanted} is released by {done.owner}"
    )
    said(ctx, released_shape(wanted, done), text)
