"""`rota node drain|undrain`: nodes that take nothing more, and those that do again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import click

from rota.cli.format import count
from rota.cli.lazy import Command, Seconds
from rota.cli.output import as_json, say, say_json
from rota.cli.progress import Progress
from rota.cli.session import COORDINATOR_OPTION, Session, ask
from rota.control import Load
from rota.control.shapes.nodes import drained_shape
from rota.errors import InvalidInput, Refused
from rota.model.cluster import Role

RELEASE_MAX = 10_000_000
WAIT_S = 86_400.0

Seen = tuple[dict[str, str], dict[str, tuple[Role, ...]]]

_ROLE = click.option("--role", type=click.Choice([str(it) for it in Role]), help="Only in this role. [default: all]")


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_ROLE
@click.option(
    "--release",
    metavar="COUNT",
    type=click.IntRange(1, RELEASE_MAX),
    help="As scheduler only: give up so many jobs, then be off the list again.",
)
@click.option("--deadline", metavar="S", type=Seconds(), help="After so many seconds, give up jobs that run, too.")
@click.option("--wait", is_flag=True, help="Wait until they have no jobs and no items any more.")
@click.option("--within", metavar="S", type=Seconds(), default=WAIT_S, help="Wait at most so long. [default: a day]")
@click.option("--force", is_flag=True, help="Also if too many would be gone, or the others could not hold all jobs.")
@COORDINATOR_OPTION
@click.pass_context
def drain(
    ctx: click.Context,
    names: tuple[str, ...],
    role: str | None,
    release: int | None,
    deadline: float | None,
    wait: bool,
    within: float,
    force: bool,
) -> None:
    """Put nodes on the offline list: they take nothing new and finish what they run. It lasts, over restarts too. A
    scheduler gives up its jobs, idle ones first, the others when their runs are over."""
    wanted, roles = list(dict.fromkeys(names)), _roles(role, release)

    async def work(session: Session) -> Seen:
        await session.control.nodes.drain(wanted, roles=roles, release=release, deadline_s=deadline, force=force)
        if wait and not (left := await _until_drained(session, wanted, roles, within)).is_none:
            raise Refused(f"{_left(left)} after {within:g} s; the nodes stay on the offline list")
        return await _seen(session)

    _tell(ctx, wanted, ask(ctx, work, coordinated=True))


@click.command(cls=Command)
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_ROLE
@COORDINATOR_OPTION
@click.pass_context
def undrain(ctx: click.Context, names: tuple[str, ...], role: str | None) -> None:
    """Take nodes off the offline list, at any moment."""
    wanted = list(dict.fromkeys(names))

    async def work(session: Session) -> Seen:
        await session.control.nodes.undrain(wanted, roles=_roles(role, None))
        return await _seen(session)

    _tell(ctx, wanted, ask(ctx, work, coordinated=True))


def _roles(role: str | None, release: int | None) -> tuple[Role, ...]:
    if release is None:
        return tuple(Role) if role is None else (Role(role),)
    if role == Role.EXECUTOR:
        raise InvalidInput.of("--release", "only schedulers have jobs to give up; leave --role executor out")
    return (Role.SCHEDULER,)


async def _until_drained(session: Session, names: Sequence[str], roles: Collection[Role], within_s: float) -> Load:
    with Progress(session.clock, "draining") as bar:
        return await session.control.nodes.drained(names, roles, lambda load: bar.say(_left(load)), within_s)


def _left(load: Load) -> str:
    return f"{count(load.jobs, 'job')} and {count(load.items, 'item')} left"


async def _seen(session: Session) -> Seen:
    """How the nodes stand now, and in which roles they are on the list."""
    states = {it.joined.name: str(it.state) for it in (await session.control.nodes.find()).nodes}
    return states, {it.name: it.roles for it in (await session.store.drains()).drains}


def _tell(ctx: click.Context, wanted: Sequence[str], seen: Seen) -> None:
    states, listed = seen
    if as_json(ctx):
        say_json(drained_shape(wanted, listed, states))
        return
    for name in wanted:
        roles = listed.get(name, ())
        where = "on" if roles else "off"
        part = f" as {roles[0]}" if len(roles) == 1 else ""
        state = f"it is {states[name]}" if name in states else "no node of that name is here now"
        say(f"{name} is {where} the offline list{part}; {state}")
