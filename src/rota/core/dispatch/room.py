"""What the limits of a round allow: the lanes that items are in, and how much room is left for each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from rota.core.dispatch.rate import free_at, remember
from rota.model.work import CAPACITY, GLOBAL, JOB, LATE, Lane, Limit, Rate, quota_limit


class Way(NamedTuple):
    """A lane with values that a round needs often, computed once."""

    lane: Lane
    limits: tuple[str, ...]
    quota: str
    rates: Mapping[str, Rate]

    @classmethod
    def of(cls, lane: Lane) -> Way:
        return cls(lane, lane.limits, quota_limit(lane.tenant, lane.quota), lane.rates)


class Room:
    """How much the limits still allow in this round. `running` counts what runs, what the round gives included."""

    def __init__(
        self, limits: dict[str, Limit], running: Mapping[str, int], now_us: int, dated: Collection[str] = ()
    ) -> None:
        self._limits = limits
        self._running = running
        self._now_us = now_us
        self._started = set(dated)
        self._caps = {name: limit.cap for name, limit in limits.items() if limit.cap is not None}
        if GLOBAL not in limits:
            self._caps[GLOBAL] = CAPACITY
        self._rated = frozenset(
            name for name, limit in limits.items() if limit.rate is not None and not name.startswith((JOB, LATE))
        )

    @property
    def is_open(self) -> bool:
        """True if the global cap allows another start."""
        cap = self._caps.get(GLOBAL)
        return cap is None or self._running.get(GLOBAL, 0) < cap

    def caps(self, way: Way) -> list[tuple[str, int]]:
        return [(name, cap) for name in way.limits if (cap := self._cap_of(name, way)) is not None]

    def is_rated(self, way: Way) -> bool:
        return bool(way.rates) or not self._rated.isdisjoint(way.limits)

    def weight(self, way: Way) -> int:
        limit = self._limits.get(way.quota)
        return 1 if limit is None else limit.weight

    def full(self, way: Way) -> str | None:
        """Return the name of the first limit of a lane that is full; None if none is."""
        for name in way.limits:
            cap = self._cap_of(name, way)
            if cap is not None and self._running.get(name, 0) >= cap:
                return name
            limit = self._rate_of(name, way)
            if limit is not None and free_at(limit, self._now_us) > self._now_us:
                return name
        return None

    def take(self, way: Way) -> None:
        """Count a start against the rates."""
        for name in way.limits:
            limit = self._rate_of(name, way)
            if limit is not None:
                self._limits[name] = remember(limit, self._now_us)
                self._started.add(name)

    def changed(self) -> list[Limit]:
        """Return the limits whose memory of starts has changed."""
        return [self._limits[name] for name in sorted(self._started)]

    def opens_at(self, way: Way) -> int | None:
        """When the rates of a lane allow a start again; none if they do now."""
        limits = (self._rate_of(name, way) for name in way.limits)
        instants = (free_at(limit, self._now_us) for limit in limits if limit is not None)
        return max((at for at in instants if at > self._now_us), default=None)

    def _cap_of(self, name: str, way: Way) -> int | None:
        """A job's own cap is what the item's version of it says."""
        return way.lane.job_cap if name[:4] == JOB else self._caps.get(name)

    def _rate_of(self, name: str, way: Way) -> Limit | None:
        """The limit of that name if it has a rate. A job's own are what the item's version of it says; only the memory
        of starts is kept apart."""
        if name in self._rated:
            return self._limits[name]
        rate = way.rates.get(name)
        if rate is None:
            return None
        kept = self._limits.get(name)
        return Limit(name=name, rate=rate, recent=() if kept is None else kept.recent)
