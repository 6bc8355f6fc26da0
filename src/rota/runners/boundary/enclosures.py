"""The four ways to hold a process tree together: how a process gets in, and how everybody inside is killed.

`clear` kills all but the supervisor and returns when nobody is left, with the number of those who were still alive.
It runs in the supervisor and reaps through the `reap` that it is given, which says how many ended by SIGKILL.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from rota import system
from rota.runners.boundary import cgroup, kernel, processes, procfs
from rota.runners.boundary.waiting import pause

Reap = Callable[[], int]
"""Collects whoever has ended; the number of those who were killed."""
_PAUSE_S = 0.002


class Enclosure:
    """A process group: whoever leaves it is lost. Best effort, where nothing else can be had."""

    def __init__(self, group: str | None = None) -> None:
        self._group = group

    def close_behind(self) -> None:
        """What the supervisor does before it starts anybody."""

    def bind(self) -> None:
        """What the program does before it executes: die with the supervisor. Its own children do not."""
        supervisor = os.getppid()
        kernel.die_with_parent()
        if os.getppid() != supervisor:
            os._exit(1)

    def own_number(self) -> int:
        """This process's pid as the agent knows it."""
        return os.getpid()

    def clear(self, main: int, reap: Reap) -> int:
        killed: set[int] = set()
        while _signal_group(main, 0):
            killed |= {seen.pid for seen in procfs.everybody() if seen.group == main and seen.lives}
            _signal_group(main, signal.SIGKILL)
            reap()
            pause(_PAUSE_S)
        reap()
        return len(killed)


class PlainGroup(Enclosure):
    """The same without Linux: nobody dies with the supervisor by itself, and to count processes takes a run of `ps`."""

    def clear(self, main: int, reap: Reap) -> int:
        left = 0 if _is_there(main) or not _signal_group(main, 0) else _count(main)
        while _signal_group(main, signal.SIGKILL):
            reap()
            pause(_PAUSE_S)
        reap()
        return left


class Guardian(Enclosure):
    """Every orphan of the tree becomes a child of the supervisor: no child left means nobody left.

    So killing children until there is none reaches all, whatever they fork meanwhile. It must be quick: a process that
    does nothing but fork and end is never long where it was seen.
    """

    def close_behind(self) -> None:
        kernel.adopt_orphans()

    def clear(self, main: int, reap: Reap) -> int:
        killed: set[int] = set()
        reap()
        while _has_children():
            killed |= _kill_children()
            if not reap():
                pause(_PAUSE_S / 10)
        return len(killed)


class ControlGroup(Enclosure):
    """The kernel keeps the list, whatever user they are and wherever they went, and kills them all at once."""

    def close_behind(self) -> None:
        kernel.adopt_orphans()

    def clear(self, main: int, reap: Reap) -> int:
        """Who left the group, as its owner may, is still below the supervisor."""
        assert self._group is not None
        reap()
        killed: set[int] = set()
        while cgroup.populated(self._group) or _has_children():
            killed.update(cgroup.kill(self._group))
            killed |= _kill_children()
            reap()
            pause(_PAUSE_S)
        return len(killed)


class Namespace(Enclosure):
    """The supervisor is init of a PID namespace: when it ends, however, the kernel kills everybody in it."""

    def close_behind(self) -> None:
        """A /proc of its own, where that is allowed; without it the tree sees the numbers of the host."""
        self._agents_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):
            kernel.own_mounts()
            kernel.mount_proc()

    def bind(self) -> None:
        """Nothing: the kernel does it."""

    def own_number(self) -> int:
        return int(os.readlink("self", dir_fd=self._agents_proc))

    def clear(self, main: int, reap: Reap) -> int:
        killed = 0
        while _has_children():
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            killed += reap()
            pause(_PAUSE_S)
        return killed


def enclosure(kind: str, group: str | None) -> Enclosure:
    kinds = {"namespace": Namespace, "cgroup": ControlGroup, "guardian": Guardian}
    return kinds.get(kind, Enclosure if system.IS_LINUX else PlainGroup)(group)


def _signal_group(group: int, number: int) -> bool:
    """Whether anybody is in the group."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _is_there(child: int) -> bool:
    """Whether a child runs, or was not reaped yet."""
    try:
        os.kill(child, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _count(group: int) -> int:
    return sum(seen.group == group and seen.lives for seen in processes.everybody())


def _kill_children() -> set[int]:
    killed = set()
    for child in procfs.own_children():
        with suppress(ProcessLookupError, PermissionError):
            os.kill(child, signal.SIGKILL)
            killed.add(child)
    return killed


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
