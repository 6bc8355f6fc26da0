"""How busy this machine is, as Linux tells it. Elsewhere its load says it, and its memory seems free."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rota import system

WINDOW_S = 1.0
"""What is busy is said of the time that has passed since so long ago, or a little longer."""
STEP_S = 0.2
_TICKS_PER_S = 1000


class CpuSample(NamedTuple):
    at_s: float
    busy: int
    total: int


class MachineLoad:
    """Shares of CPU and memory in use. One measurement for all who ask: nobody's question shortens another's view."""

    def __init__(self, monotonic: Callable[[], float], ticks: Callable[[], tuple[int, int]] | None = None) -> None:
        self._monotonic = monotonic
        self._ticks = ticks or (_ticks if system.IS_LINUX else LoadTicks(monotonic).ticks)
        self._samples = [self._sample()]
        self._share = 0.0

    def cpu(self) -> float:
        """The share of the last second in which processors were busy; of a longer time if nobody asked meanwhile."""
        now = self._sample()
        if now.at_s - self._samples[-1].at_s >= STEP_S:
            old = [it for it in self._samples if it.at_s <= now.at_s - WINDOW_S]
            self._samples = [*old[-1:], *self._samples[len(old) :], now]
            self._share = _share(self._samples[0], now)
        return self._share

    def _sample(self) -> CpuSample:
        return CpuSample(self._monotonic(), *self._ticks())

    def memory(self) -> float:
        fields = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
        total, free = (int(fields.get(name, "0 kB").split()[0]) for name in ("MemTotal", "MemAvailable"))
        return 1.0 - free / total if total else 0.0


class LoadTicks:
    """Ticks made up from the load, where nobody counts them: as many as the processes that wanted to run would use."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._at_s = monotonic()
        self._busy = self._total = 0.0

    def ticks(self) -> tuple[int, int]:
        at_s = self._monotonic()
        passed = (at_s - self._at_s) * _TICKS_PER_S
        self._at_s = at_s
        self._busy += passed * _load()
        self._total += passed
        return int(self._busy), int(self._total)


def _load() -> float:
    """How many processes want to run for each processor; as far as that is known."""
    try:
        return min(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0)
    except OSError:
        return 0.0


def _share(old: CpuSample, new: CpuSample) -> float:
    passed = new.total - old.total
    return min(max((new.busy - old.busy) / passed, 0.0), 1.0) if passed > 0 else 0.0


def _ticks() -> tuple[int, int]:
    """Busy and all clock ticks of all processors since the machine started."""
    times = [int(word) for word in _read("/proc/stat").partition("\n")[0].split()[1:9]]
    if len(times) < 5:
        return 0, 0
    return sum(times) - times[3] - times[4], sum(times)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
