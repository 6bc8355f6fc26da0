"""An attempt that a runner has taken on, from `begin` until it is reported as ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rota.execution.log_writer import AttemptOutput
from rota.model.states import Outcome
from rota.model.work import Attempt

WARN, TIMEOUT, TERMINATE, KILL = 0, 1, 2, 3
"""The steps that timers take an attempt through: warn, ask it to end, send SIGTERM, kill."""


class AttemptProcess(Protocol):
    """What executes an attempt: a program of its own, or a worker process."""

    def stop(self, live: LiveAttempt) -> None:
        """Ask the attempt to end."""
        ...

    def terminate(self, live: LiveAttempt) -> None:
        """Half of the grace has passed: send SIGTERM, unless `stop` already did."""
        ...

    def kill(self, live: LiveAttempt) -> None:
        """The grace is over: kill the attempt, with every attempt that shares its process."""
        ...


class LiveAttempt:
    """What a runner knows about an attempt while it has it."""

    __slots__ = (
        "asked_s",
        "attempt",
        "is_stopping",
        "number",
        "on_step",
        "output",
        "over",
        "process",
        "started_s",
        "stop_reason",
        "timers_set",
        "where",
    )

    def __init__(self, attempt: Attempt, on_step: Callable[[LiveAttempt, int], None]) -> None:
        self.attempt = attempt
        self.on_step = on_step
        self.process: AttemptProcess | None = None
        """What executes it; none while it waits."""
        self.number = 0
        """Its number in the worker process that executes it."""
        self.where = -1
        """Where its function runs (`worker_protocol.MAIN`, ...); -1 until the worker has said so."""
        self.started_s: float | None = None
        self.stop_reason: Outcome | None = None
        """Why it was asked to end, which becomes its outcome; none while nobody asked."""
        self.asked_s = 0.0
        self.is_stopping = False
        """True once its worker has raised the exception that asks the function to end."""
        self.timers_set = 0
        """How many of its timers are set."""
        self.output: AttemptOutput | None = None
        self.over = False

    def on_timer(self, step: int) -> None:
        self.timers_set -= 1
        self.on_step(self, step)
