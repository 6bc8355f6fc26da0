"""An event loop whose time is virtual: when every task waits, it jumps to the next timer instead of sleeping.

Ready callbacks are run in an order that the seed decides, so that different seeds show different interleavings and the
same seed shows the same one. Nothing that waits for the outside world may run on it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Deadlock(Exception):
    """Every task waits for something that no timer will bring."""


class SimLoop(asyncio.SelectorEventLoop):
    """An asyncio loop in virtual time."""

    def __init__(self, seed: int) -> None:
        self._virtual_s = 0.0
        self._random = Random(f"{seed}:loop")  # noqa: S311 - chooses an order, guards nothing
        super().__init__(_JumpingSelector(self._jump))

    def time(self) -> float:
        return self._virtual_s

    def _jump(self, seconds: float) -> None:
        self._virtual_s += seconds

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        shuffled = list(ready)
        self._random.shuffle(shuffled)
        ready.clear()
        ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]


class SimClock:
    """The clock of a simulated host. `skew_s` is how far its wall clock is off; nothing that decides may mind."""

    def __init__(self, loop: SimLoop, seed: int, *, name: str = "", skew_s: float = 0.0) -> None:
        self._loop = loop
        self._skew = timedelta(seconds=skew_s)
        self._random = Random(f"{seed}:{name}")  # noqa: S311 - must repeat

    def boottime(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        return self._loop.time()

    def wall(self) -> datetime:
        return EPOCH + timedelta(seconds=self._loop.time()) + self._skew

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def chance(self) -> float:
        return self._random.random()

    def token(self) -> str:
        return f"{self._random.getrandbits(128):032x}"


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimLoop)
        return runner.run(main(loop))


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
