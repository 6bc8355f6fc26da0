"""Report starts to the agent while user code blocks the event loop.

The time of an attempt counts from its start, so a coroutine that blocks the loop must not hide that it has started.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

PATIENCE_S = 0.02
"""How long the loop may take to report a start itself before this thread does."""


class StartReporter:
    """A thread that reports what the loop did not report in time. It sleeps while everything is reported."""

    def __init__(self, has_unreported: Callable[[], bool], report: Callable[[], None]) -> None:
        self._has_unreported = has_unreported
        self._report = report
        self._wake = threading.Event()
        self._pause = threading.Event()
        self._is_idle = True
        threading.Thread(target=self._run, name="rota-starts", daemon=True).start()

    def watch(self) -> None:
        """Wake the thread: a start waits to be reported."""
        if self._is_idle:
            self._is_idle = False
            self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            self._watch()

    def _watch(self) -> None:
        """Report what is still unreported after each pause; return when nothing is."""
        while not self._pause.wait(PATIENCE_S):
            if not self._has_unreported():
                self._is_idle = True
                # An item may have started after the check and before the flag was set.
                if not self._has_unreported():
                    return
                self._is_idle = False
            self._report()
