"""An attempt that a crew has taken on, from `begin` until it is reported as ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rota.model.states import Outcome
from rota.model.work import Attempt
from rota.runners.scribe import Printed

WARN, TERM, INSIST, KILL = 0, 1, 2, 3
"""The rungs of the ladder."""


class Place(Protocol):
    """Where an attempt runs: a program's own tree, or a worker."""

    def stop(self, live: Live) -> None:
        """Ask it to end."""
        ...

    def insist(self, live: Live) -> None:
        """It did not yet: ask again, with a signal where that was not the first word."""
        ...

    def kill(self, live: Live) -> None:
        """It did not: kill it, with all that cannot be told apart from it."""
        ...


class Live:
    """What a crew knows about an attempt while it has it."""

    __slots__ = (
        "asked_s",
        "attempt",
        "climb",
        "is_stopping",
        "number",
        "over",
        "place",
        "printed",
        "rungs",
        "started_s",
        "where",
        "why",
    )

    def __init__(self, attempt: Attempt, climb: Callable[[Live, int], None]) -> None:
        self.attempt = attempt
        self.climb = climb
        self.place: Place | None = None
        """Where it runs; none while it waits."""
        self.number = 0
        """Its number in the worker that has it."""
        self.where = -1
        self.started_s: float | None = None
        self.why: Outcome | None = None
        """Why it was asked to end: it is then reported like that."""
        self.asked_s = 0.0
        self.is_stopping = False
        """Whether it is known to have heard that."""
        self.rungs = 0
        """How many timers wait for it."""
        self.printed: Printed | None = None
        self.over = False

    def ring(self, what: int) -> None:
        self.rungs -= 1
        self.climb(self, what)
