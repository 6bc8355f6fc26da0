"""`rota bench`: measure the product on a real store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from rota.cli.lazy import Group
from rota.cli.output import as_json, facts, say_json
from rota.cli.session import Session, configuration, opened

if TYPE_CHECKING:
    from rota.bench.fire import FireFigures

Progress = Callable[[str, int, int], None]


@click.group(cls=Group)
def bench() -> None:
    """Measure. A benchmark wants a store of its own, and a machine that does nothing else."""


@bench.command()
@click.option("--jobs", type=click.IntRange(1, 1_000_000), default=10_000, show_default=True, help="how many are due")
@click.pass_context
def fire(ctx: click.Context, jobs: int) -> None:
    """How late are cron jobs that are all due in the same second?

    Lateness counts from the slot until the commit of its run was acknowledged, by the store's clock.
    """
    from msgspec import to_builtins

    config = configuration(ctx)

    async def work() -> FireFigures:
        async with opened(config, actor="bench") as session:
            await session.store.migrate()
            await session.store.check()
            return await _measure(session, jobs)

    figures = to_builtins(asyncio.run(work()))
    if as_json(ctx):
        say_json(figures)
    else:
        facts([(name.replace("_", " "), str(value)) for name, value in figures.items()])


async def _measure(session: Session, jobs: int) -> FireFigures:
    from rota.bench.fire import fire_herd

    with _shown(session) as progress:
        return await fire_herd(session.store, session.clock, jobs, progress)


@contextmanager
def _shown(session: Session) -> Iterator[Progress]:
    """A bar for people; nothing for programs."""
    if not sys.stderr.isatty():
        yield lambda what, done, of: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True, get_time=session.clock.monotonic) as bars:
        tasks: dict[str, object] = {}

        def progress(what: str, done: int, of: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=of)
            bars.update(tasks[what], completed=done)  # type: ignore[arg-type]

        yield progress
