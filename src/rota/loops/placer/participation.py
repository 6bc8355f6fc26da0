"""Participate: put together the loops by which a scheduler takes part in one of the placements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rota.config import PlacementConfig
from rota.errors import CoordinatorError
from rota.logger import log
from rota.loops.loop import Loop
from rota.loops.placer.beat import BeatPlacer
from rota.loops.placer.claim import ClaimPlacer, read_limit
from rota.loops.placer.cluster_view import ClusterView
from rota.loops.placer.repairer import Repairer
from rota.loops.placer.scope import ScopePlacer
from rota.loops.placer.session_keeper import SessionKeeper
from rota.loops.signals import Signals
from rota.model.cluster import Peer, Placement
from rota.ports import Clock, Coordinator, Store

LEAVE_S = 5.0

Placer = ClaimPlacer | ScopePlacer | BeatPlacer


@dataclass(slots=True, kw_only=True)
class Participation:
    """The loops by which this scheduler takes part: one keeps its session, one places jobs, one repairs the
    coordinator."""

    coordinator: Coordinator
    keeper: SessionKeeper
    placer: Placer
    repairer: Repairer

    @property
    def loops(self) -> tuple[Loop, ...]:
        return self.keeper, self.placer, self.repairer

    async def leave(self) -> None:
        """Let others have the jobs at once; if nobody answers, they have them when the session is over."""
        try:
            async with asyncio.timeout(LEAVE_S):
                await self.keeper.leave()
                await self.coordinator.close()
        except (CoordinatorError, TimeoutError):
            log.warning("scheduler.left_unannounced", reason="the coordinator is out of reach")


def participate(
    store: Store,
    coordinator: Coordinator,
    clock: Clock,
    config: PlacementConfig,
    describe: Callable[[], Peer],
    *,
    signals: Signals | None = None,
    busy: Callable[[], float] = lambda: 0.0,
    on_lost: str = "continue",
    repair_s: float | None = None,
) -> Participation:
    """Make the loops of the configured placement, and say which of them acts on which signal."""
    signals = signals or Signals()
    view = ClusterView(store, coordinator, clock)
    is_claim = config.kind == Placement.CLAIM
    keeper = SessionKeeper(
        coordinator,
        clock,
        describe,
        busy=busy,
        on_lost=on_lost,
        limit=(lambda: read_limit(view, config.faults)) if is_claim else None,
        signals=signals,
    )
    parts = (store, coordinator, clock, config, keeper)
    placer: Placer
    match Placement(config.kind):
        case Placement.CLAIM:
            placer = ClaimPlacer(*parts, view=view)
        case Placement.SCOPE:
            placer = ScopePlacer(*parts)
        case Placement.BEAT:
            placer = BeatPlacer(*parts)
    repairer = Repairer(store, coordinator, clock, keeper, every_s=repair_s)
    signals.session_began.on(placer.wake)
    signals.session_lost.on(placer.lose)
    signals.jobs_changed.on(placer.wake)
    signals.repaired.on(repairer.note)
    return Participation(coordinator=coordinator, keeper=keeper, placer=placer, repairer=repairer)
