"""What can be seen of processes: by /proc on Linux, by `ps` elsewhere."""

from __future__ import annotations

import os
from functools import cache

from rota import system
from rota.runners.boundary.procfs import Seen

if system.IS_LINUX:
    from rota.runners.boundary.procfs import everybody, same_start, see
else:
    from rota.runners.boundary.ps import everybody, same_start, see

__all__ = ["boot_id", "everybody", "is_hidden", "myself", "pid_namespace", "same_start", "see"]


def is_hidden(pid: int) -> bool:
    """Whether there is such a process, but it is not shown: /proc mounted with hidepid shows no hidden ones."""
    if pid <= 0:  # of a process that was gone before its number was known
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return see(pid) is None


def myself() -> Seen | None:
    """This process."""
    return _as_first_seen(os.getpid())


@cache
def _as_first_seen(pid: int) -> Seen | None:
    return see(pid)


def boot_id() -> str:
    """A name for the time since the machine started. Nothing where starts of processes are told by the calendar, which
    tells those of two boots apart too."""
    return _read("/proc/sys/kernel/random/boot_id") if system.IS_LINUX else ""


def pid_namespace() -> str:
    """Whose numbers of processes ours are; nothing where they are everybody's."""
    return os.readlink("/proc/self/ns/pid") if system.IS_LINUX else ""  # noqa: PTH115 - it is not a path


def _read(path: str) -> str:
    with open(path) as file:  # noqa: PTH123
        return file.read().strip()
