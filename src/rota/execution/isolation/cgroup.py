"""Control groups below the one this process was given: to kill a tree at once, and to bound what it uses.

Groups are made inside our own group and never beside it, so no tree escapes a bound that was set on the agent. Where
the hierarchies are not ours to write, nothing is made and the caller falls back.
"""

from __future__ import annotations

import errno
import os
import signal
from contextlib import suppress
from functools import cache

from rota.execution.isolation.waiting import Deadline

PREFIX = "rota."
_PATIENCE_S = 2.0
_PAUSE_S = 0.002


@cache
def unified() -> str | None:
    """Our own group in the unified hierarchy, if it can kill and we may make groups in it."""
    place = _places().get("")
    return place if place and os.access(place, os.W_OK) and _can_kill(place) else None


@cache
def controlled(controller: str) -> tuple[str, int] | None:
    """Where groups bounded by `controller` can be made, and the version of that hierarchy."""
    places = _places()
    if (place := places.get(controller)) and os.access(place, os.W_OK):
        return place, 1
    for place in _delegated(places.get("")):
        if controller in _words(f"{place}/cgroup.subtree_control"):
            return place, 2
    return None


def make(place: str, name: str) -> str:
    """The group of that name, made if it is not there."""
    path = f"{place}/{PREFIX}{name}"
    with suppress(FileExistsError):
        os.mkdir(path)  # noqa: PTH102 - the supervisors do without pathlib
    return path


def join(path: str) -> None:
    """Put this process, and all that it will start, into the group."""
    write(f"{path}/cgroup.procs", "0")


def members(path: str) -> list[int]:
    """The processes that are alive in the group and in the groups below it."""
    own = [int(word) for word in _words(f"{path}/cgroup.procs")]
    return own + [pid for inner in _inner(path) for pid in members(inner)]


def kill(path: str) -> list[int]:
    """Send SIGKILL to every process in the group and below it, and return their pids. Repeat until it is empty.

    First all at once where the kernel can, then one by one: `cgroup.kill` signals the first thread of each process, and
    a process whose first thread has ended while others run does not get it.
    """
    with suppress(OSError):
        write(f"{path}/cgroup.kill", "1")
    found = members(path)
    for pid in found:
        _kill_member(path, pid)
    return found


def _kill_member(path: str, pid: int) -> None:
    """Kill it by its pidfd, if it is still in the group: a pid alone may be that of another process by now."""
    with suppress(OSError):
        pidfd = os.pidfd_open(pid)
        try:
            if pid in members(path):
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def populated(path: str) -> bool:
    return counter(path, "cgroup.events", "populated") == 1


def remove(path: str, patience_s: float = _PATIENCE_S) -> bool:
    """Remove an empty group and the groups in it; true if it is gone. The kernel keeps the last process in the group
    for a moment after its end, so this tries again for `patience_s`."""
    for inner in _inner(path):
        remove(inner, patience_s)
    deadline = Deadline(patience_s)
    while True:
        try:
            os.rmdir(path)  # noqa: PTH106
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno != errno.EBUSY or not deadline.pause(_PAUSE_S):
                return False
        else:
            return True


def own_places() -> tuple[str, ...]:
    """The groups in which this process can make groups."""
    places = _places()
    return tuple(sorted({*places.values(), *_delegated(places.get(""))}))


def is_below_own(path: str) -> bool:
    """True if the path is our own group or below it; we kill no other group."""
    return os.path.normpath(path) == path and any(f"{path}/".startswith(f"{place}/") for place in own_places())


def groups_of(name: str, places: tuple[str, ...]) -> list[str]:
    """Every group there that was made for a tree of the agent of that name."""
    found = []
    for place in places:
        with suppress(OSError):
            found += [f"{place}/{each}" for each in os.listdir(place) if each.startswith(f"{PREFIX}{name}.")]  # noqa: PTH208
    return found


def counter(path: str, file: str, key: str) -> int:
    """The number after `key` in a file of the group; 0 where there is none."""
    words = _words(f"{path}/{file}")
    return int(words[words.index(key) + 1]) if key in words else 0


def write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _can_kill(place: str) -> bool:
    """A root group has no `cgroup.kill`; there it shows in the groups that it can have."""
    if os.path.exists(f"{place}/cgroup.kill"):  # noqa: PTH110
        return True
    try:
        path = make(place, f"probe.{os.getpid()}")
    except OSError:
        return False
    found = os.path.exists(f"{path}/cgroup.kill")  # noqa: PTH110
    remove(path)
    return found


def _delegated(place: str | None) -> list[str]:
    """Our own group, and the one above when the system handed that over to us as a whole."""
    if place is None:
        return []
    above = os.path.dirname(place)  # noqa: PTH120
    return [place, *([above] if _handed_over(above) else [])]


def _handed_over(place: str) -> bool:
    for name in ("user.delegate", "trusted.delegate"):
        with suppress(OSError):
            if os.getxattr(place, name) == b"1":
                return True
    return False


def _places() -> dict[str, str]:
    """Our own group by controller; the unified hierarchy has the empty name."""
    mounts = _mounts()
    found = {}
    for line in _lines("/proc/self/cgroup"):
        _, names, path = line.split(":", 2)
        for name in names.split(","):
            if name in mounts:
                root, point = mounts[name]
                inner = path[len(root) :] if root != "/" and path.startswith(root) else path
                found[name] = f"{point}/{inner.strip('/')}".rstrip("/")
    return found


def _mounts() -> dict[str, tuple[str, str]]:
    """By controller: the group that is mounted, and where."""
    found: dict[str, tuple[str, str]] = {}
    for line in _lines("/proc/self/mountinfo"):
        head, _, tail = line.partition(" - ")
        root, point = head.split()[3:5]
        if tail.startswith("cgroup2 "):
            found[""] = (root, point)
        elif tail.startswith("cgroup "):
            found |= dict.fromkeys(tail.split()[-1].split(","), (root, point))
    return found


def _inner(path: str) -> list[str]:
    try:
        with os.scandir(path) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _words(path: str) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]


def _lines(path: str) -> list[str]:
    try:
        with open(path) as file:  # noqa: PTH123
            return file.read().splitlines()
    except OSError:
        return []
