"""Run statements: a whole transaction as one plain function, on whatever database it is.

A transaction that lost a race (deadlock, lock timeout, two inserts of one key) is made again as a whole, a few times.
An error before the commit means that nothing was changed; an error during the commit is `CommitUnknown`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    IntegrityError,
    NotSupportedError,
    ProgrammingError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from rota.backends.sql.dialect import LOCK_S, STATEMENT_S, Dialect
from rota.backends.sql.ear import Ear
from rota.errors import CommitUnknown, StoreError, StoreFault, StoreUnavailable
from rota.ports import Clock

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

T = TypeVar("T")
Work = Callable[[Connection], T]

ATTEMPTS_MAX = 10
BEAT_S = 2.0
EXCLUSIVE_S = 600.0
"""How long a process waits while another migrates."""
PATIENCE_S = float(STATEMENT_S + LOCK_S)
"""How long a transaction or its commit may take before the server counts as gone. One that was cut off sends nothing,
not even an error, and the drivers would wait for it without end."""


class Database(Protocol):
    """Something that runs transactions."""

    dialect: Dialect

    async def read(self, work: Work[T]) -> T:
        """Run one statement or several independent ones; nothing is locked."""
        ...

    async def write(self, work: Work[T]) -> T:
        """Run a transaction and commit it durably."""
        ...

    async def beat(self, work: Work[T]) -> T:
        """Run one statement that writes, on a connection that nothing else uses, and give up soon."""
        ...

    async def exclusively(self, work: Work[T]) -> T:
        """Run work that no other process may do at the same time, outside a transaction."""
        ...

    def listen(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with what others notify, where the database can tell."""
        ...

    async def close(self) -> None: ...


class Lost(Exception):
    """A fenced write found other facts than those it was decided on; the transaction is made again."""


class Engines(NamedTuple):
    """One engine for transactions, one for single reads, so that neither has to switch modes; one for renewals, which
    wait for nothing else; and one that listens."""

    writer: AsyncEngine
    reader: AsyncEngine
    beat: AsyncEngine
    ear: AsyncEngine


class ServerDatabase:
    """A database server, through an asynchronous driver."""

    def __init__(self, dialect: Dialect, engines: Engines, clock: Clock) -> None:
        self.dialect = dialect
        self.engines = engines
        self._writer = engines.writer
        self._reader = engines.reader
        self._clock = clock
        self._ears: list[Ear] = []

    async def read(self, work: Work[T]) -> T:
        async def once() -> T:
            async with asyncio.timeout(PATIENCE_S), self._reader.connect() as conn:
                return await conn.run_sync(work)

        return await again(once, self.dialect, self._clock)

    async def write(self, work: Work[T]) -> T:
        return await again(partial(self._write_once, work), self.dialect, self._clock)

    async def beat(self, work: Work[T]) -> T:
        async def once() -> T:
            async with self.engines.beat.connect() as conn:
                return await conn.run_sync(work)

        try:
            async with asyncio.timeout(BEAT_S):
                return await again(once, self.dialect, self._clock)
        except TimeoutError:
            raise StoreUnavailable(f"the {self.dialect.name} store took no renewal within {BEAT_S:g} s") from None

    async def exclusively(self, work: Work[T]) -> T:
        async def once() -> T:
            async with self._reader.connect() as conn:
                try:
                    await conn.run_sync(self.dialect.migration_lock)
                    return await conn.run_sync(work)
                finally:
                    await conn.invalidate()  # the lock ends with its connection

        return await again(once, self.dialect, self._clock)

    def listen(self, wake: Callable[[str], None]) -> None:
        if self.dialect.name == "postgresql":
            self._ears.append(Ear(self.engines.ear, self._clock, wake))

    async def close(self) -> None:
        for ear in self._ears:
            await ear.close()
        for engine in self.engines:
            await engine.dispose()

    async def _write_once(self, work: Work[T]) -> T:
        async with self._writer.connect() as conn:
            async with asyncio.timeout(PATIENCE_S):
                result = await conn.run_sync(work)
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await conn.commit()
            except DBAPIError as error:
                if self.dialect.code(error) in self.dialect.retryable and not error.connection_invalidated:
                    raise
                raise CommitUnknown(f"the {self.dialect.name} server did not answer a commit: {error.orig}") from error
            except (TimeoutError, OSError) as error:
                raise CommitUnknown(f"the {self.dialect.name} server did not answer a commit: {error}") from error
            return result


class FileDatabase:
    """An SQLite file. All of it runs in one thread of this process, a whole transaction at a time."""

    def __init__(self, dialect: Dialect, engine: Engine, clock: Clock) -> None:
        self.dialect = dialect
        self._engine = engine
        self._clock = clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rota-sqlite")
        self._conn: Connection | None = None

    async def read(self, work: Work[T]) -> T:
        return await again(partial(self._hop, work), self.dialect, self._clock)

    async def write(self, work: Work[T]) -> T:
        return await again(partial(self._hop, partial(self._transaction, "IMMEDIATE", work)), self.dialect, self._clock)

    async def beat(self, work: Work[T]) -> T:
        return await self.write(work)

    async def exclusively(self, work: Work[T]) -> T:
        async def once() -> T:
            await self._hop(partial(_set_patience, EXCLUSIVE_S))
            try:
                return await self._hop(partial(self._transaction, "EXCLUSIVE", work))
            finally:
                await self._hop(partial(_set_patience, LOCK_S))

        return await again(once, self.dialect, self._clock)

    def listen(self, wake: Callable[[str], None]) -> None:
        pass

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)

    async def _hop(self, work: Work[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._with_connection, work)

    def _with_connection(self, work: Work[T]) -> T:
        if self._conn is None:
            self._conn = self._engine.connect()
        return work(self._conn)

    def _transaction(self, kind: str, work: Work[T], conn: Connection) -> T:
        conn.exec_driver_sql(f"BEGIN {kind}")
        try:
            result = work(conn)
            conn.exec_driver_sql("COMMIT")
        except BaseException:
            if conn.connection.dbapi_connection.in_transaction:  # type: ignore[union-attr]
                conn.exec_driver_sql("ROLLBACK")
            raise
        return result

    def _disconnect(self) -> None:
        if self._conn is not None:
            self._conn.close()
        self._engine.dispose()


def _set_patience(seconds: float, conn: Connection) -> None:
    conn.exec_driver_sql(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


async def again(once: Callable[[], Awaitable[T]], dialect: Dialect, clock: Clock) -> T:
    """Make a transaction, and make it again if it lost a race. Driver errors end here."""
    problem: Exception | None = None
    for attempt in range(1, ATTEMPTS_MAX + 1):
        try:
            return await once()
        except Lost as error:
            problem = error
        except DBAPIError as error:
            problem = error
            is_stale = error.connection_invalidated and attempt == 1  # died in the pool; a new one may serve at once
            if dialect.code(error) not in dialect.retryable and not is_stale:
                raise _translated(error, dialect) from error
        except (TimeoutError, PoolTimeoutError, OSError) as error:
            reason = str(error) or "it did not answer in time"
            raise StoreUnavailable(f"the {dialect.name} store cannot be reached: {reason}") from error
        except SQLAlchemyError as error:
            raise StoreFault(f"the {dialect.name} store is not as it should be: {error}") from error
        await clock.sleep(0.005 * attempt * (0.5 + clock.chance()))
    message = f"the {dialect.name} store refused a transaction {ATTEMPTS_MAX} times: {problem}"
    raise (StoreFault if isinstance(problem, Lost | IntegrityError) else StoreUnavailable)(message) from problem


def _translated(error: DBAPIError, dialect: Dialect) -> StoreError:
    message = f"the {dialect.name} store failed: {error.orig}"
    asked_wrongly = isinstance(error, DataError | IntegrityError | ProgrammingError | NotSupportedError)
    return StoreFault(message) if asked_wrongly else StoreUnavailable(message)
