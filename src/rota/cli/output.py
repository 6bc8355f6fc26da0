"""Answers: JSON for programs, tables for people. Nothing that came from outside is taken for markup, or reaches a
terminal as an escape code: whatever a command prints goes through here."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

import click

from rota.cli.lazy import globals_of
from rota.cli.terminal import plain, plain_json

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

COLOURS = {
    "waiting": "yellow",
    "running": "cyan",
    "succeeded": "green",
    "failed": "red",
    "cancelled": "magenta",
    "skipped": "dim",
    "enabled": "green",
    "paused": "yellow",
    "deleted": "dim",
    "create": "green",
    "change": "yellow",
    "nothing": "dim",
    "ready": "cyan",
    "assigned": "cyan",
    "timed_out": "red",
    "lost": "red",
    "online": "green",
    "draining": "yellow",
    "disconnected": "red",
    "offline": "dim",
    "error": "red",
    "warning": "yellow",
    "note": "dim",
}


def as_json(ctx: click.Context) -> bool:
    return globals_of(ctx).json


def say_json(value: object) -> None:
    print(plain_json(json.dumps(value, ensure_ascii=False, indent=2)))


def say_json_line(value: object) -> None:
    """Print one value of a stream, on one line."""
    print(plain_json(json.dumps(value, ensure_ascii=False)), flush=True)


def say(text: str = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print a text that may have come from anywhere."""
    print(plain(text), file=file, flush=flush)


def said(ctx: click.Context, value: object, text: str) -> None:
    """Answer with a value for programs, or a line for people."""
    if as_json(ctx):
        say_json(value)
    else:
        say(text)


def coloured(word: str) -> Text:
    from rich.text import Text

    return Text(word, style=COLOURS.get(word, ""))


def console() -> Console:
    """Where tables go. Into a file or pipe they go in their full width."""
    from rich.console import Console

    return Console(highlight=False) if sys.stdout.isatty() else Console(highlight=False, width=500, color_system=None)


def show(renderable: RenderableType) -> None:
    """Print a renderable of rich, without trailing blanks."""
    where = console()
    with where.capture() as captured:
        where.print(renderable)
    print("\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n")))


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Print rows under headings."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in row))
    show(made)


def facts(pairs: Iterable[tuple[str | Text, str | Text]]) -> None:
    """Print names and values in two columns."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, Text(plain(value)) if isinstance(value, str) else value)
    show(made)
