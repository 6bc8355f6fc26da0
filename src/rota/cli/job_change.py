"""`rota job pause|resume|delete|trigger|claim|release`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from rota.cli.arguments import names_of, params_of
from rota.cli.format import count
from rota.cli.lazy import Command, Seconds
from rota.cli.output import as_json, said, say, say_json
from rota.cli.progress import Progress
from rota.cli.session import COORDINATOR_OPTION, Session, ask
from rota.control import Shift, Transfer, job_name
from rota.control.shapes.jobs import claimed_shape, job_shape, released_shape
from rota.control.shapes.runs import run_shape
from rota.control.shapes.values import short
from rota.model.job import Job, JobName
from rota.model.plan import RunFilter
from rota.model.states import RunState

LIVE_MAX = 1000
WAIT_S = 30.0


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_context
def pause(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Fire nothing of these jobs until they are resumed. What runs goes on."""
    wanted = names_of(names)
    _tell(ctx, ask(ctx, lambda session: session.control.pause(wanted)))


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.pass_context
def resume(ctx: click.Context, names: tuple[str, ...]) -> None:
    """Fire these jobs again, from their first instant after now. What was missed while paused is not owed."""
    wanted = names_of(names)
    _tell(ctx, ask(ctx, lambda session: session.control.resume(wanted)))


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(ctx: click.Context, names: tuple[str, ...], yes: bool) -> None:
    """Forget jobs: they fire no more, queued runs are cancelled, what was started goes on. Their history stays."""
    wanted = names_of(names)

    async def work(session: Session) -> list[Job]:
        for name in wanted:
            await session.control.job(name)
        if not as_json(ctx):
            for name in wanted:
                say(await _consequence(session, name))
        if not (yes or as_json(ctx)) and sys.stdin.isatty() and sys.stdout.isatty():
            click.confirm(f"Delete {count(len(wanted), 'job')}?", abort=True)
        return await session.control.delete(wanted)

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
    run = ask(ctx, lambda session: session.control.trigger(wanted, params, key))
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
        given = await session.control.claim(wanted, node=node, force=force)
        shift = Shift(job_id=given.job_id, giver=given.giver or "", receiver=given.receiver)
        with Progress(session.clock, f"{wanted} goes to {given.receiver}") as bar:
            there = await session.control.arrived([shift], lambda _: bar.say("under way"), 0.0 if no_wait else within)
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
    done = ask(ctx, lambda session: session.control.release(wanted), coordinated=True)
    text = (
        f"{wanted} has no owner; whoever may takes it"
        if done.owner is None
        else f"{wanted} is released by {done.owner}"
    )
    said(ctx, released_shape(wanted, done), text)
