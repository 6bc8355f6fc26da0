"""Watch a server that all loops of a node need: while it is away, one place asks it again, and all loops wait.

answers ──a loop had no answer──> suspected ──it answers all the same──> answers     (that one call was unlucky)
   ^                                  └──no answer──> away: told once, then ever more rarely
   └───────────────────── it answers: told with how long it took ─────────────────────┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from rota.errors import CoordinatorError, StoreError
from rota.logger import log
from rota.model.folders import LIVE
from rota.ports import Clock, Coordinator, Store

ASK_S = 2.0
"""For how long one answer is waited for: a server that was cut off sends nothing, not even an error."""
COORDINATOR_S = 2.0
"""How long a loop waits for the coordinator before it tries by itself: it has more to do when the session is over."""
GAPS_S = (0.1, 0.2, 0.5, 1.0)
"""The rests between two questions; the last one stays."""
REMIND_S = 60.0
"""The first reminder that it is still away; each further one comes after twice as long."""


class OutageEvents(NamedTuple):
    """What the log says of one server."""

    lost: str
    still_lost: str
    recovered: str


EVENTS = {
    "store": OutageEvents("store.lost", "store.still_lost", "store.recovered"),
    "coordinator": OutageEvents("coordinator.lost", "coordinator.still_lost", "coordinator.recovered"),
}


@dataclass(eq=False, repr=False)
class Outage:
    """Knows whether one server answers. A loop that waits for it tries by itself again after `patience_s`."""

    clock: Clock
    server: str
    ask: Callable[[], Awaitable[object]]
    patience_s: float | None = None
    _reason: str = ""
    _began_s: float = 0.0
    _suspected: asyncio.Event = field(default_factory=asyncio.Event)
    _away: asyncio.Event = field(default_factory=asyncio.Event)
    _answers: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._events = EVENTS[self.server]
        self._answers.set()

    @property
    def is_on(self) -> bool:
        """Whether it is away for certain."""
        return self._away.is_set()

    def suspect(self, reason: str) -> None:
        """A loop had no answer."""
        if self._answers.is_set():
            self._reason, self._began_s = reason, self.clock.monotonic()
            self._answers.clear()
            self._suspected.set()

    async def over(self) -> None:
        await self._answers.wait()

    async def lasted(self, seconds: float) -> None:
        """Wait until it has been away for so long."""
        while not self.is_on or self.clock.monotonic() - self._began_s < seconds:
            await self._away.wait()
            await self.clock.sleep(max(self._began_s + seconds - self.clock.monotonic(), 0.01))

    async def watch(self) -> None:
        """Look after it, until cancelled."""
        while True:
            await self._suspected.wait()
            self._suspected.clear()
            await self._wait_out()

    async def _wait_out(self) -> None:
        tries, remind_s = 0, REMIND_S
        while not await self._is_answered():
            if not self.is_on:
                self._away.set()
                log.warning(self._events.lost, reason=self._reason)
            away_s = self.clock.monotonic() - self._began_s
            if away_s >= remind_s:
                remind_s *= 2
                log.warning(self._events.still_lost, for_s=round(away_s), reason=self._reason)
            gap_s = GAPS_S[min(tries, len(GAPS_S) - 1)]
            tries += 1
            await self.clock.sleep(gap_s * (0.5 + self.clock.chance() / 2))
        if self.is_on:
            self._away.clear()
            log.info(self._events.recovered, after_s=round(self.clock.monotonic() - self._began_s, 1))
        self._answers.set()

    async def _is_answered(self) -> bool:
        try:
            async with asyncio.timeout(ASK_S):
                await self.ask()
        except (StoreError, CoordinatorError, TimeoutError) as fault:
            self._reason = str(fault) or f"no answer within {ASK_S:g} s"
            return False
        return True


def store_outage(clock: Clock, store: Store) -> Outage:
    """One that can be read and takes no writes is away, too: whatever a node does there ends with a write."""
    return Outage(clock, "store", store.probe)


def coordinator_outage(clock: Clock, coordinator: Coordinator) -> Outage:
    return Outage(clock, "coordinator", lambda: coordinator.get(LIVE), patience_s=COORDINATOR_S)
