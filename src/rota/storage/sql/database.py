"""Run statements: a whole transaction as one plain function, on whatever database it is.

A transaction that lost a race (deadlock, lock timeout, two inserts of one key) is made again as a whole, a few times.
An error before the commit means that nothing was changed; an error during the commit is `CommitUnknown`.
"""

from __future__ import annotations

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from sqlalchemy import Connection
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from rota.errors import CommitUnknown, StoreDenied, StoreError, StoreFault, StoreUnavailable
from rota.logger import log
from rota.ports import Clock
from rota.storage.sql.dialect import LOCK_S, STATEMENT_S, Dialect, taken_topics
from rota.storage.sql.postgresql import NotificationListener
from rota.storage.sql.servers import Servers
from rota.storage.sql.word import WordListener, WordSender, bound, made_key, read_addresses
from rota.transactions.rows import Conflict

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


T = TypeVar("T")
Work = Callable[[Connection], T]

BEAT_S = 2.0
LOOK = "look"
"""The topic of a word: there is something to look for."""
WORD_S = 0.3
"""How long a process that ends waits for the words that it owes."""
CLOSE_S = 2.0
"""How long to wait for a server's good-bye."""
PATIENCE_S = float(STATEMENT_S + LOCK_S)
"""How long a transaction or its commit may take before the server counts as gone. One that was cut off sends nothing,
not even an error, and the drivers would wait for it without end."""


class Database(ABC):
    """Something that runs transactions."""

    dialect: Dialect

    @abstractmethod
    async def read(self, work: Work[T]) -> T:
        """Run one statement or several independent ones; nothing is locked."""

    @abstractmethod
    async def write(self, work: Work[T]) -> T:
        """Run a transaction and commit it durably."""

    async def at_once(self, work: Work[T], is_sent: Callable[[], bool]) -> T:
        """Run reads that lock nothing, and then one statement that writes and commits by itself: when `is_sent`, it may
        have. Where the database writes with several statements, it is a transaction."""
        return await self.write(work)

    async def beat(self, work: Work[T]) -> T:
        """Run one statement that writes, where there are servers on a connection of its own, and give up soon."""
        return await self.write(work)

    @abstractmethod
    async def exclusively(self, work: Work[T]) -> T:
        """Run work that no other process may do at the same time, outside a transaction."""

    @property
    @abstractmethod
    def hears(self) -> bool:
        """Whether `listen` will tell of all news."""

    @abstractmethod
    def listen(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with what others notify, where the database can tell."""

    @property
    def is_called(self) -> bool:
        """Whether others send words to this process; then `listen` tells that one came: `LOOK`."""
        return False

    async def hear_words(self, host: str, port: int, address: str) -> None:  # noqa: B027 - who shares a file is here
        """Let others send words to this process, where the database cannot tell: at a UDP port, known as `address`."""

    def heed(self, noticed: Callable[[int], None]) -> None:  # noqa: B027 - a file is always the same
        """Call `noticed` with the generation of the store, before anything is done on a server whose differs."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of every connection."""


WRITERS, READERS = 4, 4
"""How many connections a process has at most for transactions, and for single statements."""
TURN_S = 10.0
"""How long to wait for one of them."""


class Engines(NamedTuple):
    """One engine for transactions, one for single reads, so that neither has to switch modes; one for renewals, which
    wait for nothing else; and one that listens."""

    writer: AsyncEngine
    reader: AsyncEngine
    beat: AsyncEngine
    listener: AsyncEngine


class Lines:
    """The connections of an engine, kept at hand: to take one from the pool and give it back costs as much as two
    statements do. One that was in use when something failed goes back, to be repaired or thrown away."""

    def __init__(self, engine: AsyncEngine, size: int, dialect: Dialect) -> None:
        self.engine = engine
        self._dialect = dialect
        self._turns = asyncio.Semaphore(size)
        self._free: list[AsyncConnection] = []

    async def run(self, work: Work[T]) -> T:
        """Do something with a connection that nobody else uses meanwhile. It must leave no transaction open."""
        async with asyncio.timeout(TURN_S):
            await self._turns.acquire()
        try:
            conn = self._free.pop() if self._free else await self.engine.connect()
            try:
                result = await conn.run_sync(work)
            except BaseException as error:
                if isinstance(error, DBAPIError) and self._dialect.code(error) in self._dialect.moved:
                    await conn.invalidate()  # the server takes no writes any more: another is looked for
                    await self._drop(invalid=True)
                await conn.__aexit__(None, None, None)  # unlike close, it goes on when it is cancelled
                if isinstance(error, DBAPIError) and error.connection_invalidated:
                    await self._drop()  # the others have probably died with it
                raise
            self._free.append(conn)
            return result
        finally:
            self._turns.release()

    async def close(self) -> None:
        await self._drop()
        await self.engine.dispose()

    async def _drop(self, *, invalid: bool = False) -> None:
        free, self._free = self._free, []
        for conn in free:
            if invalid:
                await conn.invalidate()
            await conn.close()


class ServerDatabase(Database):
    """A database server, through an asynchronous driver."""

    def __init__(self, dialect: Dialect, engines: Engines, servers: Servers, clock: Clock) -> None:
        self.dialect = dialect
        self.engines = engines
        self._servers = servers
        self._writer = Lines(engines.writer, WRITERS, dialect)
        self._reader = Lines(engines.reader, READERS, dialect)
        self._renewer = Lines(engines.beat, 1, dialect)
        self._clock = clock
        self._listener: NotificationListener | None = None
        self._sender = WordSender(partial(self.read, read_addresses), clock) if dialect.name == "mysql" else None
        self._word_listener: WordListener | None = None
        self._wakes: list[Callable[[str], None]] = []

    async def read(self, work: Work[T]) -> T:
        async def once() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await self._reader.run(work)

        return await again(once, self.dialect, self._clock)

    async def write(self, work: Work[T]) -> T:
        return await again(partial(self._write_once, work), self.dialect, self._clock)

    async def at_once(self, work: Work[T], is_sent: Callable[[], bool]) -> T:
        if not self.dialect.writes_in_one:
            return await self.write(work)
        return await again(lambda: self._committed(self._reader.run(work), is_sent), self.dialect, self._clock)

    async def beat(self, work: Work[T]) -> T:
        try:
            async with asyncio.timeout(BEAT_S):
                return await again(partial(self._renewer.run, work), self.dialect, self._clock)
        except TimeoutError:
            raise StoreUnavailable(f"the {self.dialect.name} store took no renewal within {BEAT_S:g} s") from None

    async def exclusively(self, work: Work[T]) -> T:
        async def once() -> T:
            async with self.engines.reader.connect() as conn:
                try:
                    await conn.run_sync(self.dialect.migration_lock)
                    try:
                        return await conn.run_sync(work)
                    finally:
                        with suppress(Exception):  # it may be the connection that failed; then the lock runs out
                            async with asyncio.timeout(STATEMENT_S):
                                await conn.run_sync(self.dialect.migration_unlock)
                finally:
                    await conn.invalidate()  # but on Galera, the lock ends with its connection

        return await again(once, self.dialect, self._clock)

    @property
    def hears(self) -> bool:
        return self.dialect.name == "postgresql"

    @property
    def is_called(self) -> bool:
        return self._word_listener is not None

    def listen(self, wake: Callable[[str], None]) -> None:
        self._wakes.append(wake)
        if self.hears:
            self._listener = self._listener or NotificationListener(self.engines.listener, self._clock, self._wake)

    async def hear_words(self, host: str, port: int, address: str) -> None:
        if self._sender is None or self._word_listener is not None:
            return
        key = await self.write(lambda conn: made_key(conn, self.dialect, self._clock.token()))
        try:
            inbox = bound(host, port)
        except OSError as error:
            log.warning("store.not_woken", address=address, reason=str(error))
            return
        self._sender.own = address
        self._word_listener = WordListener(inbox, key, self._clock, partial(self._wake, LOOK))

    def _wake(self, topic: str) -> None:
        for wake in self._wakes:
            wake(topic)

    def heed(self, noticed: Callable[[int], None]) -> None:
        self._servers.on_generation = noticed

    async def close(self) -> None:
        """In good order if the server answers; else its connections end with the process."""
        if self._word_listener is not None:
            self._word_listener.close()
        if self._sender is not None:
            await self._sender.close(WORD_S)
        try:
            async with asyncio.timeout(CLOSE_S):
                if self._listener is not None:
                    await self._listener.close()
                await self._writer.close()
                await self._reader.close()
                await self._renewer.close()
                await self.engines.listener.dispose()
        except TimeoutError:
            for engine in self.engines:
                await engine.dispose(close=False)

    async def _write_once(self, work: Work[T]) -> T:
        committing = False
        topics: list[str] = []

        def whole(conn: Connection) -> T:
            nonlocal committing
            taken_topics(conn)  # what a transaction left that was rolled back
            result = work(conn)
            committing = True
            conn.commit()
            topics[:] = taken_topics(conn)
            return result

        result = await self._committed(self._writer.run(whole), lambda: committing)
        if topics and self._sender is not None:
            self._sender.tell(topics)
        return result

    async def _committed(self, work: Awaitable[T], is_sent: Callable[[], bool]) -> T:
        """What came of a transaction. A fault after the commit was sent tells nothing of it, unless the server does."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await work
        except DBAPIError as error:
            if self.dialect.has_refused(error) or not is_sent():
                raise
            raise CommitUnknown(f"the {self.dialect.name} server did not answer a commit: {error.orig}") from error
        except (TimeoutError, OSError) as error:
            if not is_sent():
                raise
            raise CommitUnknown(f"the {self.dialect.name} server did not answer a commit: {error}") from error


async def again(once: Callable[[], Awaitable[T]], dialect: Dialect, clock: Clock) -> T:
    """Make a transaction, and make it again if it lost a race. Driver errors end here."""
    problem: Exception | None = None
    for attempt in range(1, dialect.attempts_max + 1):
        try:
            return await once()
        except Conflict as error:
            problem = error
        except DBAPIError as error:
            problem = error
            is_stale = error.connection_invalidated and attempt == 1  # died in the pool; a new one may serve at once
            if dialect.code(error) not in dialect.retryable | dialect.moved and not is_stale:
                raise _translated(error, dialect) from error
        except (TimeoutError, PoolTimeoutError, OSError) as error:
            reason = str(error) or "it did not answer in time"
            if isinstance(error, ssl.SSLCertVerificationError) or "rejected SSL" in reason:
                raise StoreDenied(f"the {dialect.name} store refuses this connection: {reason}") from error
            raise StoreUnavailable(f"the {dialect.name} store cannot be reached: {reason}") from error
        except SQLAlchemyError as error:
            raise StoreFault(f"the {dialect.name} store is not as it should be: {error}") from error
        await clock.sleep(0.005 * attempt * (0.5 + clock.chance()))
    message = f"the {dialect.name} store refused a transaction {dialect.attempts_max} times: {problem}"
    raise (StoreFault if isinstance(problem, Conflict | IntegrityError) else StoreUnavailable)(message) from problem


def _translated(error: DBAPIError, dialect: Dialect) -> StoreError:
    message = f"the {dialect.name} store failed: {error.orig}"
    if dialect.code(error) in dialect.denied:
        return StoreDenied(f"the {dialect.name} store refuses this connection: {error.orig}")
    asked_wrongly = isinstance(error, DataError | IntegrityError | ProgrammingError | NotSupportedError)
    return StoreFault(message) if asked_wrongly else StoreUnavailable(message)
