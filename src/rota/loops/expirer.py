"""Expire: end what was to be finished from outside and was not, in time.

Expiry is a duty of one node at a time (S1.11). The others do the same more rarely: whoever has the duty may hang.
"""

from __future__ import annotations

from dataclasses import dataclass

from rota.config import LeaseConfig
from rota.core.advance import Advance
from rota.core.rescue import expired
from rota.loops.duty import Duty
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.ports import Clock, Store
from rota.transactions.finish import finish

LOOK_S = 1.0
OVERDUE_SHARE = 0.5
"""How much of a lease the others wait longer than the one whose duty it is."""


@dataclass(eq=False, repr=False)
class Expirer(Loop):
    """Ends attempts that their clients did not finish in time. If two nodes do so at once, one end counts. With a
    `pace` above 1 it looks so much less often."""

    store: Store
    clock: Clock
    config: LeaseConfig
    loader: Loader
    duty: Duty | None = None
    pace: float = 1.0
    _looked_s: float | None = None

    async def once(self) -> float:
        is_mine = self.duty is None or await self.duty.is_mine()
        patience_s = 0.0 if is_mine else LOOK_S + OVERDUE_SHARE * self.config.lease_s
        now_s = self.clock.monotonic()
        if self._looked_s is None or now_s - self._looked_s >= patience_s:
            self._looked_s = now_s
            await self._expire()
        return self.pace * LOOK_S * (0.9 + 0.2 * self.clock.chance())

    async def _is_quiet(self) -> bool:
        """Whether nothing will be due before the next look, however far away that is; one look tells both."""
        if not self.quiet_s:
            return False
        if not await self.store.queued(expired=True, ahead_s=self.quiet_s * 1.5, limit=1):
            return True
        self.stir()
        return False

    async def _expire(self) -> None:
        if await self._is_quiet():
            return
        late = await self.store.queued(expired=True)
        if not late:
            return
        policies = await self.loader.policies(late)
        readable = [it for it in late if it.item_id in policies]  # what this release cannot read is left to others
        ends = [expired(it, policies[it.item_id].retry, self.clock.chance()) for it in readable]
        told = {end.item_id: policies[end.item_id].notices(end) for end in ends}
        await finish(self.store, ends, rule=Advance(), notices=told)
