"""Waits for the kernel in small steps, where it offers nothing to wait on."""

from __future__ import annotations

import select
import socket
import time


def wall_s() -> int:
    """The time of the calendar, in which `ps` tells when processes have started."""
    return int(time.time())


def pause(seconds: float) -> None:
    """Pause this thread. By `select`, not `sleep`, which fails under a library that fakes clocks for tests."""
    select.select([], [], [], seconds)


def is_readable(source: int | socket.socket, within_s: float) -> bool:
    """Wait until it can be read, or was closed at the other end; false if that takes longer."""
    waiting = select.poll()  # `select` cannot watch numbers from 1024 on
    waiting.register(source, select.POLLIN)
    return bool(waiting.poll(within_s * 1000))


class Deadline:
    """A point in time, so many seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._until = time.monotonic() + seconds

    def pause(self, step_s: float) -> bool:
        """Wait for a step; return false at once when the time is up."""
        if time.monotonic() >= self._until:
            return False
        pause(step_s)
        return True
