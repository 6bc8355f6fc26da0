"""Whether a file has changed, without asking the file system for every item."""

from __future__ import annotations

from pathlib import Path

AGE_S = 0.5

Stamp = tuple[int, int, int] | None


class Stamps:
    """What files looked like when they were last looked at."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, Stamp]] = {}

    def of(self, file: str, now: float) -> Stamp:
        """A value that differs when the file does; none while it is not there."""
        seen = self._seen.get(file)
        if seen is None or now - seen[0] >= AGE_S:
            seen = self._seen[file] = (now, _stamp(file))
        return seen[1]


def _stamp(file: str) -> Stamp:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
