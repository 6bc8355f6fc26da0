"""Finish: write how attempts ended and which have begun, each only while it is the item's current attempt.

Items of assignments are on their own. For those of jobs, the jobs, overlap keys and runs are locked first, and a rule
says in the same transaction what follows for the runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from rota.model import tables
from rota.model.dispatch import Finished, ItemEnd, ItemStart, Ready
from rota.model.plan import Rule
from rota.model.records import clean, from_us
from rota.model.standing import Closed
from rota.model.states import Cause
from rota.model.tables import Change, QueueRow
from rota.model.work import Assignment, SuspectedOverlap
from rota.transactions.assign import put_assignment
from rota.transactions.decide import Ground, decide, lock_runs, understood, with_ends
from rota.transactions.lanes import for_newer, ids_of_specs
from rota.transactions.plan import write_plan
from rota.transactions.queue import ASSIGNED, CANCELLED, END, READY, RUNNING, cancel_held
from rota.transactions.record import AVOIDED, OVERLAP_SUSPECTED, assigned_lane, overlap_data
from rota.transactions.tx import CHUNK, Transactor, Tx

_NOBODY = (("node_id", None), ("round", None), ("assigned_at", None), ("started_at", None), ("expires_at", None))
_AGAIN = Change(
    tables.QUEUE,
    ("item_id",),
    ("lane_id", "not_before_at", "failures", "losses", "avoid_id"),
    fixed=(("state", READY), *_NOBODY),
)
_START = Change(tables.QUEUE, ("item_id",), ("started_at",), fixed=(("state", RUNNING),))
_LEAVE = Change(tables.QUEUE, ("item_id",), ("started_at", "expires_at"), fixed=(("state", RUNNING), ("node_id", None)))
_EXTEND = Change(tables.QUEUE, ("item_id",), ("expires_at",))

Notices = Mapping[int, Sequence[Assignment]]


class Current(NamedTuple):
    """What of ends and starts counts: it tells of the attempt that is under way."""

    over: list[ItemEnd]
    """Items that have their final state. One that was asked to stop is not tried again."""
    again: list[tuple[ItemEnd, QueueRow]]
    """Items that are tried again."""
    began: list[ItemStart]
    left: list[tuple[ItemStart, QueueRow]]
    """Items that are finished from outside: they leave their nodes."""

    @property
    def ends(self) -> list[ItemEnd]:
        return [*self.over, *(end for end, _ in self.again)]

    @property
    def states(self) -> dict[int, str]:
        """How the items are from now on that have ended, or are ready again."""
        return {it.item_id: final_state(it) for it in self.over} | {it.item_id: READY for it, _ in self.again}


async def finish(
    store: Transactor,
    ends: Sequence[ItemEnd],
    starts: Sequence[ItemStart] = (),
    *,
    rule: Rule | None = None,
    notices: Notices = {},  # noqa: B006 - never changed
) -> Finished:
    """Write ends and starts of attempts, only those that are still current. Runs of jobs whose items changed are locked
    first, and the rule says what follows for them (`Facts.runs`, `Facts.items`), in the same transaction. The notices
    of items (by id) whose end counted are assigned in it too."""
    end_items = store.shortcuts.end_items
    if end_items is not None and not starts and not notices and is_plain(ends):

        def outright(tx: Tx) -> Finished:
            ended = end_items(tx, ends)
            return Finished(now_us=tx.now_us, stale=frozenset({end.item_id for end in ends} - ended))

        return await store.write_once(outright)
    return await store.transact(finish_items, ends, starts, rule, notices)


def finish_items(
    tx: Tx, ends: Sequence[ItemEnd], starts: Sequence[ItemStart], rule: Rule | None, notices: Notices
) -> Finished:
    """Write ends and starts that are still current, and what follows for their runs: on every store."""
    ground = lock_owners(tx, ends, rule)
    rows = tx.lock_queue([end.item_id for end in ends] + [start.item_id for start in starts])
    if rows and tx.rows.lock_us is not None:
        tx.now_us = tx.rows.lock_us
    else:
        tx.read_clock()
    current, stale = sift(ends, starts, rows)
    write_ends(tx, current, ground, rule, notices)
    return Finished(now_us=tx.now_us, stale=frozenset(stale))


def is_plain(ends: Sequence[ItemEnd]) -> bool:
    """Whether these ends need nothing but themselves: final ends of items of assignments, each once."""
    return (
        0 < len(ends) <= CHUNK
        and len({end.item_id for end in ends}) == len(ends)
        and not any(end.job_id or end.state == READY or end.expired_us is not None for end in ends)
    )


def lock_owners(tx: Tx, ends: Sequence[ItemEnd], rule: Rule | None) -> Ground | None:
    """Lock the jobs, overlap keys and runs of these ends; none if all are of assignments."""
    of_jobs = [end for end in ends if end.job_id]
    if not of_jobs:
        return None
    assert rule is not None, "the runs of jobs need a rule that says what follows"
    return lock_runs(tx, {end.job_id for end in of_jobs}, sorted({end.run_id for end in of_jobs}), rule)


def sift(ends: Sequence[ItemEnd], starts: Sequence[ItemStart], rows: Sequence[QueueRow]) -> tuple[Current, set[int]]:
    """What counts, and the items of which something came too late, or twice."""
    live = {row.item_id: row for row in rows}
    current, stale = Current([], [], [], []), set[int]()
    for end in ends:
        row = live.get(end.item_id)
        if row is None or not _is_current(end, row):
            stale.add(end.item_id)
            continue
        del live[end.item_id]  # so that a second end of the same attempt is late
        if end.state != READY or row.cancel_at is not None:
            current.over.append(end)
        else:
            current.again.append((end, row))
    ended = {end.item_id for end in ends}
    for start in starts:
        row = live.get(start.item_id)
        if row is None or not _is_of(start, row):
            stale |= {start.item_id} - ended
        elif start.expires_s is not None and row.node_id is not None:
            current.left.append((start, row))
        elif start.expires_s is None and row.state == ASSIGNED:
            current.began.append(start)
    return current, stale


def write_ends(tx: Tx, current: Current, ground: Ground | None, rule: Rule | None, notices: Notices) -> None:
    decision = None
    if ground is not None and rule is not None:
        runs = understood(ground, (end.run_id for end in current.ends if end.job_id))
        if runs:
            decision = decide(tx, ground, rule, items=with_ends(tx, runs, current.states), runs=runs)
    told = [notice for end in current.ends for notice in notices.get(end.item_id, ())]
    lanes = _moved(tx, [end for end, _ in current.again if end.newer_than])
    tx.lane_ids(assigned_lane(it.work) for it in told)  # before other ids are taken
    tx.rows.disjoint(tables.RUN, tables.ITEM, tables.QUEUE)
    _write_begun(tx, current)
    _write_over(tx, current.over)
    _write_again(tx, current.again, lanes)
    _write_attempts(tx, current.ends)
    if decision is not None:
        write_plan(tx, decision)
    for notice in told:
        put_assignment(tx, notice, Cause.NOTICE)


def _is_current(end: ItemEnd, row: QueueRow) -> bool:
    return _is_of(end, row) and (end.expired_us is None or row.expires_at == end.expired_us)


def _is_of(told: ItemEnd | ItemStart, row: QueueRow) -> bool:
    """Whether it tells of the attempt that is under way. Its number alone may have come again."""
    return row.attempt == told.attempt and row.state != READY and told.round in (None, row.round)


def final_state(end: ItemEnd) -> str:
    """The state of an item that is over; one that would be tried again was asked to stop."""
    return CANCELLED if end.state == READY else str(end.state)


def _write_begun(tx: Tx, current: Current) -> None:
    tx.rows.change(_START, [(it.item_id, it.started_us) for it in current.began])
    asked = [row for _, row in current.left if row.cancel_at is not None]
    stopped = {row.item_id for row in asked}
    left = []
    for it, row in current.left:
        assert it.expires_s is not None
        tx.outside.append((it.item_id, row.attempt))
        if it.item_id not in stopped:
            left.append((it.item_id, it.started_us, it.started_us + round(it.expires_s * 1_000_000)))
    tx.rows.change(_LEAVE, left)
    started = {it.item_id: it.started_us for it, _ in current.left}
    cancel_held(tx, [row._replace(started_at=started[row.item_id]) for row in asked])


def _write_over(tx: Tx, ends: Sequence[ItemEnd]) -> None:
    """Give items their final state."""
    ids = [it.item_id for it in ends]
    tx.rows.remove(tables.QUEUE, ids)
    tx.rows.change(END, [(it.item_id, final_state(it), tx.now_us, it.result, clean(it.message)) for it in ends])
    tx.ended += ids


def _write_again(tx: Tx, ends: Sequence[tuple[ItemEnd, QueueRow]], lanes: Mapping[int, int]) -> None:
    """Make items ready again, after a while, and rather on another node."""
    rows = []
    for it, row in ends:
        not_before = tx.now_us + round(it.delay_s * 1_000_000)
        avoid = it.node_id if it.outcome in AVOIDED else None
        lane_id = lanes.get(it.item_id, it.lane_id)
        rows.append((it.item_id, lane_id, not_before, it.failures, it.losses, avoid))
        whose = (it.item_id, it.run_id, it.job_id, lane_id)
        tx.ready.append(Ready(*whose, row.start_by_at, not_before, it.attempt, it.failures, it.losses, avoid))
    tx.rows.change(_AGAIN, rows)


def _moved(tx: Tx, ends: Sequence[ItemEnd]) -> dict[int, int]:
    """The lanes of items that only a node of a newer release may have from now on."""
    if not ends:
        return {}
    specs = {row.id: row.spec for row in tx.rows.read(tables.LANE, sorted({end.lane_id for end in ends}))}
    wanted = {
        end.item_id: spec
        for end in ends
        if end.lane_id in specs and (spec := for_newer(specs[end.lane_id], end.newer_than)) is not None
    }
    ids = ids_of_specs(tx, wanted.values()) if wanted else {}
    return {item_id: ids[spec] for item_id, spec in wanted.items()}


def _write_attempts(tx: Tx, ends: Sequence[ItemEnd]) -> None:
    rows = []
    for it in ends:
        begun = (it.item_id, it.attempt, it.node, it.round, it.assigned_us, it.started_us)
        rows.append((*begun, tx.now_us, str(it.outcome), it.code, clean(it.message), it.log_bytes))
    tx.rows.insert(tables.ATTEMPT, rows)


async def settle_runs(store: Transactor, rule: Rule, *, after_id: int = 0, limit: int) -> Closed:
    """Decide what follows for runs of jobs whose items have all ended and that are still open: a node that could not
    read them or their jobs has ended the items. Some at a time, in the order of their ids."""
    left = await store.look(lambda tx: tx.ask.unsettled_runs())
    ids = sorted(run_id for run_id in left if run_id > after_id)[:limit]
    count = await store.transact(_settle, ids, rule) if ids else 0
    return Closed(count=count, last_id=ids[-1] if len(ids) == limit else None)


def _settle(tx: Tx, run_ids: Sequence[int], rule: Rule) -> int:
    """Decide what follows for these runs; says how many have moved."""
    owners = {row.job_id for row in tx.rows.read(tables.RUN, run_ids)}
    ground = lock_runs(tx, owners, run_ids, rule)
    runs = understood(ground, run_ids)
    if not runs:
        return 0
    decision = decide(tx, ground, rule, items=with_ends(tx, runs, {}), runs=runs)
    write_plan(tx, decision)
    return len(decision.plan.moves)


def extend(tx: Tx, item_id: int, attempt: int, seconds: float) -> datetime | None:
    """Give an item that is finished from outside more time, from now; none: it is not there any more."""
    rows = tx.lock_queue([item_id])
    tx.read_clock()
    if not any(row.attempt == attempt and row.state == RUNNING and row.node_id is None for row in rows):
        return None
    until_us = tx.now_us + round(seconds * 1_000_000)
    tx.rows.change(_EXTEND, [(item_id, until_us)])
    return from_us(until_us)


def suspect_overlap(tx: Tx, overlaps: Sequence[SuspectedOverlap]) -> None:
    """Add a line to the history of a run for each of these attempts."""
    tx.read_clock()
    for it in overlaps:
        tx.record(OVERLAP_SUSPECTED, overlap_data(it), job_id=it.job_id or None, run_id=it.run_id)
