"""All instants that a crew waits for: one heap, one timer of the event loop.

Most things end long before their instant. What is over is skipped when its turn comes, and when such entries are the
larger part the heap is made anew, so that it stays as large as what is really waited for.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Protocol

SPARE = 1000


class Waiter(Protocol):
    """Something that waits for an instant."""

    over: bool

    def ring(self, what: int) -> None:
        """The instant has come."""
        ...


class Timers:
    """Rings waiters at their instants (of the loop's clock), unless they are over by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Waiter, int]] = []
        self._count = 0
        self._dropped = 0
        self._handle: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: float, waiter: Waiter, what: int = 0) -> None:
        self._count += 1
        heap = self._heap
        heapq.heappush(heap, (when, self._count, waiter, what))
        if heap[0][1] == self._count:
            self._set()

    def dropped(self, count: int = 1) -> None:
        """So many entries wait for something that is over."""
        self._dropped += count
        if self._dropped > SPARE and self._dropped * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if not entry[2].over]
            heapq.heapify(self._heap)
            self._dropped = 0

    def close(self) -> None:
        self._heap.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _set(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_at(self._heap[0][0], self._ring)

    def _ring(self) -> None:
        self._handle = None
        now = self._loop.time()
        try:
            while self._heap and self._heap[0][0] <= now:
                _, _, waiter, what = heapq.heappop(self._heap)
                if waiter.over:
                    self._dropped = max(0, self._dropped - 1)
                else:
                    waiter.ring(what)
        finally:  # whatever one of them raises, the others must ring too
            if self._heap:
                self._set()
