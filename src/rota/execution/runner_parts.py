"""What the worker processes and programs of a runner share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from rota.execution.attempt_outcome import node_unable, not_started
from rota.execution.attempts import AttemptTable
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.log_writer import LogWriter
from rota.execution.timers import Timers
from rota.execution.work_folders import WorkFolders
from rota.model.states import Outcome
from rota.model.work import AttemptEnd


@dataclass(slots=True)
class RunnerParts:
    """Starts processes, reports attempts, writes output, sets timers and makes folders."""

    loop: asyncio.AbstractEventLoop
    process_trees: ProcessTrees
    attempts: AttemptTable
    log_writer: LogWriter
    timers: Timers
    work_folders: WorkFolders
    unable: Callable[[], str] = str
    """Returns why nothing can be started at present; an empty text if it can."""

    def not_started(self, error: Exception, label: str) -> AttemptEnd:
        outcome = not_started(error, label)
        if outcome.outcome is Outcome.LOST and (why := self.unable()):
            return node_unable(why)
        return outcome
