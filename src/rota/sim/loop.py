"""The event loop of a simulation: virtual time, and ready callbacks in an order that the seed decides, so that
different seeds show different interleavings and the same seed shows the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from random import Random
from typing import Any, TypeVar

from rota.virtual import Deadlock, VirtualClock, VirtualLoop

__all__ = ["EPOCH", "Deadlock", "Dice", "SimClock", "SimLoop", "dice", "simulate"]

T = TypeVar("T")

Dice = Random
"""A stream of chance. Everybody who throws has one of their own, so that one throw more of one changes no other."""

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def dice(seed: int, name: str) -> Dice:
    """The chance of one who throws, decided by the seed."""
    return Random(f"{seed}:{name}")  # noqa: S311 - must repeat, guards nothing


class SimLoop(VirtualLoop):
    """An asyncio loop in virtual time that shuffles."""

    def __init__(self, seed: int) -> None:
        self._random = dice(seed, "loop")
        super().__init__()

    def throw(self) -> float:
        """The next number: it says how the loop has thrown until now."""
        return self._random.random()

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        if len(ready) > 1:
            shuffled = list(ready)
            self._random.shuffle(shuffled)
            ready.clear()
            ready.extend(shuffled)
        super()._run_once()  # type: ignore[misc]


class SimClock(VirtualClock):
    """The clock of a simulated host."""

    def __init__(self, loop: SimLoop, seed: int, *, name: str = "", skew_s: float = 0.0) -> None:
        super().__init__(loop, seed, EPOCH, name=name, skew_s=skew_s)


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int) -> T:
    """Run a coroutine to its end in virtual time."""
    with asyncio.Runner(loop_factory=lambda: SimLoop(seed)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimLoop)
        return runner.run(main(loop))
