"""A queue whose entries are each done by one client at a time, at least once (S0.47, S3.24).

    put ──> waiting ──take──> taken, while the taker's session lives ──done──> gone
               ^                     └── its session ends ──┐
               └────────────────────────────────────────────┘

Two keys: the entry itself, which lasts, and its taking, which is a claim. It is gone before its claim is released, so
whoever takes it next finds that it is not there.
"""

from __future__ import annotations

from typing import NamedTuple

from rota.ports import Clock, Coordinator


class Taken(NamedTuple):
    """An entry in hand."""

    name: str
    value: str
    version: int
    fence: int


class Queue:
    """One queue, as one client sees it."""

    def __init__(self, coordinator: Coordinator, clock: Clock, name: str) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._entries = f"queue/{name}"
        self._takings = f"taken/{name}"

    async def put(self, value: str, name: str | None = None) -> str:
        """Add an entry; one of the same name is added once."""
        name = name or self._clock.token()
        await self._coordinator.put(f"{self._entries}/{name}", value, version=0)
        return name

    async def waiting(self) -> frozenset[str]:
        """The names of the entries that nobody has in hand."""
        names = {key.rpartition("/")[2] for key in await self._coordinator.keys(self._entries)}
        return frozenset(names - {key.rpartition("/")[2] for key in await self._coordinator.keys(self._takings)})

    async def take(self, limit: int) -> list[Taken]:
        """Get some entries in hand."""
        names = sorted(await self.waiting())[:limit]
        won = await self._coordinator.claim({f"{self._takings}/{name}": "" for name in names})
        taken, gone = [], {}
        for key, fence in won.items():
            name = key.rpartition("/")[2]
            entry = await self._coordinator.get(f"{self._entries}/{name}")
            if entry is None:
                gone[key] = fence
            else:
                taken.append(Taken(name, entry.value, entry.version, fence))
        await self._coordinator.release(gone)
        return taken

    async def done(self, entry: Taken) -> bool:
        """Remove an entry that was taken. False: somebody else has done so."""
        removed = await self._coordinator.delete(f"{self._entries}/{entry.name}", entry.version)
        await self.give_back(entry)
        return removed

    async def give_back(self, entry: Taken) -> None:
        """Let others have it."""
        await self._coordinator.release({f"{self._takings}/{entry.name}": entry.fence})
