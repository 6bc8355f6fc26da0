"""Whether a file has changed, without asking the file system for every item."""

from __future__ import annotations

from pathlib import Path

AGE_S = 0.5
SEEN_MAX = 10_000
"""How many are remembered: workers say which files there are, and new workers may say new ones for ever."""

Stamp = tuple[int, int, int] | None
"""How a file looks from outside: time of its last change, size, inode; none while it is not there."""


class Stamps:
    """What files looked like when they were last looked at."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, Stamp]] = {}

    def of(self, file: str, now: float) -> Stamp:
        """A value that differs when the file does."""
        seen = self._seen.get(file)
        if seen is None or now - seen[0] >= AGE_S:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            seen = self._seen[file] = (now, stamp(file))
        return seen[1]


def stamp(file: str) -> Stamp:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
