"""What the machine itself does while nothing is measured: a figure from a busy machine is void."""

from __future__ import annotations

from rota.execution.machine_load import WINDOW_S, MachineLoad
from rota.model.value import Value
from rota.ports import Clock

LOOP = 1_000_000
SLEEPS, SLEEP_S = 200, 0.005
BUSY_MAX = 0.10
LATE_MS_MAX = 5.0


class Calibration(Value, frozen=True, kw_only=True):
    """How quick and how quiet the machine is."""

    loop_ms: float
    """How long a plain loop of a million steps takes."""
    sleep_late_ms: float
    """How late one of a hundred sleeps of 5 ms ends."""
    busy: float
    """The share of its processors that others use."""

    @property
    def void(self) -> str:
        """Why figures from this machine mean nothing; empty if they do."""
        if self.busy > BUSY_MAX:
            return f"others use {self.busy:.0%} of the processors"
        if self.sleep_late_ms > LATE_MS_MAX:
            return f"a sleep ends {self.sleep_late_ms:g} ms late"
        return ""


async def calibrate(clock: Clock) -> Calibration:
    """Look at the machine for two seconds, before anything is started."""
    load = MachineLoad(clock.monotonic)
    await clock.sleep(WINDOW_S)
    busy = load.cpu()
    late_ms = sorted([await _late_ms(clock) for _ in range(SLEEPS)])
    began_s = clock.monotonic()
    for _ in range(LOOP):
        pass
    return Calibration(
        loop_ms=round((clock.monotonic() - began_s) * 1000, 1),
        sleep_late_ms=round(late_ms[SLEEPS * 99 // 100], 2),
        busy=round(busy, 3),
    )


async def _late_ms(clock: Clock) -> float:
    began_s = clock.monotonic()
    await clock.sleep(SLEEP_S)
    return (clock.monotonic() - began_s - SLEEP_S) * 1000
