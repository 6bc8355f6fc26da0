"""Report starts to the agent while user code blocks the event loop.

The time of an attempt counts from its start, so a coroutine that blocks the loop must not hide that it has started.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Protocol

from rota.execution.isolation import kernel

PATIENCE_S = 0.02
"""How long the loop may take to report a start itself before this thread does."""


class Countdown(Protocol):
    """Lets a thread sleep until the loop has said nothing for a while."""

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def wait(self) -> None:
        """Return when it has run out."""
        ...


class StartReporter:
    """A thread that reports what the loop did not report in time. It sleeps as long as the loop does."""

    def __init__(self, may_be_late: Callable[[], bool], report: Callable[[], None]) -> None:
        """`may_be_late`: whether starts wait to be reported, or items to be started."""
        self._may_be_late = may_be_late
        self._report = report
        timer = kernel.new_timer()
        self._countdown: Countdown = EventCountdown() if timer is None else TimerCountdown(timer)
        threading.Thread(target=self._run, name="rota-starts", daemon=True).start()

    def watch(self) -> None:
        """The loop is about to start items."""
        self._countdown.start()

    def rest(self) -> None:
        """The loop has reported all starts."""
        self._countdown.stop()

    def _run(self) -> None:
        while True:
            try:
                self._countdown.wait()
            except OSError:  # user code has closed all descriptors
                return
            if self._may_be_late():
                self._report()
                self._countdown.start()


class TimerCountdown:
    """A timer of the kernel: to set it wakes nobody."""

    def __init__(self, timer: int) -> None:
        self._timer = timer

    def start(self) -> None:
        kernel.set_timer(self._timer, PATIENCE_S)

    def stop(self) -> None:
        kernel.set_timer(self._timer, 0.0)

    def wait(self) -> None:
        os.read(self._timer, 8)


class EventCountdown:
    """Where the kernel has no such timers."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._pause = threading.Event()

    def start(self) -> None:
        self._started.set()

    def stop(self) -> None:
        """It runs out, and nothing is late then."""

    def wait(self) -> None:
        self._started.wait()
        self._started.clear()
        self._pause.wait(PATIENCE_S)
