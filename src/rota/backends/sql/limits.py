"""Limits: caps, weights and rates, changed under the dispatch lock; and what counts against them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, delete, select

from rota.backends.readable import reads
from rota.backends.sql import schema
from rota.backends.sql.sets import Change
from rota.backends.sql.transaction import Transaction
from rota.model.value import decode, encode
from rota.model.work import Limit, Rate

_REMEMBER = Change(schema.limit, ("name",), ("recent",))
_SET = Change(schema.limit, ("name",), ("cap", "weight", "rate_max", "rate_us", "is_set"))


@reads("limit")
def limit_of(row: Row[Any]) -> Limit:
    rate = None if row.rate_max is None else Rate(max=row.rate_max, period_s=row.rate_us / 1_000_000)
    recent = decode(row.recent, tuple[tuple[int, int], ...])
    return Limit(name=row.name, cap=row.cap, weight=row.weight, rate=rate, recent=recent)


def remember(tx: Transaction, limits: Sequence[Limit]) -> None:
    """Write the starts that rates remember. A job's own rate gets its row with its first start."""
    if not limits:
        return
    rows = {limit.name: encode(limit.recent) for limit in limits}
    known = set(tx.conn.scalars(select(schema.limit.c.name).where(tx.dialect.among(schema.limit.c.name, rows))))
    tx.dialect.update(tx.conn, _REMEMBER, [(name, recent) for name, recent in rows.items() if name in known])
    new = [(name, None, 1, None, None, recent, 0) for name, recent in rows.items() if name not in known]
    tx.dialect.insert(tx.conn, schema.limit, new)


def put(tx: Transaction, limits: Sequence[Limit], removed: Sequence[str]) -> None:
    """Set and remove limits. What is remembered of starts stays."""
    c = schema.limit.c
    if removed:
        tx.conn.execute(delete(schema.limit).where(tx.dialect.among(c.name, removed)))
    rows = {limit.name: _row(limit) for limit in limits}
    known = set(tx.conn.scalars(select(c.name).where(tx.dialect.among(c.name, rows)))) if rows else set()
    tx.dialect.update(tx.conn, _SET, [(name, *row, 1) for name, row in rows.items() if name in known])
    new = [(name, *row, "[]", 1) for name, row in rows.items() if name not in known]
    tx.dialect.insert(tx.conn, schema.limit, new)


def _row(limit: Limit) -> tuple[Any, ...]:
    rate = (None, None) if limit.rate is None else (limit.rate.max, round(limit.rate.period_s * 1_000_000))
    return limit.cap, limit.weight, *rate
