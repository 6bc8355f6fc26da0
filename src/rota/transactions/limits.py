"""Limits: caps, weights and rates, changed under the dispatch lock; and the starts that rates remember."""

from __future__ import annotations

from collections.abc import Sequence

from rota.errors import Refused
from rota.model import tables
from rota.model.records import limit_of, limit_row
from rota.model.tables import Change
from rota.model.value import encode
from rota.model.work import GLOBAL, Limit
from rota.transactions.tx import Tx

_REMEMBER = Change(tables.LIMIT, ("name",), ("recent",))
_SET = Change(tables.LIMIT, ("name",), ("cap", "weight", "rate_max", "rate_us"), fixed=(("is_set", 1),))


def set_limits(tx: Tx, limits: Sequence[Limit], removed: Sequence[str] = ()) -> None:
    """Set limits and remove others. What is remembered of starts stays. A cap below what runs stops new starts only."""
    if GLOBAL in removed:
        raise Refused("the global limit cannot be removed, only set")
    tx.interrupt_rounds()
    tx.rows.remove(tables.LIMIT, removed)
    rows = {limit.name: limit_row(limit) for limit in limits}
    known = {row.name for row in tx.rows.read(tables.LIMIT, rows)}
    tx.rows.change(_SET, [(name, *row) for name, row in rows.items() if name in known])
    tx.rows.insert(tables.LIMIT, [(name, *row, "[]", 1) for name, row in rows.items() if name not in known])
    tx.is_news = True


def remember(tx: Tx, limits: Sequence[Limit]) -> None:
    """Write the starts that rates remember. A job's own rate gets its row with its first start."""
    rows = {limit.name: encode(limit.recent) for limit in limits}
    known = {row.name for row in tx.rows.read(tables.LIMIT, rows)}
    tx.rows.change(_REMEMBER, [(name, recent) for name, recent in rows.items() if name in known])
    new = [(name, None, 1, None, None, recent, 0) for name, recent in rows.items() if name not in known]
    tx.rows.insert(tables.LIMIT, new)


def all_limits(tx: Tx) -> list[Limit]:
    """Every limit, also what is only known of the starts of jobs. One that cannot be read counts as full."""
    rows = tx.rows.all(tables.LIMIT)
    read = tx.readings.all(rows, limit_of)
    if len(read) < len(rows):
        known = {limit.name for limit in read}
        read += [Limit(name=row.name, cap=0) for row in rows if row.name not in known]
    return read
