"""Tell people of alarms.

    every node:        what it noticed itself ──> the store
    one at a time:     watch the levels ──> ask the rules whom each alarm concerns ──> send what is due

Nothing here is in the way of anything else: what a node notices is kept in memory until the store takes it, and
channels run in tasks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from rota.alarms.delivery import Deliverer
from rota.alarms.describer import AlarmDescriber
from rota.alarms.levels import LevelWatcher
from rota.alarms.pending import PendingAlarms
from rota.alarms.rules import chosen, due, late_after_s
from rota.errors import StoreUnavailable
from rota.loops.duty import Duty
from rota.loops.loop import Loop
from rota.loops.outage import Outage
from rota.loops.store_time import StoreTime
from rota.model.alarm import AlarmRule
from rota.ports import Clock, Courier, Store
from rota.transactions.alarms import raise_alarms, sort_alarms

LOOK_S = 2.0
IDLE_S = 5.0
"""How often a node looks whether there are rules."""
CLOCK_S = 60.0
"""How long a reading of the store's clock is carried on."""
SORT_MAX = 200


class Alarmer(Loop):
    """Writes what this node noticed; if it is its duty, decides whom each alarm concerns, and sends what is due."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        node: str,
        *,
        duty: Duty,
        levels: LevelWatcher,
        courier: Courier,
        is_coordinator_lost: Callable[[], bool] = lambda: False,
    ) -> None:
        super().__init__(clock)
        self._store = store
        self._duty = duty
        self._levels = levels
        self._describer = AlarmDescriber(store)
        self._deliverer = Deliverer(store, courier, wake=self.wake)
        self._is_coordinator_lost = is_coordinator_lost
        self._coordinator_away: bool | None = None
        self.pending = PendingAlarms(clock, node, wake=self.wake)
        """Whoever notices something tells it there."""

    async def run(self, outages: Sequence[Outage] = ()) -> None:
        try:
            await super().run(outages)
        finally:
            await self._deliverer.close()
            with suppress(StoreUnavailable):
                await self._deliverer.settle()

    async def once(self) -> float:
        rules = await self._rules()
        await self._write(rules)
        await self._deliverer.settle()
        if not rules or not await self._duty.is_mine():
            return LOOK_S if rules else IDLE_S
        await self._levels.look(rules)
        await self._sort(rules)
        return await self._send(rules)

    async def _rules(self) -> Sequence[AlarmRule]:
        """Who wants to know what; and whether the store answers at all."""
        notes = self.pending
        try:
            if notes.moment is None or notes.moment.elapsed() > CLOCK_S:
                notes.moment = StoreTime(self._clock, await self._store.now())
            rules = await self._store.alarm_rules()
        except StoreUnavailable:
            notes.store_away()
            raise
        notes.store_back()
        notes.late_s = late_after_s(rules)  # starts are looked at only if somebody asks for late ones
        return rules

    async def _write(self, rules: Sequence[AlarmRule]) -> None:
        """Raise what this node has noticed; whatever nobody wants to know is forgotten."""
        lost = self._is_coordinator_lost()
        if lost and not self._coordinator_away:
            self.pending.coordinator_lost()
        back = not lost and self._coordinator_away is not False  # at first, what an earlier incarnation has begun
        notes = self.pending.take()
        try:
            if rules and (notes or back):
                await self._store.transact(raise_alarms, notes, [self.pending.coordinator_key] if back else ())
        except BaseException:
            self.pending.put_back(notes)
            raise
        self._coordinator_away = lost

    async def _sort(self, rules: Sequence[AlarmRule]) -> None:
        """Ask the rules about new alarms."""
        new = await self._store.alarms(unsorted=True, limit=SORT_MAX)
        if not new:
            return
        told = await self._describer.described(new)
        if found := [it for it in told if not it.id]:
            await self._store.transact(raise_alarms, found)
        if known := [(it, chosen(rules, it)) for it in told if it.id]:
            await self._store.transact(sort_alarms, known)
        if len(told) > len(new) or len(new) == SORT_MAX:
            self.wake()

    async def _send(self, rules: Sequence[AlarmRule]) -> float:
        """Send what is due; says for how long there is nothing to do."""
        by_name = {rule.name: rule for rule in rules}
        pending = await self._store.deliveries()
        ready = due(pending.deliveries, by_name, pending.now)
        await self._deliverer.send(ready.parcels, by_name)
        if ready.next_at is None:
            return LOOK_S
        return min(LOOK_S, max((ready.next_at - pending.now).total_seconds(), 0.05))
