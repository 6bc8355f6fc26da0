"""The dead-man's switch: a deadline that the agent moves, and that every supervisor reads for itself.

Eight bytes of shared memory hold nanoseconds of a clock that also counts while the machine is suspended. An
agent that is stopped, dead or cut off moves nothing, and nobody needs to ask it.
"""

from __future__ import annotations

import mmap
import os
import time

from rota import system

TICK_S = 0.2
"""How often a supervisor looks."""
_SIZE = 8


def boottime_ns() -> int:
    return time.clock_gettime_ns(system.CLOCK)


class DeadMansSwitch:
    """The deadline, seen by the agent, which may write, or by a supervisor, which only reads."""

    def __init__(self, descriptor: int, *, writable: bool) -> None:
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        # One aligned machine word: a reader sees the old deadline or the new one, never a mixture.
        self._deadline = memoryview(mmap.mmap(descriptor, _SIZE, access=access)).cast("q")

    @property
    def deadline_ns(self) -> int:
        return self._deadline[0]

    def renew(self, deadline_ns: int) -> None:
        self._deadline[0] = deadline_ns

    def left_s(self, hold_ns: int = 0) -> float:
        """Seconds until the deadline, moved by `hold_ns`; nothing or less when it has passed."""
        return (self.deadline_ns + hold_ns - boottime_ns()) / 1e9


def shared_deadline() -> int:
    """The descriptor of a new deadline, which has passed until somebody renews it."""
    descriptor = system.anonymous_file("switch")
    os.ftruncate(descriptor, _SIZE)
    return descriptor
