"""Alarms: the rules, what happened, and what is on its way to whom.

    raise: a row by its key, once ──sort: whom it concerns──> a delivery for each rule ──take──settle──> arrived
                                                                  ^─────── rests, tried again ──┘

A transaction that writes a fact which is an alarm writes the alarm too, if anybody wants to know of alarms at all. Who
takes a delivery raises its number of tries: of two that take it at the same time, one finds it changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from rota.model import tables
from rota.model.alarm import Alarm, AlarmRule, Delivery, Settled
from rota.model.records import alarm_in, to_us
from rota.model.tables import Change
from rota.model.value import decode, encode
from rota.transactions.tx import Transactor, Tx

_RULE = Change(tables.ALARM_RULE, ("name",), ("data",))
_CLOSE = Change(tables.ALARM, ("id",), ("key", "data"), fixed=(("is_open", 0),))
_SORT = Change(tables.ALARM, ("id",), ("data", "sorted_at"), where=(("sorted_at", None),))
_TAKE = Change(
    tables.DELIVERY,
    ("rule", "alarm_id", "tries"),
    ("not_before_at",),
    raised=("tries",),
    where=(("ended_at", None),),
)
_SETTLE = Change(tables.DELIVERY, ("rule", "alarm_id", "tries"), ("not_before_at", "ended_at", "arrived", "answer"))


class AlreadyTaken(Exception):
    """Somebody else was faster; the transaction is rolled back."""


def note_alarms(tx: Tx) -> None:
    """Raise what has happened in a transaction that was about something else."""
    if tx.happened and tx.rows.all(tables.ALARM_RULE):
        write_alarms(tx, tx.happened)


def write_alarms(tx: Tx, alarms: Sequence[Alarm]) -> None:
    """Write those that are not there yet."""
    ids = tx.ids("row", len(alarms))
    new = [msgspec.structs.replace(it, id=next(ids)) for it in {it.key: it for it in alarms}.values()]
    rows = [(it.id, it.key, to_us(it.at), encode(it), int(it.is_open), None) for it in new]
    tx.rows.insert(tables.ALARM, rows, missing=True)


def set_alarm_rule(tx: Tx, rule: AlarmRule) -> AlarmRule:
    """Make a rule, or change the one of that name. A new one is told of what happens from now on."""
    known = tx.lock(tables.ALARM_RULE, [rule.name])
    since = decode(known[0].data, AlarmRule).since_at if known else tx.read_clock()
    made = msgspec.structs.replace(rule, since_at=since)
    if known:
        tx.rows.change(_RULE, [(rule.name, encode(made))])
    else:
        tx.rows.insert(tables.ALARM_RULE, [(rule.name, encode(made))])
    return made


def remove_alarm_rule(tx: Tx, name: str) -> bool:
    """Forget a rule and what is on its way by it. False: there was none."""
    known = tx.lock(tables.ALARM_RULE, [name])
    pending = [it for it in tx.rows.find(tables.DELIVERY, "rule", [name]) if it.ended_at is None]
    tx.rows.remove(tables.ALARM_RULE, [name])
    tx.rows.remove(tables.DELIVERY, [(it.rule, it.alarm_id) for it in pending], where=(("ended_at", None),))
    return bool(known)


def raise_alarms(tx: Tx, alarms: Sequence[Alarm], ended: Sequence[str] = ()) -> None:
    """Write alarms whose keys are not there yet. `ended` are keys of levels: each that is still open is closed, and its
    recovery is raised; the same key may begin anew."""
    found = [row.id for row in tx.rows.find(tables.ALARM, "key", sorted(set(ended)))]
    rows = [row for row in tx.lock(tables.ALARM, found) if row.is_open and row.key in ended]
    now = tx.read_clock()
    over = tx.readings.all(rows, alarm_in)
    past = [(it, msgspec.structs.replace(it, key=it.past_key, is_open=False)) for it in over]
    tx.rows.change(_CLOSE, [(it.id, closed.key, encode(closed)) for it, closed in past])
    write_alarms(tx, [*alarms, *(it.recovery(now) for it in over)])


def sort_alarms(tx: Tx, told: Sequence[tuple[Alarm, Sequence[str]]]) -> None:
    """Write what was found out about alarms, and a delivery for each rule that is to be told. Once each."""
    tx.read_clock()
    tx.rows.change(_SORT, [(it.id, encode(it), tx.now_us) for it, _ in told])
    rows = [(rule, it.id, 0, tx.now_us, None, 0, "") for it, rules in told for rule in rules]
    tx.rows.insert(tables.DELIVERY, rows, missing=True)


async def take_deliveries(store: Transactor, deliveries: Sequence[Delivery], *, lease_s: float) -> bool:
    """Begin to send these, unless somebody else has begun with one of them since they were read; nobody else will for
    `lease_s`."""
    try:
        await store.transact(_take, deliveries, lease_s)
    except AlreadyTaken:
        return False
    return True


def _take(tx: Tx, deliveries: Sequence[Delivery], lease_s: float) -> None:
    tx.read_clock()
    until = tx.now_us + round(lease_s * 1_000_000)
    rows = [(it.rule, it.alarm.id, it.tries, until) for it in deliveries]
    if len(tx.rows.changed(_TAKE, rows)) != len(rows):
        raise AlreadyTaken


def settle_deliveries(tx: Tx, settled: Sequence[Settled]) -> None:
    """Write what became of deliveries that were taken."""
    tx.read_clock()
    tx.rows.change(_SETTLE, [row for it in settled for row in _settled(it, tx.now_us)])


def _settled(it: Settled, now_us: int) -> list[tuple[Any, ...]]:
    over = it.arrived or it.again_s is None
    not_before = now_us + round((it.again_s or 0.0) * 1_000_000)
    end = (not_before, now_us if over else None, int(it.arrived), it.answer)
    return [(one.rule, one.alarm.id, one.tries + 1, *end) for one in it.deliveries]
