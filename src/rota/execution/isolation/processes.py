"""What can be seen of processes: by /proc on Linux, by `ps` elsewhere."""

from __future__ import annotations

import os
from functools import cache

from rota import system
from rota.execution.isolation.procfs import ProcessInfo

if system.IS_LINUX:
    from rota.execution.isolation.procfs import all_processes, find, same_start
else:
    from rota.execution.isolation.ps import all_processes, find, same_start

__all__ = ["all_processes", "boot_id", "find", "is_hidden", "is_there", "pid_namespace", "same_start", "this_process"]


def is_hidden(pid: int) -> bool:
    """True if there is such a process, but we cannot see it: /proc mounted with hidepid does not show it."""
    # A number below 1 is of a process that was gone before its number was known.
    return pid > 0 and is_there(pid) and find(pid) is None


def is_there(pid: int) -> bool:
    """True if a process of that number runs, or was not reaped yet."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def this_process() -> ProcessInfo | None:
    return _as_first_seen(os.getpid())


@cache
def _as_first_seen(pid: int) -> ProcessInfo | None:
    return find(pid)


def boot_id() -> str:
    """A name for the time since the machine started. An empty text where start times are calendar times, which differ
    between boots anyway."""
    return _read("/proc/sys/kernel/random/boot_id") if system.IS_LINUX else ""


def pid_namespace() -> str:
    """The PID namespace of this process; an empty text where the system has none."""
    return os.readlink("/proc/self/ns/pid") if system.IS_LINUX else ""  # noqa: PTH115 - it is not a path


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123
        return file.read().strip()
