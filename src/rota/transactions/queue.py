"""The queue: put items into it, and take them out before they start, or when nobody will report their end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rota.model import tables
from rota.model.dispatch import Ready
from rota.model.states import ItemState
from rota.model.tables import Change, QueueRow
from rota.transactions.tx import Tx

WAITING, READY, ASSIGNED, RUNNING, CANCELLED = (
    str(state)
    for state in (ItemState.WAITING, ItemState.READY, ItemState.ASSIGNED, ItemState.RUNNING, ItemState.CANCELLED)
)

_NEW = ("item_id", "run_id", "job_id", "lane_id", "state", "start_by_at", "not_before_at", "attempt", "failures")
NEW = (*_NEW, "losses", "hold_us")
END = Change(tables.ITEM, ("id",), ("state", "ended_at", "result", "message"))
ASK = Change(tables.QUEUE, ("item_id",), ("cancel_at",))


def ready_of(row: QueueRow) -> Ready:
    """What a round must know of an item of the queue that is ready."""
    whose = (row.item_id, row.run_id, row.job_id, row.lane_id, row.start_by_at, row.not_before_at)
    return Ready(*whose, row.attempt, row.failures, row.losses, row.avoid_id)


def enqueue(tx: Tx, new: Iterable[tuple[Ready, int]]) -> None:
    """Put items (and their `hold_us`) into the queue for the first time, and tell of them."""
    rows = []
    for it, hold_us in new:
        place = (it.item_id, it.run_id, it.job_id, it.lane_id, READY, it.start_by, it.not_before)
        rows.append((*place, 0, 0, 0, hold_us))
        tx.ready.append(it)
    tx.rows.insert(tables.QUEUE, rows, NEW)


def withdraw(tx: Tx, item_ids: Sequence[int]) -> None:
    """Take items that wait for their turn out of the queue. One that was given to a node meanwhile is a lost race."""
    if item_ids:
        tx.rows.remove(tables.QUEUE, item_ids, where=(("state", READY),), exact=True)
        tx.gone += item_ids


def cancel_items(tx: Tx, item_ids: Sequence[int]) -> None:
    """Give items that are out of the queue, or never were in it, their end."""
    tx.rows.change(END, [(item_id, CANCELLED, tx.now_us, None, None) for item_id in item_ids])


def ask_to_stop(tx: Tx, item_ids: Sequence[int]) -> tuple[int, int]:
    """Cancel at once what of these live items has no process: what waits for its turn, and what is finished from
    outside; ask the rest to stop. Returns how many of either."""
    rows = tx.lock_queue(item_ids)
    waiting = [row.item_id for row in rows if row.state == READY]
    withdraw(tx, waiting)
    cancel_items(tx, waiting)
    outside = [row for row in rows if row.state == RUNNING and row.node_id is None]
    cancel_held(tx, outside)
    asked = [row for row in rows if row.state != READY and row.node_id is not None]
    tx.rows.change(ASK, [(row.item_id, tx.now_us) for row in asked if row.cancel_at is None])
    tx.woken |= {row.node_id for row in asked if row.node_id is not None}
    return len(waiting) + len(outside), len(asked)


def cancel_held(tx: Tx, rows: Sequence[QueueRow], node: str = "") -> None:
    """End items that have no process to stop: their client, or a node that leaves, will not report their end."""
    ids = [row.item_id for row in rows]
    tx.rows.remove(tables.QUEUE, ids)
    cancel_items(tx, ids)
    lines = [
        (it.item_id, it.attempt, node, it.round, it.assigned_at, it.started_at, tx.now_us, CANCELLED, None, None, 0)
        for it in rows
    ]
    tx.rows.insert(tables.ATTEMPT, lines)
    tx.ended += ids
