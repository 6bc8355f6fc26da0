"""The kinds of boundary: how a process gets inside, and how all processes inside are killed.

`clear` runs in the supervisor. It kills every process of the tree but the supervisor, returns when none is left, and
says how many were still alive. It reaps through the `reap` that it is given.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from rota import system
from rota.execution.isolation import cgroup, kernel, processes, procfs
from rota.execution.isolation.waiting import pause

Reap = Callable[[], int]
"""Collects children that have ended; returns how many of them SIGKILL ended."""
_PAUSE_S = 0.002


class GroupBoundary:
    """A process group. A process that leaves it is not found any more: the last resort."""

    def __init__(self, group: str | None = None) -> None:
        self._group = group

    def prepare(self) -> None:
        """Called by the supervisor before it starts a process."""

    def bind_to_supervisor(self) -> None:
        """Called by the program before it executes: let it die with the supervisor. Its own children do not."""
        supervisor = os.getppid()
        kernel.die_with_parent()
        if os.getppid() != supervisor:
            os._exit(1)

    def pid_for_agent(self) -> int:
        """The pid of this process in the PID namespace of the agent."""
        return os.getpid()

    def clear(self, main: int, reap: Reap) -> int:
        killed: set[int] = set()
        while _signal_group(main, 0):
            killed |= {seen.pid for seen in procfs.all_processes() if seen.group == main and seen.is_alive}
            _signal_group(main, signal.SIGKILL)
            reap()
            pause(_PAUSE_S)
        reap()
        return len(killed)


class PortableGroupBoundary(GroupBoundary):
    """A process group without Linux: no process dies with the supervisor by itself, and counting takes a run of
    `ps`."""

    def clear(self, main: int, reap: Reap) -> int:
        left = 0
        if not processes.is_there(main) and _signal_group(main, 0):
            left = sum(seen.group == main and seen.is_alive for seen in processes.all_processes())
        while _signal_group(main, signal.SIGKILL):
            reap()
            pause(_PAUSE_S)
        reap()
        return left


class GuardianBoundary(GroupBoundary):
    """A subreaper: every orphan of the tree becomes a child of the supervisor.

    So killing children until there is none reaches every process, whatever they fork meanwhile. The loop must be quick:
    a process that does nothing but fork and exit has a new pid a moment after it was listed.
    """

    def prepare(self) -> None:
        kernel.adopt_orphans()

    def clear(self, main: int, reap: Reap) -> int:
        killed: set[int] = set()
        reap()
        while _has_children():
            killed |= _kill_children()
            if not reap():
                pause(_PAUSE_S / 10)
        return len(killed)


class CgroupBoundary(GroupBoundary):
    """A control group: the kernel lists the processes, whatever their user and parent, and kills them at once."""

    def prepare(self) -> None:
        kernel.adopt_orphans()

    def clear(self, main: int, reap: Reap) -> int:
        """Kill the children of the supervisor too: a process may leave the group if its user owns it."""
        assert self._group is not None
        reap()
        killed: set[int] = set()
        while cgroup.populated(self._group) or _has_children():
            killed.update(cgroup.kill(self._group))
            killed |= _kill_children()
            reap()
            pause(_PAUSE_S)
        return len(killed)


class NamespaceBoundary(GroupBoundary):
    """A PID namespace whose init is the supervisor: however init ends, the kernel kills every process in it."""

    def prepare(self) -> None:
        """Mount a /proc of the namespace where that is allowed; without it the tree sees the pids of the host."""
        self._agents_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):
            kernel.own_mounts()
            kernel.mount_proc()

    def bind_to_supervisor(self) -> None:
        """Do nothing: the kernel kills the namespace with its init."""

    def pid_for_agent(self) -> int:
        return int(os.readlink("self", dir_fd=self._agents_proc))

    def clear(self, main: int, reap: Reap) -> int:
        killed = 0
        while _has_children():
            with suppress(ProcessLookupError):
                os.kill(-1, signal.SIGKILL)
            killed += reap()
            pause(_PAUSE_S)
        return killed


def boundary(kind: str, group: str | None) -> GroupBoundary:
    kinds = {"namespace": NamespaceBoundary, "cgroup": CgroupBoundary, "guardian": GuardianBoundary}
    return kinds.get(kind, GroupBoundary if system.IS_LINUX else PortableGroupBoundary)(group)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group; false if it is empty."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


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
