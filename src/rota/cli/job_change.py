"""`rota job pause|resume|delete|trigger`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rota.cli.arguments import names_of, params_of
from rota.cli.format import count
from rota.cli.lazy import Command
from rota.cli.output import as_json, say, say_json
from rota.cli.session import Session, ask
from rota.control import job_name
from rota.control.shapes.jobs import job_shape
from rota.control.shapes.runs import run_shape
from rota.control.shapes.values import short
from rota.model.job import Job, JobName
from rota.model.plan import RunFilter
from rota.model.states import RunState

LIVE_MAX = 1000


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
        if not (yes or as_json(ctx)) and sys.stdin.isatty() and sys.stdout.isatty():
            click.confirm(f"Delete {count(len(wanted), 'job')}?", abort=True)
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
    if as_json(ctx):
        say_json(run_shape(run, wanted))
    else:
        say(f"run {run.id} of {wanted} is {run.state}" + (f": {run.reason}" if run.reason else ""))


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
    if as_json(ctx):
        say_json([job_shape(job) for job in jobs])
        return
    for job in jobs:
        due = f", next at {short(job.next_fire_at)}" if job.next_fire_at else ""
        say(f"{job.definition.full_name} is {job.state}{due}")
