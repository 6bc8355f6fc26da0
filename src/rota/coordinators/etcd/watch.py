"""Listening: one watch of the whole namespace, which wakes those whom a change concerns.

    connect ──created──> hear ──silent for a while──> connect, from where it stopped: nothing is missed
       ^                  └── lost, or its revision is forgotten ──> connect, and wake everybody
       └──── back off ────┘

It only wakes. What has changed is read by whoever was woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from rota.coordinators.etcd.wire import Create, News, WatchAnswer, WatchRequest, end_of
from rota.errors import CoordinatorError, CoordinatorUnavailable
from rota.model.entry import folder_of
from rota.ports import Clock

if TYPE_CHECKING:
    from rota.coordinators.etcd.gateway import Gateway

WATCH = "/v3/watch"
BACKOFF_S = 0.1
BACKOFF_S_MAX = 2.0


class Watcher:
    """Hears of every change below a prefix, from the first `listen` until it is closed."""

    def __init__(self, gateway: Gateway, clock: Clock, prefix: str) -> None:
        self._gateway = gateway
        self._clock = clock
        self._prefix = prefix
        self._listeners: list[tuple[str, Callable[[], None]]] = []
        self._next = 0
        """The revision to hear from; 0: from the present on, because what was before is unknown."""
        self._missed = True
        """Whether something may have changed unheard."""
        self._pause_s = BACKOFF_S
        self._task: asyncio.Task[None] | None = None

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        self._listeners.append((folder, wake))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._hear()
            except CoordinatorError:
                self._missed = True
                self._gateway.forget_token()  # a watch with an old one is told that it has no right
                await self._clock.sleep(self._pause_s * (0.5 + self._clock.chance()))
                self._pause_s = min(self._pause_s * 2, BACKOFF_S_MAX)

    async def _hear(self) -> None:
        below = self._prefix.encode()
        wish = Create(key=below, range_end=end_of(below), start_revision=self._next, fragment=True)
        async with self._gateway.stream(WATCH, WatchRequest(create_request=wish), WatchAnswer) as answers:
            async for answer in answers:
                self._take(answer.result)

    def _take(self, news: News) -> None:
        if news.canceled:
            self._next = 0
            raise CoordinatorUnavailable(f"the watch has ended: {news.cancel_reason or 'its revision is forgotten'}")
        if news.created:
            self._begin(news.header.revision)
        if news.events and not news.fragment:
            self._next = news.events[-1].kv.mod_revision + 1
        self._tell({event.kv.key.decode(errors="replace").removeprefix(self._prefix) for event in news.events})

    def _begin(self, revision: int) -> None:
        """The watch is there. A server that was set back to a backup may never reach the revision that we wait for."""
        if revision + 1 < self._next:
            self._next = 0
            raise CoordinatorUnavailable("etcd is behind what it has said before")
        self._next = self._next or revision + 1
        self._pause_s = BACKOFF_S
        if self._missed:
            self._missed = False
            for _, wake in self._listeners:
                wake()

    def _tell(self, keys: set[str]) -> None:
        concerned = keys | {folder_of(key) for key in keys}
        for folder, wake in self._listeners:
            if folder in concerned:
                wake()
