"""See that alarms are told.

    every node:        what it noticed itself ──> the store
    one at a time:     look out for levels ──> ask the rules whom each alarm concerns ──> send what is due

Nothing here is in the way of anything else: what a node notices is kept in memory until the store takes it, and
channels run in tasks of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from rota.core.alarm import chosen, due, late_after_s
from rota.errors import StoreUnavailable
from rota.loops.duty import Duty
from rota.loops.live import Live
from rota.loops.lookout import Clerk, Lookout
from rota.loops.loop import Loop
from rota.loops.moment import Moment
from rota.loops.notebook import Notebook
from rota.loops.post import Post
from rota.model.alarm import AlarmRule
from rota.ports import Clock, Store

LOOK_S = 2.0
IDLE_S = 5.0
"""How often a node looks whether there are rules."""
CLOCK_S = 60.0
"""How long a reading of the store's clock is carried on."""
SORT_MAX = 200


class Alarmer(Loop):
    """This node's part in alarms."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        node: str,
        *,
        duty: Duty,
        lookout: Lookout,
        post: Post,
        live: Live | None = None,
    ) -> None:
        super().__init__(clock)
        self._store = store
        self._duty = duty
        self._lookout = lookout
        self._clerk = Clerk(store)
        self._post = post
        self._live = live
        self._coordinator_away: bool | None = None
        self.notebook = Notebook(clock, node, live)
        """Whoever notices something tells it there."""
        self.is_coordinator_lost: Callable[[], bool] = lambda: False
        self.notebook.on_note = post.on_news = self.wake

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await self._post.close()
            with suppress(StoreUnavailable):
                await self._post.settle()

    async def once(self) -> float:
        rules = await self._rules()
        await self._write(rules)
        await self._post.settle()
        if not rules or not await self._duty.is_mine():
            return LOOK_S if rules else IDLE_S
        await self._lookout.look(rules)
        await self._sort(rules)
        return await self._send(rules)

    async def _rules(self) -> Sequence[AlarmRule]:
        """Who wants to know what; and whether the store answers at all."""
        notes = self.notebook
        try:
            if notes.moment is None or notes.moment.elapsed() > CLOCK_S:
                notes.moment = Moment(self._clock, await self._store.now())
            rules = await self._store.alarm_rules()
        except StoreUnavailable:
            notes.store_away()
            raise
        notes.store_back()
        if self._live is not None:
            self._live.late_s = late_after_s(rules)  # starts are looked at only if somebody asks for late ones
        return rules

    async def _write(self, rules: Sequence[AlarmRule]) -> None:
        """Raise what this node has noticed; whatever nobody wants to know is forgotten."""
        lost = self.is_coordinator_lost()
        if lost and not self._coordinator_away:
            self.notebook.coordinator_lost()
        back = not lost and self._coordinator_away is not False  # at first, what an earlier incarnation has begun
        notes = self.notebook.take()
        try:
            if rules:
                await self._store.raise_alarms(notes, [self.notebook.coordinator_key] if back else ())
        except BaseException:
            self.notebook.put_back(notes)
            raise
        self._coordinator_away = lost

    async def _sort(self, rules: Sequence[AlarmRule]) -> None:
        """Ask the rules about new alarms."""
        new = await self._store.alarms(unsorted=True, limit=SORT_MAX)
        if not new:
            return
        told = await self._clerk.described(new)
        await self._store.raise_alarms([it for it in told if not it.id])
        await self._store.sort_alarms([(it, chosen(rules, it)) for it in told if it.id])
        if len(told) > len(new) or len(new) == SORT_MAX:
            self.wake()

    async def _send(self, rules: Sequence[AlarmRule]) -> float:
        """Send what is due; says for how long there is nothing to do."""
        by_name = {rule.name: rule for rule in rules}
        pending = await self._store.deliveries()
        ready = due(pending.deliveries, by_name, pending.now)
        await self._post.send(ready.parcels, by_name)
        if ready.next_at is None:
            return LOOK_S
        return min(LOOK_S, max((ready.next_at - pending.now).total_seconds(), 0.05))
