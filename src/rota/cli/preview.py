"""`rota job preview`: the next instants, from the store or from a file that is not applied yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from rota.cli.output import as_json, say, say_json, table
from rota.cli.session import Session, ask
from rota.cli.words import iso
from rota.errors import InvalidInput, NotFound
from rota.model.job import Definition, JobName

if TYPE_CHECKING:
    from rich.text import Text

    from rota.core.preview import Preview


def show_preview(ctx: click.Context, name: JobName, count: int, path: str | None) -> None:
    if path is None:

        async def work(session: Session) -> tuple[Definition, tuple[Preview, ...]]:
            job, coming = await session.control.preview(name, count)
            return job.definition, coming

        definition, coming = ask(ctx, work)
    else:
        definition, coming = asyncio.run(_of_file(name, count, path))
    if as_json(ctx):
        say_json([_shape(it) for it in coming])
    elif coming:
        table(["LOCAL", "UTC", "MARK"], [_row(it) for it in coming])
    else:
        say(_why_none(definition))


async def _of_file(name: JobName, count: int, path: str) -> tuple[Definition, tuple[Preview, ...]]:
    """No store is needed to look at a file."""
    from rota.wiring import unstored

    control = unstored()
    loaded = await control.load([path])
    found = [it for it in loaded.definitions if it.full_name == name]
    if not found and loaded.problems:
        raise InvalidInput(loaded.problems)
    if not found:
        raise NotFound(f"there is no job {name} in {path}")
    return found[0], control.preview_of(found[0], count)


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


def _shape(it: Preview) -> dict[str, object]:
    return {
        "slot_at": iso(it.instant.slot_at),
        "due_at": iso(it.instant.due_at),
        "local_at": it.local_at.isoformat(),
        "mark": it.mark,
        "skipped": it.skipped,
    }


def _why_none(definition: Definition) -> str:
    if not definition.fires_by_itself:
        return f"{definition.full_name} runs only when asked: rota job trigger {definition.full_name}"
    return f"{definition.full_name} has no instant left"
