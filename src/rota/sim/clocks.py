"""The clocks of a simulation: those of the hosts are wrong, the store's can jump forward."""

from __future__ import annotations

from datetime import datetime, timedelta

from rota.sim.loop import EPOCH, SimClock, SimLoop


class HostClock(SimClock):
    """The clock of a host. Its wall clock is off and may be set; drift makes all its clocks go wrong alike."""

    def __init__(self, loop: SimLoop, seed: int, name: str, skew_s: float) -> None:
        super().__init__(loop, seed, name=name)
        self._skew_s = skew_s
        self._rate = 1.0
        self._base_s = self._since_s = 0.0

    def monotonic(self) -> float:
        return self._base_s + (self._loop.time() - self._since_s) * self._rate

    def wall(self) -> datetime:
        return EPOCH + timedelta(seconds=self.monotonic() + self._skew_s)

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self._rate)

    def after(self, seconds: float) -> float:
        """When this clock will have gone on for so long, in the time of the simulation."""
        return self._loop.time() + seconds / self._rate

    def step(self, seconds: float) -> None:
        """Set the wall clock."""
        self._skew_s += seconds

    def drift(self, part: float) -> None:
        """Go wrong by this part from now on."""
        self._base_s, self._since_s = self.monotonic(), self._loop.time()
        self._rate = 1.0 + part


class StoreClock(SimClock):
    """The clock that decides."""

    def step(self, seconds: float) -> None:
        """Jump forward."""
        self._epoch += timedelta(seconds=seconds)
