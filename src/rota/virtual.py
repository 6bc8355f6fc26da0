"""Virtual time: an event loop that jumps to its next timer instead of sleeping, the clock that goes with it, and the
host of a node that lives in it.

Time is a whole number of microseconds, so that instants that are equal on paper are equal here. Nothing that waits for
the outside world may run on such a loop.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context
from datetime import datetime, timedelta
from random import Random
from typing import Any

from rota.model.node import Place
from rota.ports import Runner


class Deadlock(Exception):
    """Every task waits for something that no timer will bring."""


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._virtual_us = 0
        super().__init__(_JumpingSelector(self._jump))
        # A billionth of a second, as usual, would be lost in the rounding of large times, and no timer would ever ring.
        self._clock_resolution = 0.5e-6

    def time(self) -> float:
        return self._virtual_us / 1_000_000

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """A timer rings at a whole microsecond, and one in the future never now: whoever waits gets on."""
        at_us = round(when * 1_000_000)
        if when > self.time():
            at_us = max(at_us, self._virtual_us + 1)
        return super().call_at(at_us / 1_000_000, callback, *args, context=context)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to do at this instant, besides what asks."""
        timers: Any = self._scheduled  # type: ignore[attr-defined]
        due = any(not timer.cancelled() and timer.when() <= self.time() for timer in timers)
        return not self._ready and not due  # type: ignore[attr-defined]

    def _jump(self, seconds: float) -> None:
        self._virtual_us += round(seconds * 1_000_000)


class VirtualClock:
    """The clock of a host whose time is a loop's. `skew_s` is how far its wall clock is off; nothing that decides may
    mind. What it throws is decided by the seed."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seed: int | str, epoch: datetime, *, name: str = "", skew_s: float = 0.0
    ) -> None:
        self._loop = loop
        self._epoch = epoch + timedelta(seconds=skew_s)
        self._random = Random(f"{seed}:{name}")  # noqa: S311 - must repeat

    def monotonic(self) -> float:
        return self._loop.time()

    def boottime(self) -> float:
        return self.monotonic()

    def wall(self) -> datetime:
        return self._epoch + timedelta(microseconds=round(self._loop.time() * 1_000_000))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        return self._random.random()

    def token(self) -> str:
        return f"{self._random.getrandbits(128):032x}"


class _JumpingSelector(selectors.SelectSelector):
    """Waits by moving the clock."""

    def __init__(self, jump: Callable[[float], None]) -> None:
        super().__init__()
        self._jump = jump

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("every task waits, and no timer is set")
        if timeout > 0:
            self._jump(timeout)
        return []


class VirtualHost:
    """What a node in virtual time asks of its host (`HostFacts`): its runner knows the place, and nothing is busy."""

    skew_s = None

    def __init__(self, address: str, runner: Runner) -> None:
        self.address = address
        self._runner = runner

    def place(self) -> Place:
        return self._runner.here()

    def is_gone(self, place: Place) -> bool:
        return self._runner.gone(place)

    def cpu(self) -> float:
        return 0.0

    def memory(self) -> float:
        return 0.0

    def kinds(self) -> tuple[str, ...]:
        return ()

    def promises(self, boundary: str) -> dict[str, str]:
        return {}
