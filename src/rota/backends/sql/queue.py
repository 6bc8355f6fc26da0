"""The queue: put items into it, and take them out before they start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Row, Select, and_, delete, or_, select, update

from rota.backends.readable import reads
from rota.backends.sql import schema
from rota.backends.sql.database import Lost
from rota.backends.sql.rows import from_us
from rota.backends.sql.sets import Insert
from rota.backends.sql.transaction import Transaction
from rota.model.dispatch import Ready
from rota.model.states import ItemState
from rota.model.work import Queued

READY, ASSIGNED, RUNNING, CANCELLED = (
    str(state) for state in (ItemState.READY, ItemState.ASSIGNED, ItemState.RUNNING, ItemState.CANCELLED)
)
STARTED = (ASSIGNED, RUNNING)

_NEW = Insert(
    schema.queue,
    (
        "item_id",
        "run_id",
        "job_id",
        "lane_id",
        "state",
        "start_by_at",
        "not_before_at",
        "attempt",
        "failures",
        "losses",
        "hold_us",
    ),
)


def enqueue(tx: Transaction, new: Iterable[tuple[Ready, int]]) -> None:
    """Put items (and their `hold_us`) into the queue for the first time, and tell of them."""
    rows = []
    for it, hold_us in new:
        place = (it.item_id, it.run_id, it.job_id, it.lane_id, READY, it.start_by, it.not_before)
        rows.append((*place, 0, 0, 0, hold_us))
        tx.ready.append(it)
    tx.write(_NEW, rows)


def withdraw(tx: Transaction, item_ids: Sequence[int]) -> None:
    """Take items that wait for their turn out of the queue. One that was given to a node meanwhile is a lost race."""
    if not item_ids:
        return
    q = schema.queue.c
    waiting = and_(tx.dialect.among(q.item_id, item_ids), q.state == READY)
    if tx.conn.execute(delete(schema.queue).where(waiting)).rowcount != len(item_ids):
        raise Lost("an item was given to a node before it could be cancelled")
    tx.gone += item_ids


def cancel_items(tx: Transaction, item_ids: Sequence[int]) -> None:
    """Give items that are out of the queue, or never were in it, their end."""
    if item_ids:
        i = schema.item.c
        ended = update(schema.item).where(tx.dialect.among(i.id, item_ids))
        tx.conn.execute(ended.values(state=CANCELLED, ended_at=tx.now_us))


def locked_rows(tx: Transaction, run_ids: Sequence[int]) -> Sequence[Row[Any]]:
    """Lock the live items of runs. They are found through their runs' items, for the queue has no index on runs."""
    i, q = schema.item.c, schema.queue.c
    ids = tx.conn.scalars(select(i.id).where(tx.dialect.among(i.run_id, run_ids), i.ended_at.is_(None))).all()
    if not ids:
        return []
    query = select(schema.queue).where(tx.dialect.among(q.item_id, ids)).order_by(q.item_id)
    return tx.conn.execute(tx.dialect.locked(query)).all()


def ask_to_stop(tx: Transaction, run_ids: Sequence[int]) -> tuple[int, int]:
    """Cancel at once what of these runs has no process: what waits for its turn, and what is finished from outside; ask
    the rest to stop. Returns how many of either."""
    rows = locked_rows(tx, run_ids)
    waiting = [row.item_id for row in rows if row.state == READY]
    withdraw(tx, waiting)
    cancel_items(tx, waiting)
    outside = [row for row in rows if row.state == RUNNING and row.node_id is None]
    cancel_held(tx, outside)
    asked = [row for row in rows if row.state != READY and row.node_id is not None]
    if asked:
        q = schema.queue.c
        wanted = and_(tx.dialect.among(q.item_id, [row.item_id for row in asked]), q.cancel_at.is_(None))
        tx.conn.execute(update(schema.queue).where(wanted).values(cancel_at=tx.now_us))
        tx.woken |= {row.node_id for row in asked}
    return len(waiting) + len(outside), len(asked)


def cancel_held(tx: Transaction, rows: Sequence[Row[Any]], node: str = "") -> None:
    """End items that have no process to stop: their client, or a node that leaves, will not report their end."""
    if not rows:
        return
    ids = [row.item_id for row in rows]
    tx.conn.execute(delete(schema.queue).where(tx.dialect.among(schema.queue.c.item_id, ids)))
    cancel_items(tx, ids)
    lines = [
        (
            row.item_id,
            row.attempt,
            node,
            row.round,
            row.assigned_at,
            row.started_at,
            tx.now_us,
            CANCELLED,
            None,
            None,
            0,
        )
        for row in rows
    ]
    tx.write(Insert(schema.attempt), lines)
    tx.ended += ids


def live_states() -> Select[Any]:
    """Items with the state that the queue has of them, if they are live."""
    return select(schema.item, schema.queue.c.state.label("live")).outerjoin(
        schema.queue, schema.queue.c.item_id == schema.item.c.id
    )


def unstarted() -> Any:
    """Whether an item of `live_states` was given to no node: it waits with its run, or for its turn."""
    waits = and_(schema.queue.c.state.is_(None), schema.item.c.state == str(ItemState.WAITING))
    return or_(waits, schema.queue.c.state == READY)


@reads("item of the queue")
def queued_of(row: Row[Any]) -> Queued:
    """A live item from a row with every column, in the order of the table."""
    item_id, run_id, job_id, lane_id, state, start_by, not_before, attempt, failures, losses, *rest = tuple(row)
    node_id, avoid_id, round_, assigned, started, expires, hold_us, cancel = rest
    return Queued(
        item_id=item_id,
        run_id=run_id,
        job_id=job_id,
        lane_id=lane_id,
        state=ItemState(state),
        start_by_at=from_us(start_by),
        not_before_at=from_us(not_before),
        attempt=attempt,
        failures=failures,
        losses=losses,
        node_id=node_id,
        avoid_id=avoid_id,
        round=round_,
        assigned_at=from_us(assigned),
        started_at=from_us(started),
        expires_at=from_us(expires),
        hold_s=hold_us / 1_000_000,
        cancel_at=from_us(cancel),
    )


def clean(text: str) -> str | None:
    """Text of unknown origin as every database takes it: no NUL, no half of a character; nothing for an empty one."""
    if not text or (text.isascii() and "\0" not in text):
        return text or None
    return text.replace("\0", "�").encode("utf-8", "replace").decode()
