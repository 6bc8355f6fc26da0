"""What every loop does alike: rounds, rests, and going on after a fault.

    once ──ok──> rest as long as once says, or until woken ──> once
      └─fault──> rest with back-off, growing to a bound ─────> once

Where the store tells of news, a loop that has heard of none rests longer than it says (`quiet_s`); the first news ends
that, not the usual rest.

A loop never ends because of an error; it ends when it is told to stop. Nothing but that cuts a back-off short: whoever
wakes a loop knows of news, not that its fault is gone. While a server is away (`Outage`), its loops wait for it
together.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from rota.errors import CoordinatorUnavailable, SessionLost, StoreUnavailable
from rota.logger import log
from rota.loops.outage import Outage
from rota.ports import Clock

BACK_OFF_MAX_S = 2.0
TICK_S = 1e-6
"""The shortest rest that is one: less may be lost when it is added to a clock, and then nobody gets on."""


class Loop(ABC):
    """One periodic activity of a node. A subclass says what one round does; most are dataclasses with a clock."""

    clock: Clock

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.__post_init__()

    def __post_init__(self) -> None:
        self._woken = self._stopping = False
        self._stopped = asyncio.Event()
        self._rest: asyncio.Future[None] | None = None
        self._outages: Sequence[Outage] = ()
        self._stirred = self._was_stirred = True
        """Whether there was news in this round or its rest; and in the one before."""
        self._shorten: Callable[[], None] | None = None
        self.quiet_s = 0.0
        """How long to rest, at least, while there is no news; nothing where nobody would tell of it."""
        self.failures = 0
        """Rounds that failed since the last one that did not."""

    @abstractmethod
    async def once(self) -> float:
        """Do one round; say how many seconds to rest after it."""

    async def run(self, outages: Sequence[Outage] = ()) -> None:
        """Do rounds until told to stop. `outages` is what the loops of a node know together of their servers."""
        self._outages = outages
        while not self._stopping:
            self._was_stirred, self._stirred = self._stirred, False
            try:
                rest_s = await self.once()
            except Exception as fault:  # noqa: BLE001 - a bug in one round must not silence the loop for ever
                await self._recover(fault)
            else:
                self._succeeded()
                await self.rest(self.quietly(rest_s), usual_s=rest_s)

    def wake(self) -> None:
        """End the present rest; if there is none, the next one."""
        self._woken = True
        if self._rest is not None:
            _end(self._rest)

    def stir(self) -> None:
        """There is news, perhaps of no concern to this loop: rest no longer than usual."""
        self._stirred = True
        if self._shorten is not None:
            self._shorten()

    def quietly(self, seconds: float) -> float:
        """How long to rest instead of so long, as there is no news."""
        return seconds if self._stirred or self._was_stirred or not seconds else max(seconds, self.quiet_s)

    def stop(self) -> None:
        """Do no further round."""
        self._stopping = True
        self._stopped.set()
        self.wake()

    async def rest(self, seconds: float, *, usual_s: float | None = None) -> None:
        """Wait for so long, or until woken; when there is news, for `usual_s` in all."""
        if not self._woken:
            loop = asyncio.get_running_loop()
            self._rest = rest = loop.create_future()
            rest_s = max(seconds, TICK_S) if seconds > 0 else 0
            timers = [loop.call_later(rest_s, _end, rest)]
            if usual_s is not None and usual_s < seconds:
                usual_at = loop.time() + max(usual_s, 0.0)
                self._shorten = lambda: timers.append(loop.call_at(usual_at, _end, rest)) if len(timers) == 1 else None
            try:
                await rest
            finally:
                self._rest = self._shorten = None
                for timer in timers:
                    timer.cancel()
        self._woken = False

    def failed(self) -> None:  # noqa: B027 - most loops have nothing else to do
        """A round has failed."""

    def _succeeded(self) -> None:
        if self.failures > 1:
            log.info("loop.recovered", loop=type(self).__name__, after_failures=self.failures)
        self.failures = 0

    async def _recover(self, fault: Exception) -> None:
        """Rest after a fault, and for as long as its server is away."""
        if isinstance(fault, SessionLost) and self._stopping:
            return  # it is this node that has left
        self.failures += 1
        self.failed()
        outage = self._outage_of(fault)
        if outage is not None:
            outage.suspect(str(fault))
        await self._pause(min(0.05 * 2.0 ** min(self.failures, 10), BACK_OFF_MAX_S) * (0.5 + self.clock.chance() / 2))
        if outage is None or not outage.is_on:
            self._tell(fault)
        if outage is not None:
            await self._pause(outage.patience_s, outage)
        self._woken = False  # the round that follows sees all the news there is

    def _outage_of(self, fault: Exception) -> Outage | None:
        kinds = {"store": StoreUnavailable, "coordinator": CoordinatorUnavailable}
        return next((it for it in self._outages if isinstance(fault, kinds[it.server])), None)

    def _tell(self, fault: Exception) -> None:
        """Not every failure: the first, and then after ever more of them."""
        if self.failures & (self.failures - 1):
            return
        details: dict[str, object] = {"loop": type(self).__name__, "failures": self.failures}
        match fault:
            case StoreUnavailable():
                log.warning("store.unavailable", reason=str(fault), **details)
            case CoordinatorUnavailable():
                log.warning("coordinator.unavailable", reason=str(fault), **details)
            case SessionLost():
                log.warning("loop.session_lost", reason=str(fault), **details)
            case _:
                log.warning("loop.failed", exc_info=fault, **details)

    async def _pause(self, seconds: float | None, outage: Outage | None = None) -> None:
        """Wait for so long, or until the outage is over, or until told to stop."""
        waits: list[asyncio.Future[object]] = [asyncio.ensure_future(self._stopped.wait())]
        if outage is not None:
            waits.append(asyncio.ensure_future(outage.over()))
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()


def _end(rest: asyncio.Future[None]) -> None:
    if not rest.done():
        rest.set_result(None)
