"""`rota node`: one node of a cluster, until it is told to stop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from rota.cli.lazy import Command, Seconds
from rota.cli.output import as_json
from rota.cli.session import configuration, opened
from rota.cli.words import masked

if TYPE_CHECKING:
    from rota.config import Config


@click.command(cls=Command)
@click.option("--name", metavar="NAME", help="The name of this node in the history. [default: host and process id]")
@click.option("--definitions", metavar="PATH", help="A file or folder of definitions, applied whenever it changes.")
@click.option("--app", "app", metavar="FILE", help="A Python file with an app, applied likewise.")
@click.option("--seconds", type=Seconds(), help="Stop after so many seconds.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How log lines are written. [default: text]")
@click.pass_context
def node(
    ctx: click.Context,
    name: str | None,
    definitions: str | None,
    app: str | None,
    seconds: float | None,
    log_format: str | None,
) -> None:
    """Run one node: fire due jobs, keep definitions applied. It waits for its store, and goes on after outages."""
    from rota.cli import log, serve

    config = configuration(ctx, {"node.name": name, "definitions.path": definitions})
    serve.refuse_missing_paths("definitions.path", [config.definitions.path] if config.definitions.path else [])
    serve.refuse_missing_paths("app", [app] if app else [])
    log.start(log_format or ("json" if as_json(ctx) else "text"))
    paths = [path for path in (config.definitions.path, app) if path]
    asyncio.run(run_node(config, paths, seconds))


async def run_node(config: Config, paths: list[str], seconds: float | None) -> None:
    """Run the loops of a node until told to stop."""
    from rota.cli.serve import Stopping, log, wait_for_store
    from rota.loops.host import Host
    from rota.wiring import definer, scheduler

    stopping = Stopping()
    stopping.listen()
    if seconds is not None:
        stopping.after(seconds)
    async with opened(config, actor=config.node.name) as session:
        if not await wait_for_store(session, stopping):
            return
        loops = [scheduler(session.store, session.clock, config)]
        host = Host([*loops, *([definer(session.store, session.clock, config, paths)] if paths else [])])
        stopping.then(host.stop)
        log.info("node started", node=config.node.name, store=masked(config.store.url))
        await host.run()
        log.info("node stopped", node=config.node.name, fired=loops[0].fired)
