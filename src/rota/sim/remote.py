"""The store and the coordinator as a node sees them: through a link."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from rota.coordinators.memory import MemoryCoordinator
from rota.ports import Clock, Coordinator, Store
from rota.sim.link import SimLink
from rota.storage.memory import MemoryStore


class RemoteStore:
    """Every verb of the store is a request. Whatever verb there is, it goes over the link."""

    def __init__(self, store: MemoryStore, link: SimLink, *, hears: bool) -> None:
        self._store = store
        self._link = link
        self._process = link.process
        self.hears = hears
        self.memory = store.memory
        self.shortcuts = store.shortcuts
        self.is_called = False

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb, ask, process = getattr(self._store, name), self._link.ask, self._process

        async def remote(*args: Any, **kwargs: Any) -> Any:
            return await ask(lambda: verb(*args, **kwargs), process)

        setattr(self, name, remote)
        return remote

    def listen(self, wake: Callable[[str], None]) -> None:
        if self.hears:
            self._store.listen(lambda topic: self._link.notice(lambda: wake(topic), self._process))


class RemoteCoordinator:
    """The same for the coordinator. What a client knows of its own session it knows without asking."""

    def __init__(self, inner: MemoryCoordinator, clock: Clock, link: SimLink) -> None:
        self._inner = inner
        self._clock = clock
        self._link = link
        self._process = link.process
        self.ttl_s = inner.ttl_s
        self.believed_until_s = 0.0

    @property
    def session(self) -> str | None:
        return self._inner.session

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb, ask, process = getattr(self._inner, name), self._link.ask, self._process

        async def remote(*args: Any, **kwargs: Any) -> Any:
            return await ask(lambda: verb(*args, **kwargs), process)

        setattr(self, name, remote)
        return remote

    async def join(self) -> str:
        sent_s = self._clock.monotonic()
        self._link.entering()
        session: str = await self._link.ask(self._inner.join, self._process)
        self.believed_until_s = sent_s + self.ttl_s
        return session

    async def renew(self) -> bool:
        sent_s = self._clock.monotonic()
        lives: bool = await self._link.ask(self._inner.renew, self._process)
        if lives:
            self.believed_until_s = sent_s + self.ttl_s
        return lives

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        self._inner.listen(folder, lambda: self._link.notice(wake, self._process))


def remote_store(store: MemoryStore, link: SimLink, *, hears: bool) -> Store:
    return cast("Store", RemoteStore(store, link, hears=hears))


def remote_coordinator(inner: MemoryCoordinator, clock: Clock, link: SimLink) -> Coordinator:
    return cast("Coordinator", RemoteCoordinator(inner, clock, link))
