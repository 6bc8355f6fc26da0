"""Alarms: the rules, what happened, and what is on its way to whom."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from rota.backends.memory.holding import Holding
from rota.model.alarm import Alarm, AlarmRule, Deliveries, Delivery, Settled
from rota.ports import Clock


class Alarms(Holding):
    """What is told to people."""

    def __init__(self, clock: Clock, *, actor: str) -> None:
        super().__init__(clock, actor=actor)
        self._sorted: set[int] = set()
        self._deliveries: dict[tuple[str, int], Delivery] = {}

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        return tuple(self._alarm_rules[name] for name in sorted(self._alarm_rules))

    async def set_alarm_rule(self, rule: AlarmRule) -> AlarmRule:
        known = self._alarm_rules.get(rule.name)
        since = self._clock.wall() if known is None else known.since_at
        self._alarm_rules[rule.name] = msgspec.structs.replace(rule, since_at=since)
        return self._alarm_rules[rule.name]

    async def remove_alarm_rule(self, name: str) -> bool:
        for key in [key for key, it in self._deliveries.items() if key[0] == name and it.ended_at is None]:
            del self._deliveries[key]
        return self._alarm_rules.pop(name, None) is not None

    async def raise_alarms(self, alarms: Sequence[Alarm], ended: Sequence[str] = ()) -> None:
        over = [it for key in ended if (it := self._alarms.get(key)) is not None and it.is_open]
        for it in over:
            del self._alarms[it.key]
            self._alarms[it.past_key] = msgspec.structs.replace(it, key=it.past_key, is_open=False)
        self._raise([*alarms, *(it.recovery(self._clock.wall()) for it in over)])

    async def alarms(self, *, unsorted: bool = False, open_: bool = False, limit: int = 100) -> tuple[Alarm, ...]:
        oldest = sorted(self._alarms.values(), key=lambda it: (it.at, it.id))
        if unsorted:
            return tuple([it for it in oldest if it.id not in self._sorted][:limit])
        if open_:
            return tuple([it for it in oldest if it.is_open][:limit])
        return tuple(oldest[::-1][:limit])

    async def sort_alarms(self, told: Sequence[tuple[Alarm, Sequence[str]]]) -> None:
        now = self._clock.wall()
        for it, rules in told:
            if it.id not in self._sorted and it.key in self._alarms:
                self._sorted.add(it.id)
                self._alarms[it.key] = it
            for rule in rules:
                self._deliveries.setdefault((rule, it.id), Delivery(rule=rule, alarm=it, not_before_at=now))

    async def deliveries(self, *, pending: bool = True, limit: int = 500) -> Deliveries:
        found = sorted(self._deliveries.values(), key=lambda it: (it.alarm.at, it.alarm.id, it.rule))
        if not pending:
            return Deliveries(now=self._clock.wall(), deliveries=tuple(found[::-1][:limit]))
        names = sorted({it.rule for it in found})
        theirs = {name: [it for it in found if it.rule == name and it.ended_at is None] for name in names}
        first = tuple(it for name in names for it in theirs[name][:limit])
        return Deliveries(now=self._clock.wall(), deliveries=first)

    async def take_deliveries(self, deliveries: Sequence[Delivery], *, lease_s: float) -> bool:
        if any(not self._is_as_read(it, it.tries) for it in deliveries):
            return False
        until = self._clock.wall() + timedelta(seconds=lease_s)
        for it in deliveries:
            self._deliver(it, tries=it.tries + 1, not_before_at=until)
        return True

    async def settle_deliveries(self, settled: Sequence[Settled]) -> None:
        now = self._clock.wall()
        for it in settled:
            over = it.arrived or it.again_s is None
            end = {
                "not_before_at": now + timedelta(seconds=it.again_s or 0.0),
                "ended_at": now if over else None,
                "arrived": it.arrived,
                "answer": it.answer,
            }
            for one in it.deliveries:
                if self._is_as_read(one, one.tries + 1):
                    self._deliver(one, **end)

    def _is_as_read(self, it: Delivery, tries: int) -> bool:
        known = self._deliveries.get((it.rule, it.alarm.id))
        return known is not None and known.tries == tries and known.ended_at is None

    def _deliver(self, it: Delivery, **fields: object) -> None:
        key = it.rule, it.alarm.id
        self._deliveries[key] = msgspec.structs.replace(self._deliveries[key], **fields)

    def _forget_alarms(self, before: datetime) -> int:
        old = [it for it in self._alarms.values() if it.at < before and not it.is_open]
        for it in old:
            del self._alarms[it.key]
            self._sorted.discard(it.id)
        gone = {it.id for it in old}
        self._deliveries = {key: it for key, it in self._deliveries.items() if key[1] not in gone}
        return len(old)
