"""All timers of a runner: one heap, one timer of the event loop.

Most waiters are over long before their instant. Their entries are skipped when the instant comes; when they are more
than half of the heap, the heap is rebuilt without them, so that its size follows what is really waited for.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import Protocol

SPARE = 1000
"""How many entries of waiters that are over stay before the heap is rebuilt."""


class Waiter(Protocol):
    """Has itself called at an instant. Once `over` is true, it is not called any more."""

    over: bool

    def on_timer(self, step: int) -> None:
        """The instant has come."""


class Timers:
    """Calls waiters at their instants (of the loop's clock), unless they are over by then."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._heap: list[tuple[float, int, Waiter, int]] = []
        self._count = 0
        self._dropped = 0
        self._handle: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: float, waiter: Waiter, step: int = 0) -> None:
        self._count += 1
        heap = self._heap
        heapq.heappush(heap, (when, self._count, waiter, step))
        if heap[0][1] == self._count:
            self._set()

    def dropped(self, count: int = 1) -> None:
        """So many entries belong to a waiter that is over now."""
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
        self._handle = self._loop.call_at(self._heap[0][0], self._fire)

    def _fire(self) -> None:
        self._handle = None
        now = self._loop.time()
        try:
            while self._heap and self._heap[0][0] <= now:
                _, _, waiter, step = heapq.heappop(self._heap)
                if waiter.over:
                    self._dropped = max(0, self._dropped - 1)
                else:
                    waiter.on_timer(step)
        finally:  # whatever one of them raises, the others must on_timer too
            if self._heap:
                self._set()
