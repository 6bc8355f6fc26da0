"""Tell the store's time between two readings of its clock."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.model.moment import micros
from rota.ports import Clock


class StoreTime:
    """The store's time, carried on from one reading by this node's monotonic clock. It is never ahead of the store's
    own, because the reading is dated by its arrival."""

    def __init__(self, clock: Clock, read: datetime) -> None:
        self._clock = clock
        self._read = read
        self._read_us = micros(read)
        self._since = clock.monotonic()

    def elapsed(self) -> float:
        return self._clock.monotonic() - self._since

    def now(self) -> datetime:
        return self._read + timedelta(seconds=self.elapsed())

    def at_us(self, monotonic_s: float) -> int:
        """When this node's monotonic clock showed that, by the store's clock, in microseconds."""
        return self._read_us + round((monotonic_s - self._since) * 1_000_000)
