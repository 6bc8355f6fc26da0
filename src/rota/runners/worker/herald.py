"""Tells the agent what has started when the event loop cannot: user code that blocks the loop must not hide its start,
for its time counts from there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_S = 0.02


class Herald:
    """A thread that looks after the loop while something is untold, and rests otherwise."""

    def __init__(self, untold: Callable[[], bool], tell: Callable[[], None]) -> None:
        self._untold = untold
        self._tell = tell
        self._wake = threading.Event()
        self._pause = threading.Event()
        self._rests = True
        threading.Thread(target=self._run, name="rota-herald", daemon=True).start()

    def watch(self) -> None:
        """Something is untold."""
        if self._rests:
            self._rests = False
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self._look()

    def _look(self) -> None:
        """What was untold before a pause and is so after it had its chance."""
        while not self._pause.wait(PATIENCE_S):
            if not self._untold():
                self._rests = True
                # Between the look and the rest something may have started.
                if not self._untold():
                    return
                self._rests = False
            self._tell()
