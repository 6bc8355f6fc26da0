"""`rota node list|sweep`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import click

from rota.cli.format import count, relative
from rota.cli.lazy import Command
from rota.cli.output import as_json, coloured, say, say_json, table
from rota.cli.session import COORDINATOR_OPTION, Session, ask, configuration
from rota.control.shapes.nodes import nodes_shape
from rota.control.shapes.values import short
from rota.model.cluster import Peer
from rota.model.node import Members, Node, NodeState

if TYPE_CHECKING:
    from rich.text import Text

ALIVE = (NodeState.ONLINE, NodeState.DRAINING)


@click.command(name="list", cls=Command)
@click.option("--all", "gone", is_flag=True, help="Every node that ever joined.")
@COORDINATOR_OPTION
@click.pass_context
def list_(ctx: click.Context, gone: bool) -> None:
    """List the nodes of the cluster."""

    async def work(session: Session) -> tuple[Members, Mapping[int, int], tuple[Peer, ...]]:
        control = session.control
        return (
            await control.nodes.find(gone=gone),
            await control.nodes.seats_taken(),
            await control.nodes.former_schedulers(),
        )

    members, taken, peers = ask(ctx, work, coordinated=gone)
    known = {it.joined.name for it in members.nodes}
    others = [peer for peer in peers if peer.name not in known]
    if as_json(ctx):
        say_json(nodes_shape(members.nodes, taken, others))
    elif not members.nodes and not others:
        say("no nodes; start one with: rota node start")
    else:
        heads = ["NODE", "STATE", "ROLES", "GROUP", "SEATS", "BUSY", "BOUNDARY", "HOST", "JOINED", "LEASE"]
        table(heads, [*(_row(it, taken, members.now) for it in members.nodes), *map(_former_row, others)])


def _former_row(it: Peer) -> tuple[str | Text, ...]:
    """A scheduler that only the coordinator remembers."""
    return it.name, coloured(NodeState.OFFLINE), "-", "-", "-", "-", "-", it.address or "-", "-", "-"


def _row(it: Node, taken: Mapping[int, int], now: datetime) -> tuple[str | Text, ...]:
    seats = f"{taken.get(it.id, 0)}/{it.joined.seats}" if it.joined.seats else "-"
    boundary = it.joined.boundary or "-"
    host = f"{it.joined.place.host}, pid {it.joined.place.pid}"
    busy = f"{it.busy:.1f} %" if it.state in ALIVE else "-"
    return (
        it.joined.name,
        coloured(it.state),
        it.joined.digests.get("roles", "all"),
        f"{it.joined.group} {it.joined.number or ''}".rstrip(),
        seats,
        busy,
        boundary,
        host,
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
