"""Raise alarms and see that they are told.

    every node:        what it noticed itself ──> the store
    one at a time:     look out for levels ──> ask the rules whom each alarm concerns ──> send what is due

Nothing here is in the way of anything else: what a node notices is kept in memory, a bounded number, until the store
takes it; channels run in tasks of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from rota.core.alarm import chosen, due, late_after_s
from rota.errors import StoreUnavailable
from rota.loops.duty import Duty
from rota.loops.live import Live
from rota.loops.lookout import Clerk, Lookout
from rota.loops.loop import Loop
from rota.loops.moment import Moment
from rota.loops.post import Post
from rota.model.alarm import CLUSTER, Alarm, AlarmKind, AlarmRule
from rota.model.moment import micros, moment
from rota.model.value import Json
from rota.model.work import Attempt
from rota.ports import Clock, Store

LOOK_S = 2.0
IDLE_S = 5.0
"""How often a node looks whether there are rules."""
LOST_S = 5.0
"""What is out of reach for less is a blip."""
CLOCK_S = 60.0
"""How long a reading of the store's clock is carried on."""
NOTES_MAX = 1000
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
        self._node = node
        self._duty = duty
        self._lookout = lookout
        self._clerk = Clerk(store)
        self._post = post
        self._live = live
        self._notes: deque[Alarm] = deque(maxlen=NOTES_MAX)
        self._moment: Moment | None = None
        self._away_s: float | None = None
        self._coordinator_away: bool | None = None
        self.is_coordinator_lost: Callable[[], bool] = lambda: False
        post.on_news = self.wake

    async def run(self) -> None:
        try:
            await super().run()
        finally:
            await self._post.close()
            with suppress(StoreUnavailable):
                await self._post.settle()

    async def once(self) -> float:
        try:
            if self._moment is None or self._moment.elapsed() > CLOCK_S:
                self._moment = Moment(self._clock, await self._store.now())
            rules = await self._store.alarm_rules()
        except StoreUnavailable:
            self._away_s = self._clock.monotonic() if self._away_s is None else self._away_s
            raise
        self._back()
        self._set_late(rules)
        await self._write(rules)
        await self._post.settle()
        if not rules or not await self._duty.is_mine():
            return LOOK_S if rules else IDLE_S
        await self._lookout.look(rules)
        await self._sort(rules)
        return await self._send(rules)

    def note(self, alarm: Alarm) -> None:
        """Keep an alarm until the store has it."""
        self._notes.append(alarm)
        self.wake()

    def acquired(self, held: int, most: int) -> None:
        """A sweep has won jobs: X is now `held`, M is `most` (A0.2)."""
        if held > most:
            text = f"scheduler {self._node} holds {held} jobs, more than {most}: add machines"
            self._local(AlarmKind.HELD_ABOVE, self._clock.token(), text, {"held": held, "most": most})

    def warned(self, attempt: Attempt, message: str) -> None:
        """An attempt takes longer than it was expected to."""
        self._about(AlarmKind.LONG_RUN, attempt, f"{attempt.item_id}.{attempt.attempt}", {"message": message})

    def began(self, attempt: Attempt, at_s: float) -> None:
        """The first attempt at an item has begun; later than it should?"""
        assert self._live is not None
        if self._moment is None or attempt.start_by_at is None or self._live.late_s is None:
            return
        late_s = (self._moment.at_us(at_s) - micros(attempt.start_by_at)) / 1_000_000
        if late_s > self._live.late_s:
            self._about(AlarmKind.LATE_START, attempt, str(attempt.item_id), {"late_s": round(late_s, 1)})

    def _about(self, kind: AlarmKind, attempt: Attempt, subject: str, data: dict[str, Json]) -> None:
        self.note(
            Alarm(
                key=f"{kind}:{subject}",
                kind=kind,
                at=self._now(),
                job_id=attempt.job_id or None,
                run_id=attempt.run_id,
                data={**data, "node": self._node},
            )
        )

    def _local(self, kind: AlarmKind, subject: str, text: str, data: dict[str, Json], *, is_open: bool = False) -> None:
        key = f"{kind}:{self._node}{subject and ':'}{subject}"
        said: dict[str, Json] = {**data, "node": self._node}
        self.note(Alarm(key=key, kind=kind, at=self._now(), scope=CLUSTER, text=text, is_open=is_open, data=said))

    def _now(self) -> datetime:
        """The store's clock, as far as this node knows."""
        return self._clock.wall() if self._moment is None else self._moment.now()

    def _back(self) -> None:
        """The store answers. If it was away for long, that is told now, with its end."""
        away_s, self._away_s = self._away_s, None
        if away_s is None or self._moment is None or self._clock.monotonic() - away_s < LOST_S:
            return
        text = f"node {self._node} had no answer from the store"
        key, at = f"{AlarmKind.STORE_LOST}:{self._node}:{self._clock.token()}", moment(self._moment.at_us(away_s))
        lost = Alarm(key=key, kind=AlarmKind.STORE_LOST, at=at, scope=CLUSTER, text=text, data={"node": self._node})
        self._notes.extend((lost, lost.recovery(self._moment.now())))

    def _set_late(self, rules: Sequence[AlarmRule]) -> None:
        """Starts are looked at only if a rule asks for late ones."""
        if self._live is not None:
            self._live.late_s = late_after_s(rules)

    async def _write(self, rules: Sequence[AlarmRule]) -> None:
        """Raise what this node has noticed; whatever nobody wants to know is forgotten."""
        lost = self.is_coordinator_lost()
        ended = self._coordinator_level(lost)
        notes, self._notes = self._notes, deque(maxlen=NOTES_MAX)
        try:
            if rules:
                await self._store.raise_alarms(tuple(notes), ended)
        except BaseException:
            self._notes.extendleft(reversed(notes))
            raise
        self._coordinator_away = lost

    def _coordinator_level(self, lost: bool) -> list[str]:
        """Note that the coordinator is lost; says what has ended, also what an earlier incarnation has begun."""
        if lost == self._coordinator_away:
            return []
        if not lost:
            return [f"{AlarmKind.COORDINATOR_LOST}:{self._node}"]
        text = f"node {self._node} has lost the coordinator"
        self._local(AlarmKind.COORDINATOR_LOST, "", text, {}, is_open=True)
        return []

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
