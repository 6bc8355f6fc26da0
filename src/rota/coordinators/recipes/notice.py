"""Notices: a word to whoever listens that something of a topic has changed. It says nothing more, and may be lost."""

from __future__ import annotations

from collections.abc import Callable

from rota.model.folders import NOTICE
from rota.ports import Clock, Coordinator

TRIES = 5
"""Whoever claims a lasting entry again and again is stronger; the repairer looks again later."""


async def notify(coordinator: Coordinator, clock: Clock, topic: str) -> None:
    """Wake whoever listens to a topic."""
    await put_lasting(coordinator, f"{NOTICE}/{topic}", clock.token())


def on_notice(coordinator: Coordinator, topic: str, wake: Callable[[], None]) -> None:
    """Call `wake` after a notice of this topic."""
    coordinator.listen(f"{NOTICE}/{topic}", wake)


async def put_lasting(coordinator: Coordinator, key: str, value: str) -> bool:
    """Write an entry that lasts, over a claim if there is one. Says whether it was written."""
    for _ in range(TRIES):
        if await coordinator.put(key, value) is not None:
            return True
        entry = await coordinator.get(key)
        if entry is not None:
            await coordinator.delete(key, entry.version)
    return False
