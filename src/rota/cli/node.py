"""`rota node`: what can be asked of nodes; `rota node start`: one node of a cluster, until it is told to stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from rota.cli.lazy import Command, Group, Seconds
from rota.cli.output import as_json
from rota.cli.session import configuration, opened
from rota.core.masking import without_passwords

if TYPE_CHECKING:
    from rota.config import Config

_SETTINGS = {
    "name": "node.name",
    "listen": "node.listen",
    "advertise": "node.advertise",
    "coordinator": "coordinator.url",
    "placement": "placement.kind",
    "faults": "placement.faults",
    "alarm": "placement.alarm",
    "weight": "placement.weight",
    "group": "executor.group",
    "number": "executor.number",
    "roles": "node.roles",
    "seats": "executor.seats",
    "definitions": "definitions.path",
}
"""The settings that options of `rota node start` give."""


@click.group(
    cls=Group,
    implied="start",
    lazy={
        "start": ("rota.cli.node", "Run one node of a cluster, until it is told to stop."),
        "list": ("rota.cli.nodes", "List the nodes of the cluster."),
        "drain": ("rota.cli.nodes", "Put nodes on the offline list."),
        "undrain": ("rota.cli.nodes", "Take nodes off it."),
        "sweep": ("rota.cli.nodes", "Clear what earlier nodes left on this host."),
    },
)
def node() -> None:
    """Start a node of a cluster; list, drain, undrain nodes; clear what earlier ones left."""


@click.command(cls=Command)
@click.option("--name", metavar="NAME", help="The name of this node in the history. [default: host and process id]")
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="What it serves. [default: port 7700 of the address of this host that leads to the store]",
)
@click.option("--advertise", metavar="HOST[:PORT]", help="Where the other nodes reach it. [default: where it listens]")
@click.option("--coordinator", metavar="URL", help="zookeeper://HOST:PORT or etcd://HOST:PORT. [default: the store]")
@click.option("--placement", metavar="KIND", help="How schedulers share the jobs: claim, scope, beat or none.")
@click.option("--faults", metavar="N", help="How many schedulers may die and the others still hold all jobs.")
@click.option("--alarm", metavar="M", help="Raise an alarm when this scheduler takes more jobs than that.")
@click.option("--weight", metavar="W", help="How much of the jobs it should have, beside the others. [default: 1]")
@click.option("--group", metavar="GROUP", help="The group of executors that it belongs to.")
@click.option("--number", metavar="N", help="Its number within the group. [default: the lowest that is free]")
@click.option("--roles", metavar="ROLES", help="What it does: all, scheduler or executor. [default: all]")
@click.option("--seats", metavar="N", help="How many items it executes at a time; 0: none.")
@click.option("--definitions", metavar="PATH", help="A file or folder of definitions, applied whenever it changes.")
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

    config = configuration(ctx, {_SETTINGS[option]: value for option, value in given.items()})
    serve.refuse_missing_paths("definitions.path", [config.definitions.path] if config.definitions.path else [])
    serve.refuse_missing_paths("app", [app] if app else [])
    log.start(log_format or ("json" if as_json(ctx) else "text"))
    paths = [path for path in (config.definitions.path, app) if path]
    asyncio.run(run_node(config, paths, seconds))


async def run_node(config: Config, paths: list[str], seconds: float | None) -> None:
    """Run a node until told to stop."""
    from rota.cli.serve import Stopping, log, run_host, wait_for_store
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
        log.info(
            "node.stopped",
            node=config.node.name,
            fired=host.fired,
            missed=host.missed,
            skipped=host.skipped,
            finished=host.finished,
        )
