"""How many processes a crew may have. Who finds no room waits for a place that another gives back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Hungry(Protocol):
    """Somebody who wants to start processes."""

    def pump(self) -> None:
        """There may be room now."""
        ...


class Room:
    """Places for processes; those who wait get them in turn."""

    def __init__(self, most: int, evict: Callable[[], bool]) -> None:
        self._most = most
        self._used = 0
        self._evict = evict
        self._evicted = 0
        self._hungry: dict[Hungry, None] = {}

    @property
    def used(self) -> int:
        return self._used

    def take(self, who: Hungry) -> bool:
        """Take a place, or wait for one; an idle worker of another kind has to go then."""
        if self._used < self._most:
            self._used += 1
            return True
        if who in self._hungry:
            return False
        self._hungry[who] = None
        if self._evicted < len(self._hungry) and self._evict():
            self._evicted += 1
        return False

    def claims(self) -> bool:
        """Whether somebody waits who should get the place of a worker that has just become idle."""
        if self._evicted >= len(self._hungry):
            return False
        self._evicted += 1
        return True

    def give_back(self) -> None:
        self._used -= 1
        self._evicted = max(0, self._evicted - 1)
        for who in list(self._hungry):
            if self._used >= self._most:
                break
            del self._hungry[who]
            who.pump()
