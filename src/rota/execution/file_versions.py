"""Tells whether a file has changed, without asking the file system for every item."""

from __future__ import annotations

from pathlib import Path

AGE_S = 0.5
"""How long a version is believed before the file is looked at again."""
SEEN_MAX = 10_000
"""How many are remembered. Workers name the files, and new workers may name new ones for ever."""

FileVersion = tuple[int, int, int] | None
"""Time of the last change, size and inode of a file; none while it does not exist."""


class FileVersions:
    """The versions of files, each at most AGE_S old."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, FileVersion]] = {}

    def of(self, file: str, now: float) -> FileVersion:
        """Return a value that differs when the file does."""
        seen = self._seen.get(file)
        if seen is None or now - seen[0] >= AGE_S:
            if len(self._seen) >= SEEN_MAX:
                self._seen.clear()
            seen = self._seen[file] = (now, file_version(file))
        return seen[1]


def file_version(file: str) -> FileVersion:
    try:
        found = Path(file).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
