"""`rota up`: a whole rota in one process, for the jobs of one file or folder."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from typing import TYPE_CHECKING

import click

from rota.cli.lazy import Command, Seconds
from rota.cli.output import as_json
from rota.cli.session import Session, configuration, opened
from rota.cli.words import count, masked
from rota.errors import InvalidInput

if TYPE_CHECKING:
    from rota.config import Config

LINES_MAX = 50


@click.command(cls=Command)
@click.argument("path", metavar="FILE_OR_FOLDER")
@click.option("--seconds", type=Seconds(), help="Stop after so many seconds.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Write log lines like this instead of a view.")
@click.pass_context
def up(ctx: click.Context, path: str, seconds: float | None, log_format: str | None) -> None:
    """Apply the jobs of FILE_OR_FOLDER, fire and execute them here, until Ctrl-C. Changes of the files are picked up.

    Ctrl-C lets what runs finish; a second one stops it at once.

    The store is made if it is not there; by default it is the file rota.db in this folder.
    """
    from rota.cli import log, serve

    config = configuration(ctx)
    serve.refuse_missing_paths("path", [path])
    live = sys.stdout.isatty() and log_format is None and not as_json(ctx)
    lines: deque[str] | None = deque(maxlen=LINES_MAX) if live else None
    log.start(log_format or ("json" if as_json(ctx) else "text"), sink=None if lines is None else lines.append)
    asyncio.run(run_up(config, path, seconds, lines))


async def run_up(config: Config, path: str, seconds: float | None, lines: deque[str] | None) -> None:
    """Run the loops of an embedded node until told to stop; with `lines`, the place of log lines, in a live view."""
    from rota.cli import serve
    from rota.cli.watch import Watch
    from rota.wiring import node, scheduler

    stopping = serve.Stopping()
    stopping.listen()
    async with opened(config, actor=config.node.name) as session:
        await serve.prepare(session)
        await _apply(session, path)
        firing = scheduler(session.store, session.clock, config)
        host = await node(session.store, session.clock, config, [path], firing)
        if seconds is not None:
            stopping.after(seconds)
        if lines is not None:
            watch = Watch(session, stopping, lambda: firing.fired, path, lines)
            async with asyncio.TaskGroup() as group:
                group.create_task(watch.show())
                group.create_task(serve.run_host(host, stopping))
            print(f"stopped; {count(firing.fired, 'run')} fired, kept in {masked(config.store.url)}")
            return
        serve.log.info("up", node=config.node.name, store=masked(config.store.url), path=path)
        await serve.run_host(host, stopping)
        serve.log.info("stopped", fired=firing.fired)


async def _apply(session: Session, path: str) -> None:
    from rota.cli.progress import patiently
    from rota.cli.serve import log

    loaded = await patiently(session.clock, "loading definitions", session.control.load([path]))
    if loaded.problems:
        raise InvalidInput(loaded.problems)
    for it in await session.control.apply(loaded.definitions):
        done = {"create": "created", "change": "changed", "nothing": "unchanged"}[it.action]
        log.info(f"job {done}", job=str(it.name))
