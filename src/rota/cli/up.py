"""`rota up`: a whole rota in one process, for the jobs of one file or folder."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from rota.cli.lazy import Command, Seconds
from rota.cli.output import as_json, say
from rota.cli.session import Session, configuration, opened
from rota.core.masking import without_passwords
from rota.errors import InvalidInput

if TYPE_CHECKING:
    from rota.config import Config

LINES_MAX = 50
DONE = {"create": "job.created", "change": "job.changed", "adopt": "job.adopted", "nothing": "job.unchanged"}


@click.command(cls=Command)
@click.argument("path", metavar="FILE_OR_FOLDER")
@click.option("--seconds", type=Seconds(), help="Stop after so many seconds.")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Write log lines like this instead of a view.")
@click.pass_context
def up(ctx: click.Context, path: str, seconds: float | None, log_format: str | None) -> None:
    """Apply the jobs of FILE_OR_FOLDER, fire and execute them here, until Ctrl-C. Changes of the files are picked up.

    Ctrl-C lets what runs finish; a second one stops it at once.

    A job may name functions of modules that lie beside its file.

    The store is made if it is not there; by default it is the file rota.db in this folder.
    """
    from rota.cli import log, serve

    serve.refuse_missing_paths("path", [path])
    config = with_modules_beside(configuration(ctx), path)
    live = sys.stdout.isatty() and log_format is None and not as_json(ctx)
    lines: deque[str] | None = deque(maxlen=LINES_MAX) if live else None
    log.start(log_format or ("json" if as_json(ctx) else "text"), sink=None if lines is None else lines.append)
    asyncio.run(run_up(config, path, seconds, lines))


def with_modules_beside(config: Config, path: str) -> Config:
    """Let jobs name functions of the modules that lie beside the file, or in the folder, that they are defined in. On a
    cluster a setting says which modules jobs may name; here whoever wrote the one wrote the other."""
    folder = Path(path).absolute() if Path(path).is_dir() else Path(path).absolute().parent
    beside = [it.stem for it in sorted(folder.glob("*.py")) if it.stem.isidentifier()]
    beside += [it.parent.name for it in sorted(folder.glob("*/__init__.py")) if it.parent.name.isidentifier()]
    executor = config.executor
    modules = ",".join(dict.fromkeys(it for it in (*executor.modules.split(","), *beside) if it))
    places = os.pathsep.join((executor.module_path or ".", str(folder)))
    return replace(config, executor=replace(executor, modules=modules, module_path=places))


async def run_up(config: Config, path: str, seconds: float | None, lines: deque[str] | None) -> None:
    """Run the loops of an embedded node until told to stop; with `lines`, the place of log lines, in a live view."""
    from rota.cli import serve
    from rota.cli.watch import Watch
    from rota.wiring import conceal, node

    conceal()
    stopping = serve.Stopping()
    stopping.listen()
    async with opened(config, actor=config.node.name) as session:
        await serve.prepare(session)
        await _apply(session, path)
        host = await node(session.store, session.clock, config, [path])
        if seconds is not None:
            stopping.after(seconds)
        if lines is not None:
            watch = Watch(session, stopping, lambda: serve.tally(host), path, lines)
            async with asyncio.TaskGroup() as group:
                group.create_task(watch.show())
                group.create_task(serve.run_host(host, stopping, say=watch.tell))
            say(f"stopped; {serve.tally(host)}; kept in {without_passwords(config.store.url)}")
            return
        serve.log.info("node.started", node=config.node.name, store=without_passwords(config.store.url), path=path)
        await serve.run_host(host, stopping)
        serve.log.info("node.stopped", fired=host.fired, missed=host.missed, skipped=host.skipped)


async def _apply(session: Session, path: str) -> None:
    from rota.cli.progress import patiently
    from rota.cli.serve import log
    from rota.control.jobs import sources_of

    loaded = await patiently(
        session.clock, "loading definitions", session.control.jobs.load([path], session.config.definitions.repository)
    )
    if loaded.problems:
        raise InvalidInput(loaded.problems)
    for it in await session.control.jobs.apply(loaded.definitions, sources_of(loaded)):
        if it.action == "refuse":
            continue  # the node says so
        log.info(DONE[it.action], job=str(it.name))
