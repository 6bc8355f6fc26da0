"""Entries that belong to nobody's session, and that a session may have claimed all the same."""

from __future__ import annotations

from rota.ports import Coordinator

TRIES = 5
"""Who claims it again and again is stronger; the repairer looks again later."""


async def put_lasting(coordinator: Coordinator, key: str, value: str) -> bool:
    """Write an entry that lasts, over a claim if there is one. Says whether it was written."""
    for _ in range(TRIES):
        if await coordinator.put(key, value) is not None:
            return True
        entry = await coordinator.get(key)
        if entry is not None:
            await coordinator.delete(key, entry.version)
    return False
