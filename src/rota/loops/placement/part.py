"""Take part: the loops by which a scheduler has its turn, put together for one of the placements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from rota.config import PlacementConfig
from rota.errors import CoordinatorError
from rota.loops.loop import Loop
from rota.loops.placement.attendant import Attendant
from rota.loops.placement.auditor import Auditor
from rota.loops.placement.beater import Beater
from rota.loops.placement.claimer import Claimer
from rota.loops.placement.scoper import Scoper
from rota.loops.scheduler import Scheduler
from rota.model.cluster import Placement
from rota.ports import Clock, Coordinator, Store

LEAVE_S = 5.0

Driver = Claimer | Scoper | Beater

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Part:
    """This scheduler's part in the cluster."""

    coordinator: Coordinator
    attendant: Attendant
    driver: Driver
    auditor: Auditor | None = None

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.attendant, self.driver, *(() if self.auditor is None else (self.auditor,)))

    def connect(self, scheduler: Scheduler, end: Callable[[], None]) -> None:
        """Let the scheduler go by this part, and wake it when its turn changes."""
        scheduler.turn = self.driver
        self.attendant.on_entered = self.driver.wake
        self.attendant.on_lost = self.driver.lose
        self.attendant.on_exit = end
        self.driver.on_changed = scheduler.wake
        scheduler.on_jobs = self.driver.wake

    async def leave(self) -> None:
        """Let others have the jobs at once; if nobody answers, they have them when the session is over."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.attendant.leave()
                await self.coordinator.close()
        except (CoordinatorError, TimeoutError):
            log.warning("left without a word: the coordinator is out of reach")


def take_part(
    store: Store, coordinator: Coordinator, clock: Clock, config: PlacementConfig, attendant: Attendant
) -> Part:
    """A scheduler's part under the configured placement."""
    return Part(
        coordinator=coordinator,
        attendant=attendant,
        driver=driver(store, coordinator, clock, config, attendant),
        auditor=Auditor(store, coordinator, clock, attendant),
    )


def driver(
    store: Store, coordinator: Coordinator, clock: Clock, config: PlacementConfig, attendant: Attendant
) -> Driver:
    """The loop of the configured placement."""
    kinds: dict[Placement, type[Driver]] = {
        Placement.CLAIM: Claimer,
        Placement.SCOPE: Scoper,
        Placement.BEAT: Beater,
    }
    return kinds[Placement(config.kind)](store, coordinator, clock, config, attendant)
