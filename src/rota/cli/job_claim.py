"""`rota job claim|release`: give one job to a scheduler, or let whoever may take it (S0.46)."""

from __future__ import annotations

import click

from rota.cli.lazy import Command, Seconds
from rota.cli.output import said
from rota.cli.progress import Progress
from rota.cli.session import COORDINATOR_OPTION, Session, ask
from rota.control import Shift, Transfer, job_name
from rota.control.shapes.jobs import claimed_shape, released_shape

WAIT_S = 30.0


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
