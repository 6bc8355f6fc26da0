"""Raise alarms inside any transaction, and forget old ones.

A transaction that writes a fact which is an alarm writes the alarm too, if anybody wants to know of alarms at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import delete, exists, select

from rota.backends.sql import schema
from rota.backends.sql.rows import to_us
from rota.backends.sql.transaction import Transaction
from rota.model.alarm import Alarm
from rota.model.value import encode


def write_alarms(tx: Transaction, alarms: Sequence[Alarm]) -> None:
    """Write those that are not there yet."""
    ids = tx.ids("row", len(alarms))
    rows = [_row(msgspec.structs.replace(it, id=next(ids))) for it in {it.key: it for it in alarms}.values()]
    if rows:
        tx.dialect.insert_missing(tx.conn, schema.alarm, rows)


def note_alarms(tx: Transaction) -> None:
    """Raise what has happened in a transaction that was about something else."""
    if tx.happened and tx.conn.scalar(select(exists().where(schema.alarm_rule.c.name != ""))):
        write_alarms(tx, tx.happened)


def forget_alarms(tx: Transaction, before_us: int, limit: int) -> int:
    """Forget old alarms, however they were told; an open level stays."""
    a, d = schema.alarm.c, schema.delivery.c
    old = select(a.id).where(a.at < before_us, a.is_open == 0).order_by(a.at).limit(limit)
    ids = tx.conn.scalars(old).all()
    if ids:
        tx.conn.execute(delete(schema.delivery).where(tx.dialect.among(d.alarm_id, ids)))
        tx.conn.execute(delete(schema.alarm).where(tx.dialect.among(a.id, ids)))
    return len(ids)


def _row(alarm: Alarm) -> tuple[Any, ...]:
    return alarm.id, alarm.key, to_us(alarm.at), encode(alarm), int(alarm.is_open), None
