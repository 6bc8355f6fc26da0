"""A coordinator in this process: for one node, for the simulator, and as the plain form of what the others do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rota.errors import SessionLost
from rota.model.entry import Entry, check_entries, folder_of
from rota.ports import Clock


@dataclass(slots=True)
class Realm:
    """What the clients of one memory coordinator share."""

    clock: Clock
    entries: dict[str, Entry] = field(default_factory=dict)
    sessions: dict[str, float] = field(default_factory=dict)
    """Until when each lives."""
    listeners: list[tuple[str, Callable[[], None]]] = field(default_factory=list)
    last: int = 0
    """The number of the last write."""

    def expire(self) -> None:
        """End the sessions whose time is over, and their claims."""
        over = [name for name, until_s in self.sessions.items() if until_s < self.clock.monotonic()]
        for name in over:
            self.end(name)

    def end_lost(self) -> None:
        """End the claims of sessions that were lost themselves."""
        claimants = {it.session for it in self.entries.values() if it.session is not None}
        for name in claimants - self.sessions.keys():
            self.end(name)

    def end(self, session: str) -> None:
        self.sessions.pop(session, None)
        for entry in [it for it in self.entries.values() if it.session == session]:
            self.remove(entry.key)

    def write(self, key: str, value: str, session: str | None = None, fence: int | None = None) -> Entry:
        self.last += 1
        number = 0 if session is None else self.last if fence is None else fence
        entry = Entry(key=key, value=value, version=self.last, session=session, fence=number)
        self.entries[key] = entry
        self.tell(key)
        return entry

    def remove(self, key: str) -> None:
        self.last += 1
        del self.entries[key]
        self.tell(key)

    def tell(self, key: str) -> None:
        changed = (key, folder_of(key))
        for folder, wake in self.listeners:
            if folder in changed:
                wake()


class MemoryCoordinator:
    def __init__(self, realm: Realm, clock: Clock, *, ttl_s: float) -> None:
        self._realm = realm
        self._clock = clock
        self.ttl_s = ttl_s
        self.session: str | None = None
        self.believed_until_s = 0.0

    async def join(self) -> str:
        await self.leave()
        self.session = self._clock.token()
        self._prolong(self.session)
        return self.session

    async def renew(self) -> bool:
        self._realm.expire()
        self._realm.end_lost()
        if self.session is None or self.session not in self._realm.sessions:
            self.session = None
            return False
        self._prolong(self.session)
        return True

    async def leave(self) -> None:
        self._realm.expire()
        if self.session in self._realm.sessions:
            self._realm.end(self.session)
        self.session = None

    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        check_entries(values)
        session = self._living()
        won = {}
        for key, value in values.items():
            entry = self._realm.entries.get(key) or self._realm.write(key, value, session)
            if entry.session == session:
                won[key] = entry.fence
        return won

    async def release(self, fences: Mapping[str, int]) -> None:
        session = self._living()
        for key, fence in fences.items():
            if self._holds(session, key, fence):
                self._realm.remove(key)

    async def update(self, key: str, fence: int, value: str) -> bool:
        check_entries({key: value})
        session = self._living()
        if not self._holds(session, key, fence):
            return False
        self._realm.write(key, value, session, fence)
        return True

    async def get(self, key: str) -> Entry | None:
        return self._entries().get(key)

    async def read(self, folder: str) -> tuple[Entry, ...]:
        found = (it for it in self._entries().values() if folder_of(it.key) == folder)
        return tuple(sorted(found, key=lambda it: it.key))

    async def keys(self, folder: str) -> frozenset[str]:
        return frozenset(key for key in self._entries() if folder_of(key) == folder)

    async def put(self, key: str, value: str, *, version: int | None = None) -> int | None:
        check_entries({key: value})
        entry = self._entries().get(key)
        if entry is not None and entry.session is not None:
            return None
        if version is not None and version != (0 if entry is None else entry.version):
            return None
        return self._realm.write(key, value).version

    async def delete(self, key: str, version: int) -> bool:
        entry = self._entries().get(key)
        if entry is None or entry.version != version:
            return False
        self._realm.remove(key)
        return True

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        self._realm.listeners.append((folder, wake))

    async def close(self) -> None:
        await self.leave()

    def _prolong(self, session: str) -> None:
        self._realm.sessions[session] = self._realm.clock.monotonic() + self.ttl_s
        self.believed_until_s = self._clock.monotonic() + self.ttl_s

    def _living(self) -> str:
        self._realm.expire()
        if self.session is None or self.session not in self._realm.sessions:
            self.session = None
            raise SessionLost("the session of this node is over")
        return self.session

    def _holds(self, session: str, key: str, fence: int) -> bool:
        entry = self._realm.entries.get(key)
        return entry is not None and entry.session == session and entry.fence == fence

    def _entries(self) -> dict[str, Entry]:
        self._realm.expire()
        return self._realm.entries
