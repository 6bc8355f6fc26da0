"""A duty: periodic work that one node of the cluster does at a time.

The claim only says who should try; what must not be done twice is fenced in the store. So a node that cannot ask, for
want of a session or of an answer, does it too: rather twice tried than never.
"""

from __future__ import annotations

from rota.errors import CoordinatorError
from rota.ports import Clock, Coordinator

ASK_S = 5.0


class Duty:
    """One duty, as one node sees it."""

    def __init__(self, coordinator: Coordinator | None, clock: Clock, name: str, node: str) -> None:
        self._coordinator = coordinator
        self._clock = clock
        self._key = f"duty/{name}"
        self._node = node
        self._asked: tuple[float, str | None, bool] | None = None

    async def is_mine(self) -> bool:
        """Whether this node should do it; asked now and then, for the claim lasts as long as the session."""
        if self._coordinator is None:
            return True
        session, now_s = self._coordinator.session, self._clock.monotonic()
        if self._asked is not None and self._asked[1] == session and now_s < self._asked[0] + ASK_S:
            return self._asked[2]
        try:
            mine = self._key in await self._coordinator.claim({self._key: self._node})
        except CoordinatorError:
            mine = True
        self._asked = now_s, session, mine
        return mine
