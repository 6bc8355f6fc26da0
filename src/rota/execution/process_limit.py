"""Bounds how many processes a runner has. A pool that finds no place free waits until another gives one back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class ProcessStarter(Protocol):
    """A pool of workers, or the programs: each starts processes."""

    def pump(self) -> None:
        """Start what waits; a place may be free now."""


class ProcessLimit:
    """At most `most` processes. Those that wait for a place get one in the order in which they came."""

    def __init__(self, most: int, evict: Callable[[], bool]) -> None:
        self._most = most
        self.used = 0
        self._evict = evict
        """Retires an idle worker; returns false if there is none."""
        self._retiring = 0
        """How many idle workers were retired to make room for those that wait."""
        self._waiting: dict[ProcessStarter, None] = {}

    def take(self, starter: ProcessStarter) -> bool:
        """Take a place. If there is none, retire an idle worker, let `starter` wait and return false."""
        if self.used < self._most:
            self.used += 1
            return True
        if starter in self._waiting:
            return False
        self._waiting[starter] = None
        if self._retiring < len(self._waiting) and self._evict():
            self._retiring += 1
        return False

    def should_free_one(self) -> bool:
        """True if a worker that has just become idle should retire, because another pool waits for its place."""
        if self._retiring >= len(self._waiting):
            return False
        self._retiring += 1
        return True

    def give_back(self) -> None:
        """A process is gone: its place is free for the next that waits."""
        self.used -= 1
        self._retiring = max(0, self._retiring - 1)
        for starter in list(self._waiting):
            if self.used >= self._most:
                break
            del self._waiting[starter]
            starter.pump()
