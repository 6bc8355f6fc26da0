"""Where a process runs, and whether one that ran on this very host is gone."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from rota.model.node import Place


def here() -> Place:
    """Where this process runs."""
    return Place(
        host=socket.gethostname(),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        pid_namespace=_link("/proc/self/ns/pid"),
        pid=os.getpid(),
        pid_started=_started(os.getpid()) or 0,
    )


def process_is_gone(place: Place, mine: Place) -> bool:
    """Whether the process at that place is seen gone. Only one of the same boot and PID namespace can be seen."""
    same = bool(mine.boot_id) and (place.boot_id, place.pid_namespace) == (mine.boot_id, mine.pid_namespace)
    return same and _started(place.pid) != place.pid_started


def _started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; none if there is none, or only its exit status is left."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - what it points to is no path
    except OSError:
        return ""
