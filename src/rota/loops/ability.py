"""Tell the others when this node can execute nothing, and when it can again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from rota.loops.loop import Loop
from rota.ports import Clock, Crew

LOOK_S = 2.0

log = structlog.get_logger()


class Ability(Loop):
    """Looks whether its crew can start anything. While it cannot, the node rests: it is given no items."""

    def __init__(self, clock: Clock, crew: Crew, say: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(clock)
        self._crew = crew
        self._say = say
        self._told = ""

    async def once(self) -> float:
        why = self._crew.unable()
        if why != self._told:
            await self._say(why)
            if why:
                log.error("this node cannot execute anything and rests", reason=why)
            else:
                log.info("this node can execute again")
            self._told = why
        return LOOK_S
