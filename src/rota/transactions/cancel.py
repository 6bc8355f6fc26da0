"""Cancel: end what of runs has not started, and ask the rest to stop."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model import tables
from rota.model.plan import Rule
from rota.model.standing import Cancelled
from rota.model.tables import Change, RunRow
from rota.transactions.decide import Ground, decide, lock_runs, understood
from rota.transactions.plan import write_plan
from rota.transactions.queue import CANCELLED, READY, RUNNING, WAITING, ask_to_stop, cancel_items
from rota.transactions.tx import Tx

_ASK = Change(tables.RUN, ("id",), ("cancel_at",))


def cancel(tx: Tx, run_ids: Sequence[int], *, rule: Rule) -> Cancelled:
    """Cancel what of these runs has not started (and what is finished from outside); ask the rest to stop."""
    found = tx.rows.read(tables.RUN, sorted(set(run_ids)))
    of_jobs = [row for row in found if row.job_id]
    ground: Ground | None = None
    locked: Sequence[RunRow]
    if of_jobs:
        ground = lock_runs(tx, {row.job_id for row in of_jobs}, [row.id for row in found], rule)
        locked = ground.rows
    else:
        locked = tx.lock(tables.RUN, [row.id for row in found])
    items = tx.ask.live_items([row.id for row in found])
    waiting = [it.item.id for it in items if it.live is None and it.item.state == WAITING]
    live = [it.item.id for it in items if it.live is not None]
    rows = tx.lock_queue(live)
    tx.read_clock()
    stopped = {row.item_id for row in rows if row.state == READY or (row.state == RUNNING and row.node_id is None)}
    decision = None
    if ground is not None:
        runs = understood(ground, (row.id for row in of_jobs))
        over, read = {*waiting, *stopped}, {run.id for run in runs}
        shown = [
            it._replace(live=None, item=it.item._replace(state=CANCELLED)) if it.item.id in over else it
            for it in items
            if it.item.run_id in read
        ]
        if runs:
            decision = decide(tx, ground, rule, items=shown, runs=runs)
    tx.rows.disjoint(tables.RUN, tables.ITEM, tables.QUEUE)
    _note(tx, locked)
    cancel_items(tx, waiting)
    ended, asked = ask_to_stop(tx, live)
    if decision is not None:
        write_plan(tx, decision)
    return Cancelled(ended=ended + len(waiting), asked=asked)


def _note(tx: Tx, rows: Sequence[RunRow]) -> None:
    """Note in the runs that they were asked to end."""
    new = [row for row in rows if row.cancel_at is None and row.ended_at is None]
    for row in new:
        tx.record("run.cancel_asked", {}, job_id=row.job_id or None, run_id=row.id)
    tx.rows.change(_ASK, [(row.id, tx.now_us) for row in new])
