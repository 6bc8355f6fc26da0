"""Evict: end connections of the cluster that hang in the middle of a message and hold locks.

A node that is frozen or cut off between two messages of a transaction is ended by the server's own timeouts. Between
the parts of one message no timeout of PostgreSQL counts, and its locks would last for as long as it hangs.
"""

from __future__ import annotations

from rota.logger import log
from rota.loops.loop import Loop
from rota.ports import Clock, Store

LOOK_S = 1.0
NEVER_S = 3600.0


class Evictor(Loop):
    """Ends connections that hang. Every node looks: it is one short query, and whoever comes second finds nothing."""

    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(clock)
        self._store = store

    async def once(self) -> float:
        ended = await self._store.evict()
        if ended is None:
            return NEVER_S
        if ended:
            log.warning("connection.evicted", count=ended)
        return LOOK_S * (0.9 + 0.2 * self.clock.chance())
