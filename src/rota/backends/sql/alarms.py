"""Alarms: the rules, what happened, and what is on its way to whom.

    raise: a row by its key, once ──sort: whom it concerns──> a delivery for each rule ──take──settle──> arrived
                                                                  ^─────── rests, tried again ──┘

Who takes a delivery raises its number of tries: of two that take it at the same time, one finds it changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, delete, func, select, update

from rota.backends.readable import reads
from rota.backends.sql import schema
from rota.backends.sql.alarming import write_alarms
from rota.backends.sql.holding import Holding
from rota.backends.sql.rows import from_us
from rota.backends.sql.sets import Change
from rota.backends.sql.transaction import Transaction
from rota.model.alarm import Alarm, AlarmRule, Deliveries, Delivery, Settled
from rota.model.value import decode, encode

_SORT = Change(schema.alarm, ("id",), ("data", "sorted_at"), where="t.sorted_at IS NULL")
_TAKE = Change(
    schema.delivery,
    ("rule", "alarm_id", "tries"),
    ("not_before_at",),
    fixed="tries = t.tries + 1",
    where="t.ended_at IS NULL",
)
_SETTLE = Change(schema.delivery, ("rule", "alarm_id", "tries"), ("not_before_at", "ended_at", "arrived", "answer"))


class _Taken(Exception):
    """Somebody else was faster."""


class Alarms(Holding):
    """What is told to people."""

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        rule = schema.alarm_rule.c
        query = select(rule.name, rule.data).order_by(rule.name)
        return tuple(self._readings.all(await self._db.read(lambda conn: conn.execute(query).all()), _rule))

    async def set_alarm_rule(self, rule: AlarmRule) -> AlarmRule:
        def work(tx: Transaction) -> AlarmRule:
            table, now = schema.alarm_rule, tx.read_clock()
            mine = select(table.c.data).where(table.c.name == rule.name)
            known = tx.conn.scalar(self._dialect.locked(mine))
            since = now if known is None else decode(known, AlarmRule).since_at
            made = msgspec.structs.replace(rule, since_at=since)
            if known is None:
                tx.conn.execute(table.insert().values(name=rule.name, data=encode(made)))
            else:
                tx.conn.execute(update(table).where(table.c.name == rule.name).values(data=encode(made)))
            return made

        return await self._transact(work)

    async def remove_alarm_rule(self, name: str) -> bool:
        def work(tx: Transaction) -> bool:
            table, d = schema.alarm_rule, schema.delivery.c
            gone = tx.conn.execute(delete(table).where(table.c.name == name)).rowcount
            tx.conn.execute(delete(schema.delivery).where(d.rule == name, d.ended_at.is_(None)))
            return bool(gone)

        return await self._transact(work)

    async def raise_alarms(self, alarms: Sequence[Alarm], ended: Sequence[str] = ()) -> None:
        def work(tx: Transaction) -> None:
            now, a = tx.read_clock(), schema.alarm.c
            theirs = select(schema.alarm).where(self._dialect.among(a.key, ended), a.is_open == 1).order_by(a.id)
            over = self._readings.all(tx.conn.execute(self._dialect.locked(theirs)), _alarm) if ended else []
            for it in over:
                mine = update(schema.alarm).where(a.id == it.id)
                past = msgspec.structs.replace(it, key=it.past_key, is_open=False)
                tx.conn.execute(mine.values(key=past.key, is_open=0, data=encode(past)))
            write_alarms(tx, [*alarms, *(it.recovery(now) for it in over)])

        if alarms or ended:
            await self._transact(work)

    async def alarms(self, *, unsorted: bool = False, open_: bool = False, limit: int = 100) -> tuple[Alarm, ...]:
        a = schema.alarm.c
        query = select(schema.alarm).limit(limit)
        if unsorted:
            query = query.where(a.sorted_at.is_(None)).order_by(a.at, a.id)
        elif open_:
            query = query.where(a.is_open == 1).order_by(a.at, a.id)
        else:
            query = query.order_by(a.at.desc(), a.id.desc())
        return tuple(self._readings.all(await self._db.read(lambda conn: conn.execute(query).all()), _alarm))

    async def sort_alarms(self, told: Sequence[tuple[Alarm, Sequence[str]]]) -> None:
        def work(tx: Transaction) -> None:
            tx.read_clock()
            self._dialect.update(tx.conn, _SORT, [(it.id, encode(it), tx.now_us) for it, _ in told])
            rows = [(rule, it.id, 0, tx.now_us, None, 0, "") for it, rules in told for rule in rules]
            if rows:
                self._dialect.insert_missing(tx.conn, schema.delivery, rows)

        if told:
            await self._transact(work)

    async def deliveries(self, *, pending: bool = True, limit: int = 500) -> Deliveries:
        query = _pending(limit) if pending else _latest(limit)

        def work(conn: Connection) -> Deliveries:
            found = conn.execute(query).all()
            now = from_us(self._dialect.now_us(conn))
            return Deliveries(now=now, deliveries=tuple(self._readings.all(found, _delivery)))

        return await self._db.read(work)

    async def take_deliveries(self, deliveries: Sequence[Delivery], *, lease_s: float) -> bool:
        def work(tx: Transaction) -> None:
            tx.read_clock()
            until = tx.now_us + round(lease_s * 1_000_000)
            rows = [(it.rule, it.alarm.id, it.tries, until) for it in deliveries]
            if self._dialect.update(tx.conn, _TAKE, rows) != len(rows):
                raise _Taken

        try:
            await self._transact(work)
        except _Taken:
            return False
        return True

    async def settle_deliveries(self, settled: Sequence[Settled]) -> None:
        def work(tx: Transaction) -> None:
            tx.read_clock()
            self._dialect.update(tx.conn, _SETTLE, [row for it in settled for row in _settled(it, tx.now_us)])

        if settled:
            await self._transact(work)


def _pending(limit: int) -> Select[Any]:
    """The oldest of each rule: one that has many must not hide those of the others."""
    a, d = schema.alarm.c, schema.delivery.c
    place = func.row_number().over(partition_by=d.rule, order_by=(a.at, a.id)).label("place")
    both = schema.delivery.join(schema.alarm, a.id == d.alarm_id)
    found = select(*_COLUMNS, place).select_from(both).where(d.ended_at.is_(None)).subquery()
    return select(found).where(found.c.place <= limit).order_by(found.c.rule, found.c.at, found.c.id)


def _latest(limit: int) -> Select[Any]:
    a, d = schema.alarm.c, schema.delivery.c
    both = schema.delivery.join(schema.alarm, a.id == d.alarm_id)
    return select(*_COLUMNS).select_from(both).order_by(a.at.desc(), a.id.desc(), d.rule).limit(limit)


_COLUMNS = (*schema.delivery.columns, schema.alarm.c.id, schema.alarm.c.at, schema.alarm.c.data)


def _settled(it: Settled, now_us: int) -> list[tuple[Any, ...]]:
    over = it.arrived or it.again_s is None
    not_before = now_us + round((it.again_s or 0.0) * 1_000_000)
    end = (not_before, now_us if over else None, int(it.arrived), it.answer)
    return [(one.rule, one.alarm.id, one.tries + 1, *end) for one in it.deliveries]


@reads("alarm rule")
def _rule(row: Any) -> AlarmRule:
    return decode(row.data, AlarmRule)


@reads("alarm", lambda row: row.id)
def _alarm(row: Row[Any]) -> Alarm:
    return decode(row.data, Alarm)


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        rule=row.rule,
        alarm=_alarm(row),
        tries=row.tries,
        not_before_at=from_us(row.not_before_at),
        ended_at=from_us(row.ended_at),
        answer=row.answer,
        arrived=bool(row.arrived),
    )
