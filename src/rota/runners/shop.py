"""What all workers and programs of a crew use."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rota.model.states import Outcome
from rota.runners.boundary.yard import Yard
from rota.runners.desk import Desk
from rota.runners.endings import Ending, resting, unstarted
from rota.runners.scribe import Scribe
from rota.runners.timers import Timers
from rota.runners.workplace import Workplaces


class Shop:
    """Where they start processes, tell of attempts, keep output and have themselves woken."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        yard: Yard,
        desk: Desk,
        scribe: Scribe,
        timers: Timers,
        workplaces: Workplaces,
    ) -> None:
        self.loop = loop
        self.yard = yard
        self.desk = desk
        self.scribe = scribe
        self.timers = timers
        self.workplaces = workplaces
        self.unable: Callable[[], str] = lambda: ""
        """Why nothing can be started at present."""

    def unstarted(self, error: Exception, label: str) -> Ending:
        """A tree that could not be started: by its own fault, by a loss, or because nothing can be started here."""
        ending = unstarted(error, label)
        if ending.outcome is Outcome.LOST and (why := self.unable()):
            return resting(why)
        return ending
