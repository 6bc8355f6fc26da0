"""Decide about alarms: who is told, what is told together, what is tried again, and which levels begin and end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import NamedTuple

from rota.model.alarm import Alarm, AlarmKind, AlarmRule, ChannelKind, Delivery, Message, covers

FIRST_MAX = 5
"""How many alarms of a message are told one by one."""
TRIES_MAX = 12
PAUSE_S = 2.0
PAUSE_MAX_S = 600.0
LEVELS = frozenset(
    {
        AlarmKind.STORE_LOST,
        AlarmKind.COORDINATOR_LOST,
        AlarmKind.NODE_DISCONNECTED,
        AlarmKind.UNOWNED_JOB,
        AlarmKind.JOB_FAILING,
    }
)
UNMERGED = frozenset({AlarmKind.HELD_ABOVE, AlarmKind.TEST})
"""The acquisitions of one sweep are one alarm already, and each later one is told (A0.2)."""


class Parcel(NamedTuple):
    """A message that is due, and the deliveries that it carries out."""

    message: Message
    deliveries: tuple[Delivery, ...]


class Due(NamedTuple):
    """What may be sent now, and when the next will be due."""

    parcels: list[Parcel]
    next_at: datetime | None


def wants(rule: AlarmRule, alarm: Alarm) -> bool:
    if alarm.kind is AlarmKind.JOB_FAILING:
        return False
    if (rule.kinds and alarm.kind not in rule.kinds) or not covers(rule.scope, alarm.scope or ""):
        return False
    if rule.since_at is not None and alarm.at < rule.since_at:
        return False
    if rule.channel.kind == ChannelKind.JOB and covers(f"job/{rule.channel.to[0]}", alarm.scope or ""):
        return False  # a job that is told of its own failures would fail again, and so on
    late_s = alarm.data.get("late_s", 0.0)
    return alarm.kind is not AlarmKind.LATE_START or (isinstance(late_s, int | float) and late_s > rule.late_s)


def chosen(rules: Iterable[AlarmRule], alarm: Alarm) -> tuple[str, ...]:
    """The rules that are told of an alarm, by name."""
    return tuple(rule.name for rule in rules if wants(rule, alarm))


def asked_for(rules: Iterable[AlarmRule], kind: AlarmKind) -> bool:
    """Whether any rule wants alarms of a kind, or their ends."""
    wanted = {kind, AlarmKind.RECOVERED} if kind in LEVELS else {kind}
    return any(not rule.kinds or wanted & set(rule.kinds) for rule in rules)


def late_after_s(rules: Iterable[AlarmRule]) -> float | None:
    """After how many seconds a late start is worth an alarm; none if nobody asks."""
    return min((rule.late_s for rule in rules if asked_for((rule,), AlarmKind.LATE_START)), default=None)


def due(pending: Sequence[Delivery], rules: Mapping[str, AlarmRule], now: datetime) -> Due:
    """Put together what came within the time of its rule; it is due when that is over, and not while it rests."""
    parcels: list[Parcel] = []
    later: list[datetime] = []
    known = (it for it in pending if it.rule in rules)
    ordered = sorted(known, key=lambda it: (it.rule, it.alarm.kind, it.alarm.at, it.alarm.id))
    for (name, _), group in groupby(ordered, key=lambda it: (it.rule, it.alarm.kind)):
        for batch, ready_at in _windows(list(group), rules[name]):
            if ready_at <= now:
                parcels.append(Parcel(message(name, [it.alarm for it in batch]), tuple(batch)))
            else:
                later.append(ready_at)
    return Due(parcels, min(later, default=None))


def message(rule: str, alarms: Sequence[Alarm]) -> Message:
    """What is sent about alarms of one kind."""
    first, more = tuple(alarms[:FIRST_MAX]), len(alarms) - FIRST_MAX
    kind = first[0].kind
    title = first[0].text if len(alarms) == 1 else f"{len(alarms)} times, first: {first[0].text}"
    lines = [f"{it.at:%Y-%m-%d %H:%M:%SZ}  {it.text}" for it in first]
    if more > 0:
        lines.append(f"and {more} more, the last at {alarms[-1].at:%Y-%m-%d %H:%M:%SZ}")
    return Message(
        id=_name(rule, alarms),
        rule=rule,
        kind=kind,
        count=len(alarms),
        first=first,
        subject=f"rota: {str(kind).replace('_', ' ')}: {title}"[:200],
        text="\n".join(lines),
    )


def again_s(tries: int) -> float | None:
    """How long to rest after so many tries have failed; none: give up."""
    return None if tries >= TRIES_MAX else min(PAUSE_S * 2.0 ** (tries - 1), PAUSE_MAX_S)


class Levels(NamedTuple):
    """The levels that begin and those (by key) that end."""

    begun: list[Alarm]
    ended: list[str]


def levels(known: Sequence[Alarm], present: Sequence[Alarm], over: Iterable[str]) -> Levels:
    """Compare the open levels with what is the case: `present` with its keys, `over` what is known to be no more."""
    open_keys, keys = {it.key for it in known}, {it.key for it in present}
    return Levels([it for it in present if it.key not in open_keys], sorted((open_keys & set(over)) - keys))


def _windows(group: Sequence[Delivery], rule: AlarmRule) -> Iterable[tuple[list[Delivery], datetime]]:
    """Cut alarms of one kind, in order, into messages, each with the instant at which it may be sent."""
    width = timedelta(seconds=0 if group[0].alarm.kind in UNMERGED else rule.merge_s)
    batch: list[Delivery] = []
    for it in group:
        if batch and it.alarm.at >= batch[0].alarm.at + width:
            yield batch, _ready_at(batch, width)
            batch = []
        batch.append(it)
    yield batch, _ready_at(batch, width)


def _ready_at(batch: Sequence[Delivery], width: timedelta) -> datetime:
    return max(batch[0].alarm.at + width, *(it.not_before_at for it in batch))


def _name(rule: str, alarms: Sequence[Alarm]) -> str:
    keys = "\n".join((rule, *(it.key for it in alarms)))
    return hashlib.sha256(keys.encode()).hexdigest()[:32]
