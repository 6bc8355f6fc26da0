"""The clock of the real world. The only module that reads time or chance, besides the simulator's."""

from __future__ import annotations

import asyncio
import random
import secrets
import sys
import time
from datetime import UTC, datetime


class SystemClock:
    """This host's clocks and the operating system's randomness."""

    def monotonic(self) -> float:
        return time.monotonic()

    def boottime(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic()

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        return random.random()  # noqa: S311 - spreads retries, guards nothing

    def token(self) -> str:
        return secrets.token_hex(16)
