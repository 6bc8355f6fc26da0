"""Tell the others when this node can execute nothing, and when it can again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from rota.loops.loop import Loop
from rota.ports import Clock, Runner

LOOK_S = 2.0

log = structlog.get_logger()


class AbilityReporter(Loop):
    """Asks the runner whether it can start anything, and tells the others when that changes. While it cannot, the node
    is given no items."""

    def __init__(self, clock: Clock, runner: Runner, say: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(clock)
        self._runner = runner
        self._say = say
        self._told = ""

    async def once(self) -> float:
        why = self._runner.unable()
        if why != self._told:
            await self._say(why)
            if why:
                log.error("node.unable", reason=why)
            else:
                log.info("node.able")
            self._told = why
        return LOOK_S
