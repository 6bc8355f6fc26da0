"""Looks at a store behind the product's back: raw SQL with the bare drivers, the store's own clock, nothing of rota.

It adds one column to the table of runs, which the database itself fills with its clock when a row is inserted. So a
product that is wrong about the time cannot hide it.
"""

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Self

import asyncmy
import asyncpg

from tests.checkers.changes import Line
from tests.checkers.firing import Row
from tests.servers.sql import connect_mysql

_CLOCK = {
    "postgresql": "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
    "sqlite": "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)",
    "mysql": "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)",
}
_AWAY = (
    OSError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncmy.errors.OperationalError,
    asyncmy.errors.InterfaceError,
)
AWAY_S = 30.0
_RUN = ("id", "job_id", "version", "slot_at", "last_slot_at", "slots", "state", "reason", "created_at", "witness_at")


class Witness:
    """One connection to the store, autocommit."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._kind = next((kind for kind in ("postgresql", "sqlite") if url.startswith(f"{kind}:")), "mysql")
        self._clock = _CLOCK[self._kind]
        self._connection: Any = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._connect()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._kind == "postgresql":
            self._connection.terminate()
        else:
            self._connection.close()

    async def ask(self, statement: str) -> Sequence[tuple[Any, ...]]:
        """Run one statement, which may be run again; if the server is away, wait for it."""
        async with asyncio.timeout(AWAY_S), self._turn:
            while True:
                try:
                    return await self._ask(statement)
                except _AWAY:
                    await asyncio.sleep(0.05)
                    with suppress(*_AWAY):
                        await self._connect()

    async def _connect(self) -> None:
        if self._kind == "postgresql":
            self._connection = await asyncpg.connect(self._url)
        elif self._kind == "sqlite":
            self._connection = sqlite3.connect(self._url.removeprefix("sqlite:///"), isolation_level=None)
        else:
            self._connection = await connect_mysql(self._url)
            await self._connection.autocommit(True)

    async def _ask(self, statement: str) -> Sequence[tuple[Any, ...]]:
        if self._kind == "postgresql":
            return [tuple(record) for record in await self._connection.fetch(statement)]
        if self._kind == "sqlite":
            return list(self._connection.execute(statement))
        async with self._connection.cursor() as cursor:
            await cursor.execute(statement)
            return list(await cursor.fetchall())

    async def now(self) -> int:
        """The store's clock, in microseconds from the epoch."""
        ((now,),) = await self.ask(f"SELECT {self._clock}")
        return int(now)

    async def watch(self) -> None:
        """Let the database write its own clock beside every new run."""
        await self.ask(f"ALTER TABLE rota_run ADD COLUMN witness_at BIGINT NOT NULL DEFAULT ({self._clock})")

    async def rows(self) -> list[Row]:
        """The runs that stand for slots."""
        found = await self.ask(f"SELECT {', '.join(_RUN)} FROM rota_run WHERE cause = 'slot'")
        return [dict(zip(_RUN, row, strict=True)) for row in found]

    async def lines(self) -> dict[str, list[Line]]:
        """The changes of every job, by its name, in the order of their instants."""
        names = await self.job_ids()
        lines: dict[str, list[Line]] = {name: [] for name in names}
        by_id = {job_id: name for name, job_id in names.items()}
        query = "SELECT job_id, kind, at, data FROM rota_event WHERE kind LIKE 'job.%' ORDER BY at, id"
        for job_id, kind, at, data in await self.ask(query.replace("%", "%%") if self.is_mysql else query):
            lines[by_id[job_id]].append(Line(kind, at, json.loads(data)["version"]))
        return lines

    async def job_ids(self) -> dict[str, int]:
        return dict(await self.ask("SELECT name, id FROM rota_job"))

    async def is_paused(self, name: str) -> bool:
        """Whether a job is paused, once whoever is changing it is done."""
        ((state,),) = await self.ask(f"SELECT state FROM rota_job WHERE name = '{name}' FOR UPDATE")
        return bool(state == "paused")

    async def shares(self) -> Counter[str]:
        """How many runs each actor has written."""
        query = "SELECT actor, count(*) FROM rota_event WHERE kind IN ('run.started', 'run.skipped') GROUP BY actor"
        return Counter(dict(await self.ask(query)))

    @property
    def is_mysql(self) -> bool:
        return self._kind == "mysql"
