"""`rota node`: list, drain, undrain, sweep; `rota node start`: one node of a cluster, until it is told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

import click

from rota.cli.format import count, relative
from rota.cli.lazy import Command, Group, Seconds
from rota.cli.output import Progress, as_json, coloured, listed, say, say_json
from rota.cli.session import COORDINATOR_OPTION, Session, ask, configuration, opened
from rota.control.nodes import Load, drained_shape, nodes_shape
from rota.control.values import short
from rota.core.masking import without_passwords
from rota.errors import InvalidInput, Refused
from rota.model.cluster import Peer, Role
from rota.model.node import Members, Node, NodeState

if TYPE_CHECKING:
    from rich.text import Text

    from rota.config import Config

ALIVE = (NodeState.ONLINE, NodeState.DRAINING)
RELEASE_MAX = 10_000_000
WAIT_S = 86_400.0

Seen = tuple[dict[str, str], dict[str, tuple[Role, ...]]]

_ROLE = click.option("--role", type=click.Choice([str(it) for it in Role]), help="Only in this role. [default: all]")

_SETTINGS = {
    "name": ("node.name", "NAME", "The name of this node in the history. [default: host and process id]"),
    "listen": (
        "node.listen",
        "HOST:PORT",
        "What it serves. [default: port 7700 of the address of this host that leads to the store]",
    ),
    "advertise": ("node.advertise", "HOST[:PORT]", "Where the other nodes reach it. [default: where it listens]"),
    "coordinator": ("coordinator.url", "URL", "zookeeper://HOST:PORT or etcd://HOST:PORT. [default: the store]"),
    "placement": ("placement.kind", "KIND", "How schedulers share the jobs: claim, scope, beat or none."),
    "faults": ("placement.faults", "N", "How many schedulers may die and the others still hold all jobs."),
    "alarm": ("placement.alarm", "M", "Raise an alarm when this scheduler takes more jobs than that."),
    "weight": ("placement.weight", "W", "How much of the jobs it should have, beside the others. [default: 1]"),
    "group": ("executor.group", "GROUP", "The group of executors that it belongs to."),
    "number": ("executor.number", "N", "Its number within the group. [default: the lowest that is free]"),
    "roles": ("node.roles", "ROLES", "What it does: all, scheduler or executor. [default: all]"),
    "seats": ("executor.seats", "N", "How many items it executes at a time; 0: none."),
    "definitions": ("definitions.path", "PATH", "A file or folder of definitions, applied whenever it changes."),
}
"""The settings that options of `rota node start` give, with what the help says about each."""


def _setting_options(command: Callable[..., None]) -> Callable[..., None]:
    for option, (_, metavar, text) in reversed(_SETTINGS.items()):
        command = click.option(f"--{option}", metavar=metavar, help=text)(command)
    return command


@click.group(
    cls=Group,
    implied="start",
    lazy={
        "start": ("rota.cli.node", "Run one node of a cluster, until it is told to stop."),
        "list": ("rota.cli.node", "List the nodes of the cluster."),
        "drain": ("rota.cli.node", "Put nodes on the offline list."),
        "undrain": ("rota.cli.node", "Take nodes off it."),
        "sweep": ("rota.cli.node", "Clear what earlier nodes left on this host."),
    },
)
def node() -> None:
    """Start a node of a cluster; list, drain, undrain nodes; clear what earlier ones left."""


@click.command(cls=Command)
@_setting_options
@click.option("--app", "app", metavar="FILE", help="A Python file with an app, applied likewise.")
@click.option("--seconds", type=Seconds(), help="Stop after so many seconds.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How log lines are written. [default: text]")
@click.pass_context
def start(
    ctx: click.Context, /, app: str | None, seconds: float | None, log_format: str | None, **given: str | None
) -> None:
    """Run one node: fire due jobs, execute what is dispatched, keep definitions applied. It waits for its store, and
    goes on after outages. Ctrl-C lets what runs finish; a second one stops it at once."""
    from rota.cli import log, serve

    config = configuration(ctx, {_SETTINGS[option][0]: value for option, value in given.items()})
    serve.refuse_missing_paths("definitions.path", [config.definitions.path] if config.definitions.path else [])
    serve.refuse_missing_paths("app", [app] if app else [])
    log.start(log_format or ("json" if as_json(ctx) else "text"))
    paths = [path for path in (config.definitions.path, app) if path]
    asyncio.run(run_node(config, paths, seconds))


async def run_node(config: Config, paths: list[str], seconds: float | None) -> None:
    from rota.cli.serve import Stopping, run_host, wait_for_store
    from rota.logger import log
    from rota.wiring import conceal
    from rota.wiring import node as assembled

    conceal()
    stopping = Stopping()
    stopping.listen()
    if seconds is not None:
        stopping.after(seconds)
    async with opened(config, actor=config.node.name) as session:
        if not await wait_for_store(session, stopping):
            return
        host = await assembled(session.store, session.clock, config, paths)
        log.info("node.started", node=config.node.name, store=without_passwords(config.store.url))
        await run_host(host, stopping)
        counts = {"fired": host.fired, "missed": host.missed, "skipped": host.skipped, "finished": host.finished}
        log.info("node.stopped", node=config.node.name, **counts)


@click.command(name="list", cls=Command)
@click.option("--all", "gone", is_flag=True, help="Every node that ever joined.")
@COORDINATOR_OPTION
@click.pass_context
def list_(ctx: click.Context, gone: bool) -> None:
    """List the nodes of the cluster."""

    async def work(session: Session) -> tuple[Members, Mapping[int, int], tuple[Peer, ...]]:
        nodes = session.control.nodes
        return await nodes.find(gone=gone), await nodes.seats_taken(), await nodes.former_schedulers()

    members, taken, peers = ask(ctx, work, coordinated=gone)
    known = {it.joined.name for it in members.nodes}
    others = [peer for peer in peers if peer.name not in known]
    heads = ["NODE", "STATE", "ROLES", "GROUP", "SEATS", "BUSY", "BOUNDARY", "HOST", "JOINED", "LEASE"]
    rows = chain((_row(it, taken, members.now) for it in members.nodes), map(_former_row, others))
    listed(ctx, nodes_shape(members.nodes, taken, others), heads, rows, "no nodes; start one with: rota node start")


def _former_row(it: Peer) -> tuple[str | Text, ...]:
    """A scheduler that only the coordinator remembers."""
    return it.name, coloured(NodeState.OFFLINE), "-", "-", "-", "-", "-", it.address or "-", "-", "-"


def _row(it: Node, taken: Mapping[int, int], now: datetime) -> tuple[str | Text, ...]:
    joined = it.joined
    return (
        joined.name,
        coloured(it.state),
        joined.digests.get("roles", "all"),
        f"{joined.group} {joined.number or ''}".rstrip(),
        f"{taken.get(it.id, 0)}/{joined.seats}" if joined.seats else "-",
        f"{it.busy:.1f} %" if it.state in ALIVE else "-",
        joined.boundary or "-",
        f"{joined.place.host}, pid {joined.place.pid}",
        short(it.joined_at),
        _lease(it, now),
    )


def _lease(it: Node, now: datetime) -> str:
    if it.state not in ALIVE or it.lease_until is None:
        return f"left {relative(it.left_at, now)}" if it.left_at else "-"
    return "over" if it.lease_until <= now else f"{(it.lease_until - now).total_seconds():.0f} s"


@click.command(cls=Command)
@click.pass_context
def sweep(ctx: click.Context) -> None:
    """Clear what earlier nodes left on this host: processes that outlived them, and their notes. Living nodes are
    left alone. Every executor does this when it starts."""
    from rota.wiring import sweep as swept_of

    swept = asyncio.run(swept_of(configuration(ctx)))
    if as_json(ctx):
        gone = [
            {
                "node": it.agent.node,
                "pid": it.agent.agent.pid,
                "trees_cleared": it.trees,
                "empty": it.empty,
                "why": it.why or None,
            }
            for it in swept.formers
        ]
        say_json({"gone": gone, "living": swept.living, "unreadable": list(swept.unreadable)})
        return
    for former in swept.formers:
        empty = "nothing of it is left" if former.empty else f"not seen empty: {former.why}"
        say(f"node {former.agent.node}, pid {former.agent.agent.pid}: {count(former.trees, 'tree')} cleared; {empty}")
    for folder in swept.unreadable:
        say(f"{folder} does not say whose it is; look at it and remove it")
    say(f"{count(len(swept.formers), 'former node')} swept, {swept.living} alive")


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
