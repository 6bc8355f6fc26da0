"""What every loop does alike: rounds, rests, and going on after a fault.

    once ──ok──> rest as long as once says, or until woken ──> once
      └─fault──> rest with back-off, growing to a bound ─────> once

A loop never ends because of an error; it ends when it is told to stop.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

import structlog

from rota.errors import CoordinatorUnavailable, SessionLost, StoreUnavailable
from rota.ports import Clock

BACK_OFF_MAX_S = 2.0
TICK_S = 1e-6
"""The shortest rest that is one: less may be lost when it is added to a clock, and then nobody gets on."""

log = structlog.get_logger()


class Loop(ABC):
    """One periodic activity of a node. A subclass says what one round does."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._woken = self._stopping = False
        self._rest: asyncio.Future[None] | None = None
        self.failures = 0
        """Rounds that failed since the last one that did not."""

    @abstractmethod
    async def once(self) -> float:
        """Do one round; say how many seconds to rest after it."""

    async def run(self) -> None:
        """Do rounds until told to stop."""
        while not self._stopping:
            await self.rest(await self._round())

    def wake(self) -> None:
        """End the present rest; if there is none, the next one."""
        self._woken = True
        if self._rest is not None:
            _end(self._rest)

    def stop(self) -> None:
        """Do no further round."""
        self._stopping = True
        self.wake()

    async def rest(self, seconds: float) -> None:
        """Wait for so long, or until woken."""
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._rest = loop.create_future()
            rest_s = max(seconds, TICK_S) if seconds > 0 else 0
            timer = loop.call_later(rest_s, _end, self._rest)
            try:
                await self._rest
            finally:
                timer.cancel()
                self._rest = None
        self._woken = False

    async def _round(self) -> float:
        try:
            rest_s = await self.once()
        except StoreUnavailable as fault:
            return self._back_off("the store is out of reach; going on when it is back", reason=str(fault))
        except CoordinatorUnavailable as fault:
            return self._back_off("the coordinator is out of reach; going on when it is back", reason=str(fault))
        except SessionLost as fault:
            if self._stopping:
                return 0.0  # it is this node that has left
            return self._back_off("the session was lost; going on with a new one", reason=str(fault))
        except Exception:  # noqa: BLE001 - a bug in one round must not silence the loop for ever
            return self._back_off("a round failed", exc_info=True)
        if self.failures:
            log.info("going on", loop=type(self).__name__, after_failures=self.failures)
        self.failures = 0
        return rest_s

    def _back_off(self, event: str, **details: object) -> float:
        self.failures += 1
        log.warning(event, loop=type(self).__name__, failures=self.failures, **details)
        longest_s: float = min(0.05 * 2.0 ** min(self.failures, 10), BACK_OFF_MAX_S)
        return longest_s * (0.5 + self._clock.chance() / 2)


def _end(rest: asyncio.Future[None]) -> None:
    if not rest.done():
        rest.set_result(None)
