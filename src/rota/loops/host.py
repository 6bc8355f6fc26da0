"""One process: which loops run, and how they are told to stop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rota.loops.loop import Loop


class Host:
    """Runs loops until it is told to stop. A stop lets each loop finish its round."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = tuple(loops)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for loop in self._loops:
                group.create_task(loop.run(), name=type(loop).__name__)

    def stop(self) -> None:
        for loop in reversed(self._loops):
            loop.stop()
