"""The clock of the real world. The only module that reads time or chance, besides the simulator's."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from datetime import UTC, datetime

from rota import system


class SystemClock:
    """This host's clocks and the operating system's randomness."""

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(system.CLOCK)

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        return random.random()  # noqa: S311 - spreads retries, guards nothing

    def token(self) -> str:
        return secrets.token_hex(16)
