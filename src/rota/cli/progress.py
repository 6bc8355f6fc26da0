"""Show that long work is under way."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable
from typing import TypeVar

from rota.ports import Clock

T = TypeVar("T")

PATIENCE_S = 1.0


async def patiently(clock: Clock, what: str, work: Awaitable[T]) -> T:
    """Wait for work; if it takes long and a person looks on, show a bar meanwhile."""
    task = asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=PATIENCE_S)
    if done or not sys.stderr.isatty():
        return await task
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, get_time=clock.monotonic) as bar:
        bar.add_task(what, total=None)
        return await task
