"""Listen to what PostgreSQL notifies. A connection that is lost is made again, for as long as it takes: a notice
that was missed costs time, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rota.ports import Clock

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncEngine

CHANNEL = "rota"
CHECK_S = 15.0
"""How often a silent connection is asked whether it is still there."""
ANSWER_S = 5.0
"""How long its answer may take."""
MISSED = ("dispatch", "jobs", "entry:")
"""What to wake for when nobody knows what was said."""
BACKOFF_S = 0.1
BACKOFF_S_MAX = 0.5


class NotificationListener:
    """One connection that listens for all who want to hear, from when it is made until it is closed."""

    def __init__(self, engine: AsyncEngine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._wakes: list[Callable[[str], None]] = []
        self._pause_s = BACKOFF_S
        self._task = asyncio.get_running_loop().create_task(self._listen())

    def add(self, wake: Callable[[str], None]) -> None:
        self._wakes.append(wake)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _listen(self) -> None:
        while True:
            try:
                await self._hear()
            except Exception:  # noqa: BLE001 - whatever a server says while it starts or recovers, it is asked again
                await self._clock.sleep(self._pause_s * (0.5 + self._clock.chance()))
                self._pause_s = min(self._pause_s * 2, BACKOFF_S_MAX)

    async def _hear(self) -> None:
        async with self._engine.connect() as conn:
            try:
                raw: Any = (await conn.get_raw_connection()).driver_connection
                lost = asyncio.Event()
                raw.add_termination_listener(lambda _connection: lost.set())
                await raw.add_listener(CHANNEL, self._heard)
                self._pause_s = BACKOFF_S
                for topic in MISSED:  # whatever was said before is lost
                    self._wake(topic)
                while True:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(CHECK_S):
                            await lost.wait()
                    async with asyncio.timeout(ANSWER_S):
                        await conn.exec_driver_sql("SELECT 1")
            finally:
                await conn.invalidate()

    def _wake(self, topic: str) -> None:
        for wake in self._wakes:
            wake(topic)

    def _heard(self, _connection: object, _pid: int, _channel: str, topic: str) -> None:
        self._wake(topic)
