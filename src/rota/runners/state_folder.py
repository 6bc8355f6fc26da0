"""Whether the folders in which a crew must write can be written to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_SIZE = 4096
"""More than any of the files that starting a process needs."""


def refusal(folders: Iterable[Path]) -> str:
    """Why one of them refuses a small file; nothing if none does."""
    for folder in folders:
        probe = folder / f".probe-{os.getpid()}"
        try:
            try:
                probe.write_bytes(b"x" * _SIZE)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            return f"{folder} cannot be written to: {error.strerror}"
    return ""
