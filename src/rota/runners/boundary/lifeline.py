"""How the agent sees the end of a process, though it may not be its parent: a descriptor that can be read from then on.

On Linux that is a pidfd. Elsewhere it is a pipe whose far end only that process has: the kernel closes it with the
process, however that ends.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress

from rota import system
from rota.runners.boundary import procfs, wire
from rota.runners.boundary.records import Process


class Lifeline:
    """To one process, by its pidfd, which names the process for good."""

    def __init__(self) -> None:
        self.near = -1
        """What can be read when the process has ended; known when that has begun."""
        self.far: tuple[int, ...] = ()
        """What the process must be given, and keep."""

    def let_go(self) -> None:
        """Close what the process has been given, on this side: it must be the only one that has it."""
        for descriptor in self.far:
            os.close(descriptor)
        self.far = ()

    def of_child(self, pid: int) -> None:
        self.near = os.pidfd_open(pid)

    def of_supervisor(self, message: wire.Message, descriptors: list[int]) -> Process:
        """Whom the zygote has forked. If its number there is not its number here, the descriptor tells it; before Linux
        5.14 a process of an ordinary user that is hidden, as the agent is, could not read that."""
        self.near = descriptors[0]
        pid = message["pid"] if "pid" in message else procfs.pid_of(self.near)
        seen = procfs.see(pid)
        is_it = seen is not None and not self.has_ended(0)  # else its number may be another's by now
        return Process(pid=pid, ticks=seen.ticks if seen and is_it else 0)

    def has_ended(self, within_s: float) -> bool:
        waiting = select.poll()  # `select` cannot watch numbers from 1024 on
        waiting.register(self.near, select.POLLIN)
        return bool(waiting.poll(within_s * 1000))

    def signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.near, number)

    def close(self) -> None:
        if self.near >= 0:
            os.close(self.near)
            self.near = -1


class Pipe(Lifeline):
    """To one process, by a pipe."""

    def __init__(self) -> None:
        self._pid = -1
        self.near, far = os.pipe()
        self.far = (far,)

    def of_child(self, pid: int) -> None:
        self._pid = pid

    def of_supervisor(self, message: wire.Message, descriptors: list[int]) -> Process:
        self._pid = message["pid"]
        return Process(pid=self._pid, ticks=message["at"])

    def signal(self, number: int) -> None:
        """Its number is its own as long as its end of the pipe is open."""
        with suppress(ProcessLookupError):
            if not self.has_ended(0):
                os.kill(self._pid, number)


def lifeline() -> Lifeline:
    """A new one, of the kind that can be had here."""
    return Lifeline() if system.IS_LINUX else Pipe()
