"""The app that the nodes of `rota bench dispatch` run: a task that does nothing, and one that tells when it began."""

from __future__ import annotations

import time

from rota.client.app import App

app = App(project="bench")


@app.task(concurrency=100)
async def noop() -> None:
    """Nothing: what it costs is what everything around it costs."""


@app.task(concurrency=100)
async def stamp() -> int:
    """The instant of its first line."""
    return time.time_ns()
