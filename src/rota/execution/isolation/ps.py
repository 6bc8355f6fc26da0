"""What `ps` says about processes, where there is no /proc. It takes some milliseconds, so it is asked rarely.

A start is told in seconds since 1970, and noted down by a clock, so two that are nearly the same are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime

from rota.execution.isolation.procfs import ProcessInfo

_ASK = ("/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat=,lstart=")
_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC0"}
_NEARLY_S = 2


def find(pid: int) -> ProcessInfo | None:
    return next((seen for seen in all_processes() if seen.pid == pid), None)


def all_processes() -> Iterator[ProcessInfo]:
    """Every process but `ps` itself; nobody if it cannot be asked, and none of whom it does not speak as expected."""
    own, text = _output()
    for line in text.splitlines():
        with suppress(ValueError):
            pid, parent, group, state, started = line.split(None, 4)
            if int(pid) != own:
                yield ProcessInfo(int(pid), state[0], int(parent), int(group), _seconds(started), 1)


def same_start(one: int, other: int) -> bool:
    """True if two start times of one pid belong to one process."""
    return abs(one - other) <= _NEARLY_S


def _seconds(started: str) -> int:
    return int(datetime.strptime(started.strip(), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp())


def _output() -> tuple[int, str]:
    """Its number, and what it prints. Without `subprocess`, which a supervisor would have to load for it."""
    near, far = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, far, 1), (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)]
        child = os.posix_spawn(_ASK[0], _ASK, _ENVIRONMENT, file_actions=actions)
    except OSError:
        os.close(near)
        return -1, ""
    finally:
        os.close(far)
    with os.fdopen(near, "rb") as printed:
        text = printed.read()
    with suppress(ChildProcessError):  # it was reaped by somebody who reaps all children
        os.waitpid(child, 0)
    return child, text.decode(errors="replace")
