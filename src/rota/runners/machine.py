"""How busy this machine is, as Linux tells it. Elsewhere it seems idle."""

from __future__ import annotations

from pathlib import Path


class Machine:
    """Shares of CPU and memory in use; of the CPU since the last time it was asked."""

    def __init__(self) -> None:
        self._busy, self._total = _ticks()

    def cpu(self) -> float:
        busy, total = _ticks()
        passed = total - self._total
        share = (busy - self._busy) / passed if passed > 0 else 0.0
        self._busy, self._total = busy, total
        return min(max(share, 0.0), 1.0)

    def memory(self) -> float:
        fields = dict(line.split(":", 1) for line in _read("/proc/meminfo").splitlines() if ":" in line)
        total, free = (_kilobytes(fields.get(name, "")) for name in ("MemTotal", "MemAvailable"))
        return 1.0 - free / total if total else 0.0


def _ticks() -> tuple[int, int]:
    """Busy and all clock ticks of all processors since the machine started."""
    times = [int(word) for word in _read("/proc/stat").partition("\n")[0].split()[1:9]]
    if len(times) < 5:
        return 0, 0
    return sum(times) - times[3] - times[4], sum(times)


def _kilobytes(text: str) -> int:
    return int(text.split(maxsplit=1)[0]) if text.split() else 0


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
