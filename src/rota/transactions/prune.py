"""Prune: forget what is older, or more, than shall be kept, a small batch at a time.

Whether a slot was fired is known by its job's next instant, so runs may be forgotten. What is live is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.standing import Pruned, Retention
from rota.transactions.lanes import KEPT_US
from rota.transactions.tx import Tx

ITEMS_MAX = 20_000
"""How many items one batch forgets, or one run more than that."""


def prune(tx: Tx, wanted: Retention, limit: int) -> Pruned:
    """Forget a small batch of what is older, or more, than shall be kept."""
    tx.read_clock()
    run_ids = _bounded(tx, _old_runs(tx, wanted, limit))
    rows = tx.ask.forget_runs(run_ids) if run_ids else 0
    history = tx.now_us - _us(wanted.history_s)
    aged = tx.now_us - _us(wanted.age_s)
    rows += tx.ask.forget_grants(history, limit)
    rows += tx.ask.forget_lines(history, limit)
    rows += tx.ask.forget_alarms(history, limit)
    rows += tx.ask.forget_keys(limit)
    rows += tx.ask.forget_nodes(aged, limit)
    rows += tx.ask.forget_lanes(tx.now_us, tx.now_us - max(_us(wanted.age_s), KEPT_US), limit)
    return Pruned(run_ids=tuple(run_ids), rows=rows)


def _old_runs(tx: Tx, wanted: Retention, limit: int) -> list[int]:
    """Runs that ended long ago (their numbers are kept for longer), then the oldest of jobs that have too many."""
    aged, loose = tx.now_us - _us(wanted.age_s), tx.now_us - _us(max(wanted.age_s, wanted.numbers_s))
    found = tx.ask.old_runs(aged, loose, limit)
    if len(found) < limit:
        found += tx.ask.surplus_runs(wanted.runs_max, limit - len(found), set(found))
    return found


def _bounded(tx: Tx, run_ids: Sequence[int]) -> list[int]:
    """As many of the runs as have not too many items together, and none that still has a live one."""
    if not run_ids:
        return []
    counts, live = tx.ask.item_counts(run_ids)
    kept: list[int] = []
    total = 0
    for run_id in run_ids:
        total += counts.get(run_id, 0)
        if run_id not in live and (not kept or total <= ITEMS_MAX):
            kept.append(run_id)
    return kept


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
