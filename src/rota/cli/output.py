"""Answers: JSON for programs, tables for people. Nothing that came from outside is taken for markup, or reaches a
terminal as an escape code: whatever a command prints goes through here.

Log output, messages, keys and parameters come from whoever wrote a task. An escape code in them could move the cursor,
rename the window or answer in the name of the person who looks. Colours are left out; every other control character is
shown as `\\x1b`. A pipe or file gets the bytes as they are, from `rota run logs` only.
"""

from __future__ import annotations

import codecs
import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ParamSpec, Self, TextIO, TypeVar

import click

from rota.cli.lazy import globals_of

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress as RichProgress
    from rich.text import Text

    from rota.ports import Clock

P = ParamSpec("P")
T = TypeVar("T")
Rows = Iterable[Sequence["str | Text"]]

_WORDS = {
    "green": "succeeded enabled create online",
    "cyan": "running ready assigned",
    "yellow": "waiting paused change draining warning",
    "magenta": "cancelled",
    "red": "failed timed_out lost disconnected error",
    "dim": "skipped deleted nothing offline note",
}
COLOURS = {word: colour for colour, words in _WORDS.items() for word in words.split()}
_COLOUR = re.compile(r"\x1b\[[0-9;:]{0,40}m")
_UNFINISHED = re.compile(r"(?:\x1b(?:\[[0-9;:]{0,40})?|\r)\Z")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
PATIENCE_S = 1.0
_C1 = re.compile(r"[\x7f-\x9f]")


def plain(text: str) -> str:
    """Return the text safe to print: lines and tabs stay, other control characters become visible."""
    if not _CONTROL.search(text):
        return text
    text = _COLOUR.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def plain_json(text: str) -> str:
    """The same for JSON text, which has escaped all but these already; its meaning stays."""
    return _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class PlainStream:
    """Turns bytes that arrive in pieces into text that is safe to print. A piece may end inside an escape code."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
        self._kept = ""

    def feed(self, data: bytes) -> str:
        text = self._kept + self._decoder.decode(data)
        rest = _UNFINISHED.search(text)
        self._kept = "" if rest is None else rest[0]
        return plain(text[: len(text) - len(self._kept)])

    def close(self) -> str:
        text, self._kept = self._kept + self._decoder.decode(b"", final=True), ""
        return plain(text)


def as_json(ctx: click.Context) -> bool:
    return globals_of(ctx).json


def say_json(value: object) -> None:
    print(plain_json(json.dumps(value, ensure_ascii=False, indent=2)))


def say_json_line(value: object) -> None:
    print(plain_json(json.dumps(value, ensure_ascii=False)), flush=True)


def say(text: str = "", *, file: TextIO | None = None, flush: bool = False) -> None:
    """Print a text that may have come from anywhere."""
    print(plain(text), file=file, flush=flush)


def answer(ctx: click.Context, value: object, show: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Answer with a value for programs, or show it to people."""
    if as_json(ctx):
        say_json(value)
    else:
        show(*args, **kwargs)


def said(ctx: click.Context, value: object, text: str) -> None:
    """Answer with a value for programs, or a line for people."""
    answer(ctx, value, say, text)


def listed(ctx: click.Context, values: Sequence[object], columns: Sequence[str], rows: Rows, empty: str = "") -> None:
    """Answer with values for programs, or a table of them for people; `empty` says that there are none."""
    if as_json(ctx) or values:
        answer(ctx, values, table, columns, rows)
    else:
        say(empty)


def confirm(ctx: click.Context, question: str, *, yes: bool) -> None:
    """Ask a person at a terminal, unless the answer was given before. A no ends the command."""
    if not yes and not as_json(ctx) and sys.stdin.isatty() and sys.stdout.isatty():
        click.confirm(question, abort=True)


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


def table(columns: Sequence[str], rows: Rows) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(cell)) if isinstance(cell, str) else cell for cell in row))
    show(made)


def figures(ctx: click.Context, value: object) -> None:
    """Answer with what was measured or counted, field by field."""
    from msgspec import to_builtins

    found = to_builtins(value)
    answer(ctx, found, facts, [(name.replace("_", " "), _figure(it)) for name, it in found.items()])


def _figure(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', ' ')} {it}" for name, it in value.items())
    return "" if value is None else str(value)


def facts(pairs: Iterable[tuple[str | Text, str | Text]]) -> None:
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2, 0, 0))
    made.add_column(style="bold")
    made.add_column(overflow="fold")
    for name, value in pairs:
        made.add_row(name, Text(plain(value)) if isinstance(value, str) else value)
    show(made)


async def patiently(clock: Clock, what: str, work: Awaitable[T]) -> T:
    """Wait for work; if it takes long and a person looks on, show a bar meanwhile."""
    import asyncio

    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
    if done:
        return await task
    with Progress(clock, what):
        return await task


class Progress:
    """A line that says how far work has come, for a person who looks on."""

    def __init__(self, clock: Clock, what: str, *, total: int | None = None) -> None:
        self._clock = clock
        self._what = what
        self._total = total
        self._bar: RichProgress | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
            from rich.progress import Progress as Bar

            columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True, get_time=self._clock.monotonic)
            self._bar.add_task(self._what, total=self._total)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def say(self, text: str, done: int = 0) -> None:
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=f"{self._what}: {text}", completed=done)
