"""The coordinator that comes with a SQL store: entries and sessions in two tables of its database.

PostgreSQL tells of changes at once, and so do processes that share a file. Elsewhere, and where a word was lost, a
renewal finds that the number of the last write is another one, and wakes whoever listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection

from rota.coordinators.sql import entries
from rota.coordinators.sql.entries import PREFIX, Entries, concerns
from rota.errors import CoordinatorUnavailable, SessionLost, StoreUnavailable
from rota.model.entry import Entry, batches, check_entries, check_keys
from rota.ports import Clock
from rota.storage.sql.database import Database

T = TypeVar("T")

PATIENCE_S = 3.0
"""How long a verb may take. What was sent may still be done after that."""
CLOSING_S = 2.5
"""How long it may then take to let go of a connection that was cut off. After that it is told once more: before Python
3.12, a connection that is made in the very moment may not notice that it is to be given up."""
RENEWAL_S = 5.0
"""The same for renewals. Servers give them up sooner by themselves, and must not be disturbed in that."""
KEYS_MAX, TEXT_MAX = 500, 2_000_000
"""How many claims, and how much text, one transaction writes."""


class SqlCoordinator:
    """One client, on connections that it shares with the store."""

    def __init__(self, database: Database, clock: Clock, *, ttl_s: float) -> None:
        self._db = database
        self._dialect = database.dialect
        self._clock = clock
        self._turn = asyncio.Lock()
        self._listeners: list[tuple[str, Callable[[], None]]] = []
        self._is_listening = False
        self._told = False
        """Whether changes were told of since the last renewal."""
        self._seen = 0
        self.ttl_s = ttl_s
        self.session: str | None = None
        self.believed_until_s = 0.0

    async def join(self) -> str:
        session, was, sent_s = self._clock.token(), self.session, self._clock.monotonic()

        def work(entries: Entries) -> None:
            entries.end([] if was is None else [was])
            entries.begin(session, self._ttl_us)

        async with _answered():
            await self._write(work)
        self.session, self.believed_until_s = session, sent_s + self.ttl_s
        return session

    async def renew(self) -> bool:
        session, sent_s = self.session, self._clock.monotonic()
        async with _answered(RENEWAL_S):
            seen = self._seen
            found = await self._db.beat(lambda conn: entries.renew(conn, self._dialect, session, self._ttl_us, seen))
        if not found.lives:
            self._forget(session)
        elif self.session == session:
            self.believed_until_s = sent_s + self.ttl_s
        told, self._told = self._told, False
        if found.number != self._seen:
            self._seen = found.number
            if not told:  # a word was lost, or nobody sends any
                self._wake()
        if found.others_over:
            await self._end_others()
        return found.lives

    async def leave(self) -> None:
        session = self.session
        if session is None:
            return
        self.believed_until_s = 0.0
        async with _answered():
            await self._write(lambda entries: entries.end([session]))
        self._forget(session)

    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        check_entries(values)
        session, won = self._joined(), dict[str, int]()
        async with _answered():
            for part in _parts(values, len):
                won |= await self._write_in(session, partial(Entries.claim, values=part))
        return won

    async def release(self, fences: Mapping[str, int]) -> None:
        check_keys(fences)
        session = self._joined()
        async with _answered():
            for part in _parts(fences, lambda _: 0):
                await self._write_in(session, partial(Entries.release, fences=part))

    async def update(self, key: str, fence: int, value: str) -> bool:
        check_entries({key: value})
        async with _answered():
            return await self._write_in(self._joined(), lambda entries: entries.update(key, fence, value))

    async def get(self, key: str) -> Entry | None:
        check_keys([key])
        async with _answered():
            return await self._db.read(lambda conn: entries.get(conn, self._dialect, key))

    async def read(self, folder: str) -> tuple[Entry, ...]:
        check_keys([folder] if folder else [])
        async with _answered():
            return await self._db.read(lambda conn: entries.read(conn, self._dialect, folder))

    async def keys(self, folder: str) -> frozenset[str]:
        check_keys([folder] if folder else [])
        async with _answered():
            return await self._db.read(lambda conn: entries.keys(conn, self._dialect, folder))

    async def put(self, key: str, value: str, *, version: int | None = None) -> int | None:
        check_entries({key: value})
        async with _answered():
            return await self._write(lambda entries: entries.put(key, value, version))

    async def delete(self, key: str, version: int) -> bool:
        check_keys([key])
        async with _answered():
            return await self._write(lambda entries: entries.delete(key, version))

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        self._listeners.append((folder, wake))
        if not self._is_listening:
            self._is_listening = True
            self._db.listen(self._hear)

    def _hear(self, topic: str) -> None:
        self._told = self._told or topic.startswith(PREFIX)
        self._wake(topic)

    def _wake(self, topic: str = PREFIX) -> None:
        """Wake those whom a topic concerns; without one, all."""
        for folder, wake in list(self._listeners):
            if concerns(topic, folder):
                wake()

    async def close(self) -> None:
        """Leave, if there is an answer; else the session ends by itself. The database is the store's."""
        self._listeners.clear()
        with suppress(CoordinatorUnavailable):
            await self.leave()
        self._forget(self.session)

    @property
    def _ttl_us(self) -> int:
        return round(self.ttl_s * 1_000_000)

    async def _end_others(self) -> None:
        """The renewal is done, and must not wait for this: if it takes long, somebody tries again soon."""
        with suppress(CoordinatorUnavailable):
            async with _answered(self.ttl_s / 4):
                await self._write(lambda entries: None)
            self._wake()

    def _joined(self) -> str:
        if self.session is None:
            raise SessionLost("this client has no session, or it is over; join anew")
        return self.session

    async def _write_in(self, session: str, work: Callable[[Entries], T]) -> T:
        """Make a transaction for a session. If that is over, nothing is done but to end it."""

        def checked(entries: Entries) -> tuple[T] | None:
            return (work(entries),) if entries.has_session else None

        done = await self._write(checked, session)
        if done is None:
            self._forget(session)
            raise SessionLost("the session of this client is over, and its claims with it; join anew")
        return done[0]

    async def _write(self, work: Callable[[Entries], T], session: str | None = None) -> T:
        """Make a transaction that has the entries for itself. One at a time: they would only wait for each other, with
        connections that the store could use meanwhile."""

        def whole(conn: Connection) -> T:
            entries = Entries(conn, self._dialect, session)
            entries.lock()
            result = work(entries)
            entries.tell()
            return result

        async with self._turn:
            return await self._db.write(whole)

    def _forget(self, session: str | None) -> None:
        """This session is over. Meanwhile there may be another."""
        if self.session == session:
            self.session, self.believed_until_s = None, 0.0


@asynccontextmanager
async def _answered(patience_s: float | None = None) -> AsyncIterator[None]:
    """Wait for an answer in bounded time; errors of the store end here."""
    patience_s = PATIENCE_S if patience_s is None else patience_s
    try:
        async with asyncio.timeout(patience_s + CLOSING_S), asyncio.timeout(patience_s):
            yield
    except TimeoutError:
        raise CoordinatorUnavailable(f"the store did not answer within {patience_s:g} s") from None
    except StoreUnavailable as error:
        raise CoordinatorUnavailable(str(error)) from error


_parts = partial(batches, keys_max=KEYS_MAX, size_max=TEXT_MAX)
"""Others have their turn in between."""
