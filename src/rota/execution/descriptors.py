"""Raises the limit of open file descriptors of a node to what it needs. Programs get the limit that the node was given.

Linux kills nobody for want of a descriptor: what cannot be opened fails, wherever that happens to be. So a node that
would have too few does not start, and what strangers can make it open is bounded (`rest/door.py`).
"""

from __future__ import annotations

import resource
from contextlib import suppress

from rota import system
from rota.errors import InvalidInput

RAISED_MAX = 65_536
"""Not further: where the hard limit is a billion, what closes all descriptors one by one would never end."""
OPEN_MAX = 10_240
"""What macOS allows at most, whatever its hard limit says."""
OWN = 128
"""For the store, the coordinator, requests to the other nodes, files, and what is open for a moment only."""
EACH = 4
"""For each process tree: its link, its output, its channel, its log."""

_GIVEN_SOFT = resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def needed(seats: int, door: int) -> int:
    """How many descriptors a node needs that executes so many items, with so many for its port."""
    return OWN + door + EACH * seats


def trees_max(limit: int, door: int) -> int:
    """How many process trees so many descriptors are enough for."""
    return (limit - OWN - door) // EACH


def raise_limit(seats: int, door: int) -> int:
    """Raise this process's limit as far as it may be; says what it is. Raises InvalidInput if that is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = needed(seats, door)
    most = max(RAISED_MAX, need)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    for each in (wanted, OPEN_MAX, need):
        if soft != resource.RLIM_INFINITY and soft < each <= wanted:
            with suppress(OSError, ValueError):  # a system may have a lower limit of its own
                resource.setrlimit(resource.RLIMIT_NOFILE, (each, hard))
            soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    limit = most if soft == resource.RLIM_INFINITY else soft
    if limit < need:
        reason = f"{seats} seats need {need} open files, and the limit is {limit} (ulimit -n, LimitNOFILE=)"
        raise InvalidInput.of("executor.seats", f"{reason}: raise the limit to {need} or more, or have fewer seats")
    return limit


def given() -> tuple[int, int]:
    """The limit that this process was given: a program may be unfit for higher numbers (`select`)."""
    return _GIVEN_SOFT, resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def hand_on(pid: int) -> None:
    """Give it to a child. Elsewhere than on Linux each program sets it for itself."""
    if system.IS_LINUX:
        with suppress(OSError):
            resource.prlimit(pid, resource.RLIMIT_NOFILE, given())
