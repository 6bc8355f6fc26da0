"""Where a process runs, and whether one that ran on this very host is gone."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from rota.model.node import Place
from rota.runners.boundary import processes


def here() -> Place:
    """Where this process runs."""
    seen = processes.myself()
    return Place(
        host=socket.gethostname(),
        boot_id=_known(processes.boot_id),
        pid_namespace=_known(processes.pid_namespace),
        pid=os.getpid(),
        pid_started=seen.ticks if seen else 0,
    )


def process_is_gone(place: Place, mine: Place) -> bool:
    """Whether the process at that place is seen gone. Only one of the same boot and PID namespace can be seen."""
    if not mine.boot_id or (place.boot_id, place.pid_namespace) != (mine.boot_id, mine.pid_namespace):
        return False
    seen = processes.see(place.pid)
    if seen is None:
        return not processes.is_hidden(place.pid)
    return not seen.lives or not processes.same_start(seen.ticks, place.pid_started)


def _known(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except OSError:
        return ""
