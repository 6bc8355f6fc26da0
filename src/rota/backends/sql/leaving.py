"""Leave: a node stops, and gives back what it still has.

What was asked to stop meanwhile is not given again: nobody runs it any more, so it is over, and its run with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import select, update

from rota.backends.sql import schema
from rota.backends.sql.finishing import Finishing
from rota.backends.sql.members import OFFLINE, give_up, interrupt_rounds, ready_of
from rota.backends.sql.queue import READY, cancel_held
from rota.backends.sql.transaction import Transaction
from rota.model.plan import Rule

_GIVEN_BACK = {"state": READY, "node_id": None, "round": None, "assigned_at": None, "started_at": None}


class Leaving(Finishing):
    """The clean end of a node."""

    async def leave(self, node_id: int, *, rule: Rule | None = None) -> None:
        await self._transact(lambda tx: self._leave(tx, node_id, rule))

    def _leave(self, tx: Transaction, node_id: int, rule: Rule | None) -> None:
        interrupt_rounds(tx)
        q = schema.queue.c
        asked = select(q.run_id).where(q.node_id == node_id, q.cancel_at.is_not(None), q.job_id != 0)
        run_ids = sorted(set(tx.conn.scalars(asked)))
        if run_ids:
            assert rule is not None, "the runs of jobs need a rule that says what follows"
            back = lambda: _give_back(tx, node_id)  # noqa: E731
            self._decided(tx, self._owners(run_ids), rule, run_ids=run_ids, first=back)
        else:
            _give_back(tx, node_id)
        give_up(tx, node_id, OFFLINE)


def _give_back(tx: Transaction, node_id: int) -> Sequence[int]:
    """Let others have the items of a node, or end them. Returns the runs of jobs that have lost one. What is asked to
    stop only now may be of another run: that is settled by whoever has the duty to prune."""
    q, n = schema.queue.c, schema.node.c
    query = select(schema.queue).where(q.node_id == node_id).order_by(q.item_id)
    rows = tx.conn.execute(tx.dialect.locked(query)).all()
    tx.read_clock()
    asked = [row for row in rows if row.cancel_at is not None]
    back = [row for row in rows if row.cancel_at is None]
    if asked:
        cancel_held(tx, asked, tx.conn.scalars(select(n.name).where(n.id == node_id)).one())
    if back:
        mine = tx.dialect.among(q.item_id, [row.item_id for row in back])
        tx.conn.execute(update(schema.queue).where(mine).values(_GIVEN_BACK))
        tx.ready += [ready_of(row) for row in back]
    return sorted({row.run_id for row in asked if row.job_id})
