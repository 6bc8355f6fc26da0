"""Show the progress of long work to a person at a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Self, TypeVar

from rota.ports import Clock

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

T = TypeVar("T")

PATIENCE_S = 1.0


async def patiently(clock: Clock, what: str, work: Awaitable[T]) -> T:
    """Wait for work; if it takes long and a person looks on, show a bar meanwhile."""
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
