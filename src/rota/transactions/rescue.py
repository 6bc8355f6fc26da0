"""Rescue: take items from a node that is gone."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model import tables
from rota.model.dispatch import ItemEnd
from rota.model.plan import Rule
from rota.model.records import joined_of
from rota.model.tables import LeaseRow, NodeRow
from rota.transactions.finish import Notices, lock_owners, sift, write_ends
from rota.transactions.members import DISCONNECTED, give_up
from rota.transactions.tx import Tx


def rescue(
    tx: Tx,
    node_id: int,
    beat: int,
    ends: Sequence[ItemEnd],
    *,
    rule: Rule,
    margin_s: float,
    seen_gone: bool = False,
    notices: Notices = {},  # noqa: B006 - never changed
) -> bool:
    """Take items from a node whose lease has been over for `margin_s` by the store's clock, and whose renewals have not
    gone beyond `beat`; `seen_gone`: whose processes were seen gone instead. When it has none left, the node is
    disconnected. False: it was alive after all."""
    tx.interrupt_rounds()
    ground = lock_owners(tx, ends, rule)
    rows = tx.lock_queue([end.item_id for end in ends])
    leases, nodes = tx.lock(tables.LEASE, [node_id]), tx.lock(tables.NODE, [node_id])
    tx.read_clock()
    is_gone = not leases or _is_gone(tx.now_us, leases[0], nodes[0], beat, margin_s, seen_gone=seen_gone)
    if not is_gone:
        return False
    current, _ = sift(ends, (), rows)
    left = {row.item_id for row in tx.ask.queue_of(node_id)} - {end.item_id for end in current.ends}
    write_ends(tx, current, ground, rule, notices)
    if not left:
        give_up(tx, node_id, nodes[0] if nodes else None, DISCONNECTED)
    return True


def _is_gone(now_us: int, lease: LeaseRow, node: NodeRow, beat: int, margin_s: float, *, seen_gone: bool) -> bool:
    is_void = joined_of(node.name, node.joined).is_void(lease.until_at, now_us)
    over = seen_gone or is_void or lease.until_at + round(margin_s * 1_000_000) < now_us
    return over and lease.beat == beat
