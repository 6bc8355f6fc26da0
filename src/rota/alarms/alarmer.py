"""Tell people of alarms.

    every node:        what it noticed itself ──> the store
    one at a time:     watch the levels ──> ask the rules whom each alarm concerns ──> send what is due

Nothing here is in the way of anything else: what a node notices is kept in memory until the store takes it, and
messages are sent in tasks of their own:

    due ──take (fenced, for a while)──> on its way ──arrived, or not──> kept until written ──> settled

What a node notices is told by others, in passing: the claimer, the attempts in hand, the loop that asks the store. A
bounded number is kept, the newest. A channel that hangs or fails keeps only its own rule waiting. If this process dies
between sending and writing, the message is sent once more when its time is over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from rota.alarms.levels import LevelWatcher
from rota.alarms.rules import Parcel, again_s, chosen, due, late_after_s
from rota.alarms.words import AlarmFacts, described, exhausted, failing
from rota.errors import StoreUnavailable, Undelivered
from rota.logger import log
from rota.loops.duty import Duty
from rota.loops.loop import Loop
from rota.loops.outage import Outage
from rota.loops.store_time import StoreTime
from rota.model.alarm import CLUSTER, Alarm, AlarmKind, AlarmRule, Settled
from rota.model.moment import micros, moment
from rota.model.plan import JobFilter
from rota.model.run import Run
from rota.model.states import ItemState, JobState
from rota.model.value import Json
from rota.model.work import Attempt
from rota.ports import Clock, Courier, Store
from rota.transactions.alarms import raise_alarms, settle_deliveries, sort_alarms, take_deliveries

LOOK_S = 2.0
IDLE_S = 5.0
"""How often a node looks whether there are rules."""
CLOCK_S = 60.0
"""How long a reading of the store's clock is carried on."""
SORT_MAX = 200
DETAILS_MAX = 10
"""Of how many failed runs in one batch it is said why."""
SENDS_MAX = 16
CARRY_S = 45.0
"""How long a channel may take, whatever it promises."""
LEASE_S = 60.0
"""For how long nobody else sends what this node has taken."""
CLOSE_S = 3.0
LOST_S = 5.0
"""What is out of reach for less is a blip."""
NOTES_MAX = 1000


class PendingAlarms:
    """Keeps the alarms of one node that are not in the store yet."""

    def __init__(self, clock: Clock, node: str, *, wake: Callable[[], None]) -> None:
        self.clock = clock
        self._node = node
        self._wake = wake
        self._notes: deque[Alarm] = deque(maxlen=NOTES_MAX)
        self._away_s: float | None = None
        self.moment: StoreTime | None = None
        """The store's clock, as this node knows it."""
        self.late_s: float | None = None
        """If somebody wants to know of late starts: of those that are so late."""

    def take(self) -> tuple[Alarm, ...]:
        """All notes, to be written; they are the caller's now."""
        notes, self._notes = self._notes, deque(maxlen=NOTES_MAX)
        return tuple(notes)

    def put_back(self, notes: Sequence[Alarm]) -> None:
        """They could not be written."""
        self._notes.extendleft(reversed(notes))

    def acquired(self, held: int, most: int) -> None:
        """A sweep has won jobs: X is now `held`, M is `most` (A0.2)."""
        if held > most:
            text = f"scheduler {self._node} holds {held} jobs, more than {most}: add machines"
            self._own(AlarmKind.HELD_ABOVE, text, {"held": held, "most": most}, subject=f":{self.clock.token()}")

    def warned(self, attempt: Attempt, message: str) -> None:
        """An attempt takes longer than it was expected to."""
        self._about(AlarmKind.LONG_RUN, attempt, f"{attempt.item_id}.{attempt.attempt}", {"message": message})

    def began(self, attempt: Attempt, at_s: float) -> None:
        """An attempt has begun. If it is the first at its item, and later than somebody bears, that is an alarm."""
        if self.late_s is None or attempt.attempt != 1 or self.moment is None or attempt.start_by_at is None:
            return
        late_s = (self.moment.at_us(at_s) - micros(attempt.start_by_at)) / 1_000_000
        if late_s > self.late_s:
            self._about(AlarmKind.LATE_START, attempt, str(attempt.item_id), {"late_s": round(late_s, 1)})

    def coordinator_lost(self) -> None:
        """A level: it is open until `coordinator_key` ends."""
        self._own(AlarmKind.COORDINATOR_LOST, f"node {self._node} has lost the coordinator", {}, is_open=True)

    @property
    def coordinator_key(self) -> str:
        return f"{AlarmKind.COORDINATOR_LOST}:{self._node}"

    def store_away(self) -> None:
        self._away_s = self.clock.monotonic() if self._away_s is None else self._away_s

    def store_back(self) -> None:
        """The store answers. If it was away for long, that is told now, with its end."""
        away_s, self._away_s = self._away_s, None
        if away_s is None or self.moment is None or self.clock.monotonic() - away_s < LOST_S:
            return
        text = f"node {self._node} had no answer from the store"
        key, at = f"{AlarmKind.STORE_LOST}:{self._node}:{self.clock.token()}", moment(self.moment.at_us(away_s))
        lost = Alarm(key=key, kind=AlarmKind.STORE_LOST, at=at, scope=CLUSTER, text=text, data={"node": self._node})
        self._notes.extend((lost, lost.recovery(self._now())))

    def _own(
        self, kind: AlarmKind, text: str, data: dict[str, Json], *, subject: str = "", is_open: bool = False
    ) -> None:
        said: dict[str, Json] = {**data, "node": self._node}
        key = f"{kind}:{self._node}{subject}"
        self._note(Alarm(key=key, kind=kind, at=self._now(), scope=CLUSTER, text=text, is_open=is_open, data=said))

    def _about(self, kind: AlarmKind, attempt: Attempt, subject: str, data: dict[str, Json]) -> None:
        alarm = Alarm(
            key=f"{kind}:{subject}",
            kind=kind,
            at=self._now(),
            job_id=attempt.job_id or None,
            run_id=attempt.run_id,
            data={**data, "node": self._node},
        )
        self._note(alarm)

    def _note(self, alarm: Alarm) -> None:
        self._notes.append(alarm)
        self._wake()

    def _now(self) -> datetime:
        return self.clock.wall() if self.moment is None else self.moment.now()


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
                notes.moment = StoreTime(self.clock, await self._store.now())
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
        new = await self._store.alarms(unsorted=True, limit=SORT_MAX)
        if not new:
            return
        told = await _described(self._store, new)
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


async def _described(store: Store, alarms: Sequence[Alarm]) -> list[Alarm]:
    """The same alarms with their scopes and words, and those that follow from them (these have no id yet)."""
    vague = [it for it in alarms if it.scope is None]
    if not vague:
        return list(alarms)
    read = await _read(store, vague)
    told = [described(it, read) for it in vague]
    more = [found for it in told for found in (exhausted(it, read), failing(it)) if found is not None]
    return [*(described(it, read) for it in alarms), *more]


async def _read(store: Store, alarms: Sequence[Alarm]) -> AlarmFacts:
    runs = await store.runs_of(sorted({it.run_id for it in alarms if it.run_id is not None}))
    job_ids = tuple(sorted({it.job_id for it in alarms if it.job_id}))
    wanted = JobFilter(ids=job_ids, states=tuple(JobState), limit=max(len(job_ids), 1))
    failed = [run for run in runs if any(it.run_id == run.id and it.kind is AlarmKind.RUN_FAILED for it in alarms)]
    versions = sorted({(run.job_id, run.version) for run in failed if run.job_id})
    return AlarmFacts(
        jobs={job.id: job for job in await store.jobs(wanted)} if job_ids else {},
        runs={run.id: run for run in runs},
        definitions=await store.definitions(versions) if versions else {},
        messages={run.id: await _why(store, run) for run in failed[:DETAILS_MAX]},
    )


async def _why(store: Store, run: Run) -> str:
    """What the first item that failed has said."""
    return next((it.message for it in await store.items(run.id) if it.state is ItemState.FAILED and it.message), "")


@dataclass(eq=False, repr=False)
class Deliverer:
    """Sends messages by the courier, and keeps what became of each until the store has taken it."""

    store: Store
    courier: Courier
    wake: Callable[[], None]
    """Called when there is something to write."""
    _under_way: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _settled: list[Settled] = field(default_factory=list)
    sent: int = 0
    """Messages that arrived."""

    async def send(self, parcels: Sequence[Parcel], rules: Mapping[str, AlarmRule]) -> None:
        """Begin with what may begin: of each rule one at a time, and not too many in all."""
        for parcel in parcels:
            rule = rules[parcel.message.rule]
            if rule.name in self._under_way or len(self._under_way) >= SENDS_MAX:
                continue
            if await take_deliveries(self.store, parcel.deliveries, lease_s=LEASE_S):
                self._under_way[rule.name] = asyncio.create_task(self._carry(rule, parcel))

    async def settle(self) -> None:
        """Write what became of messages. What could not be written is kept."""
        settled = tuple(self._settled)
        if settled:
            await self.store.transact(settle_deliveries, settled)
        del self._settled[: len(settled)]

    async def close(self) -> None:
        """Let what is under way end, for a moment. What does not, is sent by another node later."""
        tasks = list(self._under_way.values())
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, rule: AlarmRule, parcel: Parcel) -> None:
        try:
            async with asyncio.timeout(CARRY_S):
                answer = await self.courier.send(rule, parcel.message)
            self._settled.append(Settled(deliveries=parcel.deliveries, answer=answer, arrived=True))
            self.sent += 1
        except (Undelivered, TimeoutError) as error:
            self._fail(rule, parcel, str(error) or "no answer in time")
        finally:
            del self._under_way[rule.name]
            self.wake()

    def _fail(self, rule: AlarmRule, parcel: Parcel, reason: str) -> None:
        tries = max(it.tries for it in parcel.deliveries) + 1
        pause_s = again_s(tries)
        log.warning("alarm.undelivered", rule=rule.name, reason=reason, tries=tries, again_in_s=pause_s)
        self._settled.append(Settled(deliveries=parcel.deliveries, answer=reason, arrived=False, again_s=pause_s))
