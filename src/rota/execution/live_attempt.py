"""An attempt that a runner has taken on, from `begin` until it is reported as ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(slots=True, eq=False, repr=False)
class LiveAttempt:
    """What a runner knows about an attempt while it has it."""

    attempt: Attempt
    on_step: Callable[[LiveAttempt, int], None]
    process: AttemptProcess | None = None
    """What executes it; none while it waits."""
    number: int = 0
    """Its number in the worker process that executes it."""
    where: int = -1
    """Where its function runs (`worker_protocol.MAIN`, ...); -1 until the worker has said so."""
    started_s: float | None = None
    stop_reason: Outcome | None = None
    """Why it was asked to end, which becomes its outcome; none while nobody asked."""
    asked_s: float = 0.0
    is_stopping: bool = False
    """True once its worker has raised the exception that asks the function to end."""
    timers_set: int = 0
    """How many of its timers are set."""
    output: AttemptOutput | None = None
    over: bool = False

    def on_timer(self, step: int) -> None:
        self.timers_set -= 1
        self.on_step(self, step)
