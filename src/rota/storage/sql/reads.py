"""What is read of alarms: the rules, what happened, and what is on its way to whom."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, Select, func, select

from rota.model.alarm import Alarm, AlarmRule, Deliveries, Delivery
from rota.model.records import alarm_in, alarm_rule_of, from_us
from rota.storage.sql import schema
from rota.storage.sql.queue_reads import SqlQueueReads


class SqlReads(SqlQueueReads):
    """All that is read of a SQL store outside its transactions."""

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        rule = schema.alarm_rule.c
        query = select(rule.name, rule.data).order_by(rule.name)
        return tuple(self._readings.all(await self._db.read(lambda conn: conn.execute(query).all()), alarm_rule_of))

    async def alarms(self, *, unsorted: bool = False, open_: bool = False, limit: int = 100) -> tuple[Alarm, ...]:
        a = schema.alarm.c
        query = select(schema.alarm).limit(limit)
        if unsorted:
            query = query.where(a.sorted_at.is_(None)).order_by(a.at, a.id)
        elif open_:
            query = query.where(a.is_open == 1).order_by(a.at, a.id)
        else:
            query = query.order_by(a.at.desc(), a.id.desc())
        return tuple(self._readings.all(await self._db.read(lambda conn: conn.execute(query).all()), alarm_in))

    async def deliveries(self, *, pending: bool = True, limit: int = 500) -> Deliveries:
        query = _pending(limit) if pending else _latest(limit)

        def work(conn: Connection) -> Deliveries:
            found = conn.execute(query).all()
            now = from_us(self._dialect.now_us(conn))
            return Deliveries(now=now, deliveries=tuple(self._readings.all(found, _delivery)))

        return await self._db.read(work)


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


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        rule=row.rule,
        alarm=alarm_in(row),
        tries=row.tries,
        not_before_at=from_us(row.not_before_at),
        ended_at=from_us(row.ended_at),
        answer=row.answer,
        arrived=bool(row.arrived),
    )
