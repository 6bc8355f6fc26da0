"""How the agent sees the end of a process that may not be its child: a descriptor that becomes readable then.

On Linux that is a pidfd. Elsewhere it is a pipe whose far end only that process has: the kernel closes it with the
process, however the process ends.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from rota import system
from rota.execution.isolation import packets, procfs
from rota.execution.isolation.records import Process
from rota.execution.isolation.waiting import is_readable


class ProcessHandle:
    """A handle of one process: its pidfd, which never means another process."""

    def __init__(self) -> None:
        self.near = -1
        """Becomes readable when the process has ended; -1 until the process was started."""
        self.far: tuple[int, ...] = ()
        """The descriptors that the process must inherit and keep open."""

    def close_far(self) -> None:
        """Close our copy of what the process has inherited: no other process may keep it open."""
        for descriptor in self.far:
            os.close(descriptor)
        self.far = ()

    def of_child(self, pid: int) -> None:
        self.near = os.pidfd_open(pid)

    def of_supervisor(self, message: packets.Message, descriptors: list[int]) -> Process:
        """The supervisor that the zygote has forked. If the zygote lives in a PID namespace, its pid comes from the
        pidfd; before Linux 5.14 the agent of an ordinary user, which is not dumpable, could not read that."""
        self.near = descriptors[0]
        pid = message["pid"] if "pid" in message else procfs.pid_of(self.near)
        seen = procfs.find(pid)
        is_it = seen is not None and not self.has_ended(0)  # else its number may be another's by now
        return Process(pid=pid, ticks=seen.ticks if seen and is_it else 0)

    def has_ended(self, within_s: float) -> bool:
        return is_readable(self.near, within_s)

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.near, number)

    def close(self) -> None:
        if self.near >= 0:
            os.close(self.near)
            self.near = -1


class PipeHandle(ProcessHandle):
    """A handle of one process: a pipe that ends with it."""

    def __init__(self) -> None:
        self._pid = -1
        self.near, far = os.pipe()
        self.far = (far,)

    def of_child(self, pid: int) -> None:
        self._pid = pid

    def of_supervisor(self, message: packets.Message, descriptors: list[int]) -> Process:
        self._pid = message["pid"]
        return Process(pid=self._pid, ticks=message["at"])

    def signal(self, number: int) -> None:
        """Signal it by its pid, which is its own as long as its end of the pipe is open."""
        with suppress(ProcessLookupError):
            if not self.has_ended(0):
                os.kill(self._pid, number)


def process_handle() -> ProcessHandle:
    """A new handle, of the kind that this system has."""
    return ProcessHandle() if system.IS_LINUX else PipeHandle()
