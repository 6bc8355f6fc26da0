"""Where a process runs, and whether one that ran on this very host is gone."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

from rota.execution.isolation import processes
from rota.execution.isolation.records import Process
from rota.model.node import Place


def here() -> Place:
    seen = processes.this_process()
    return Place(
        host=socket.gethostname(),
        boot_id=_known(processes.boot_id),
        pid_namespace=_known(processes.pid_namespace),
        pid=os.getpid(),
        pid_started=seen.ticks if seen else 0,
    )


def process_is_gone(place: Place, mine: Place) -> bool:
    """True if we see that the process at that place is gone.

    A process that we cannot see, because it is of another boot or PID namespace, counts as alive.
    """
    if not mine.boot_id or (place.boot_id, place.pid_namespace) != (mine.boot_id, mine.pid_namespace):
        return False
    return not Process(pid=place.pid, ticks=place.pid_started).is_alive


def _known(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except OSError:
        return ""
