"""`rota job preview`: the next instants, from the store or from a file that is not applied yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from rota.cli.lazy import Command
from rota.cli.output import as_json, say, say_json, table
from rota.cli.session import Session, ask
from rota.control import job_name
from rota.control.shapes.jobs import preview_shape
from rota.errors import InvalidInput, NotFound
from rota.model.job import Definition, JobName

if TYPE_CHECKING:
    from rich.text import Text

    from rota.core.preview import Preview


@click.command(cls=Command)
@click.argument("name", metavar="NAME")
@click.option("-n", "--count", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many instants.")
@click.option("--file", "path", metavar="PATH", help="Take the definition from a file or folder, not from the store.")
@click.pass_context
def preview(ctx: click.Context, name: str, count: int, path: str | None) -> None:
    """Show the next instants of a job, as the wall clock of its zone shows them, with marks where that clock jumps."""
    wanted = job_name(name)
    if path is None:

        async def work(session: Session) -> tuple[Definition, tuple[Preview, ...]]:
            job, coming = await session.control.jobs.preview(wanted, count)
            return job.definition, coming

        definition, coming = ask(ctx, work)
    else:
        definition, coming = asyncio.run(_of_file(wanted, count, path))
    if as_json(ctx):
        say_json([preview_shape(it) for it in coming])
    elif coming:
        table(["LOCAL", "UTC", "MARK"], [_row(it) for it in coming])
    else:
        say(_why_none(definition))


async def _of_file(name: JobName, count: int, path: str) -> tuple[Definition, tuple[Preview, ...]]:
    """No store is needed to look at a file."""
    from rota.wiring import unstored

    control = unstored()
    loaded = await control.jobs.load([path])
    found = [it for it in loaded.definitions if it.full_name == name]
    if not found and loaded.problems:
        raise InvalidInput(loaded.problems)
    if not found:
        raise NotFound(f"there is no job {name} in {path}")
    return found[0], control.jobs.preview_of(found[0], count)


def _row(it: Preview) -> tuple[str, str, Text]:
    from rich.text import Text

    local = it.local_at.strftime("%a %Y-%m-%d %H:%M:%S ") + f"{it.local_at.tzname()} {it.local_at.strftime('%z')}"
    utc = it.instant.slot_at.strftime("%Y-%m-%d %H:%M:%SZ")
    marks = [
        *([Text(it.mark, style="bold yellow")] if it.mark else []),
        *([Text(f"skipped: {it.skipped}", style="magenta")] if it.skipped else []),
        *([Text(f"due {_jitter(it):.3f} s later", style="dim")] if _jitter(it) else []),
    ]
    return local, utc, Text("; ").join(marks)


def _jitter(it: Preview) -> float:
    return (it.instant.due_at - it.instant.slot_at).total_seconds()


def _why_none(definition: Definition) -> str:
    if not definition.fires_by_itself:
        return f"{definition.full_name} runs only when asked: rota job trigger {definition.full_name}"
    return f"{definition.full_name} has no instant left"
