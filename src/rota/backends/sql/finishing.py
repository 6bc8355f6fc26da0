"""Finish: write how attempts ended and which have begun, each only while it is the item's current attempt.

Items of assignments are on their own. For those of jobs, the jobs and overlap keys of their runs are locked first; when
the ends are written, a rule says in the same transaction what follows for the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Select, and_, select, update

from rota.backends.record import AVOIDED, OVERLAP_SUSPECTED, overlap_data
from rota.backends.sql import schema
from rota.backends.sql.assigning import Assigning, put_assignment
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.lanes import for_newer, ids_of_specs
from rota.backends.sql.members import DISCONNECTED, give_up, interrupt_rounds, joined_of
from rota.backends.sql.outright import end_outright, may_end_outright
from rota.backends.sql.queue import (
    ASSIGNED,
    CANCELLED,
    READY,
    RUNNING,
    ask_to_stop,
    cancel_held,
    cancel_items,
    clean,
)
from rota.backends.sql.rows import from_us
from rota.backends.sql.sets import Change, Insert, Remove
from rota.backends.sql.transaction import Transaction
from rota.model.dispatch import Finished, ItemEnd, ItemStart, Ready
from rota.model.plan import Rule
from rota.model.standing import Cancelled, Closed
from rota.model.states import Cause, ItemState, RunState
from rota.model.work import Assignment, Overlap

_OUT = Remove(schema.queue, "item_id")
_END = Change(schema.item, ("id",), ("state", "ended_at", "result", "message"))
_AGAIN = Change(
    schema.queue,
    ("item_id",),
    ("not_before_at", "failures", "losses", "avoid_id"),
    fixed="state = 'ready', node_id = NULL, round = NULL, assigned_at = NULL, started_at = NULL, expires_at = NULL",
)
_MOVE = Change(schema.queue, ("item_id",), ("lane_id",))
_START = Change(schema.queue, ("item_id",), ("started_at",), fixed="state = 'running'")
_LEAVE = Change(schema.queue, ("item_id",), ("started_at", "expires_at"), fixed="state = 'running', node_id = NULL")

Guard = Callable[[], bool]
Notices = Mapping[int, Sequence[Assignment]]


class Finishing(Assigning):
    """The ends of attempts, as their nodes, their rescuers or their clients report them."""

    async def finish(
        self,
        ends: Sequence[ItemEnd],
        starts: Sequence[ItemStart] = (),
        *,
        rule: Rule | None = None,
        notices: Notices = {},  # noqa: B006 - never changed
    ) -> Finished:
        def work(tx: Transaction) -> Finished:
            batch = _Batch(ends, starts, notices)
            self._settle(tx, batch, rule)
            return Finished(now_us=tx.now_us, stale=frozenset(batch.stale))

        def outright(tx: Transaction) -> Finished:
            stale = end_outright(tx, ends)
            return Finished(now_us=tx.now_us, stale=frozenset(stale))

        if not starts and not notices and may_end_outright(self._dialect, ends):
            return await self._transact(outright, at_once=True)
        return await self._transact(work)

    async def suspect_overlap(self, overlaps: Sequence[Overlap]) -> None:
        def work(tx: Transaction) -> None:
            tx.read_clock()
            for it in overlaps:
                tx.record(OVERLAP_SUSPECTED, overlap_data(it), job_id=it.job_id or None, run_id=it.run_id)

        await self._transact(work)

    async def rescue(
        self,
        node_id: int,
        beat: int,
        ends: Sequence[ItemEnd],
        *,
        rule: Rule,
        margin_s: float,
        seen_gone: bool = False,
        notices: Notices = {},  # noqa: B006 - never changed
    ) -> bool:
        def work(tx: Transaction) -> bool:
            def is_gone() -> bool:
                lease = schema.lease.c
                row = tx.conn.execute(
                    self._dialect.locked(select(schema.lease).where(lease.node_id == node_id))
                ).first()
                if row is None:
                    return True
                n = schema.node.c
                node = tx.conn.execute(select(n.name, n.joined).where(n.id == node_id)).one()
                tx.read_clock()
                is_void = joined_of(node.name, node.joined).is_void(row.until_at, tx.now_us)
                over = seen_gone or is_void or row.until_at + round(margin_s * 1_000_000) < tx.now_us
                return bool(over and row.beat == beat)

            interrupt_rounds(tx)
            batch = _Batch(ends, (), notices, is_gone)
            self._settle(tx, batch, rule)
            if batch.is_off:
                return False
            q = schema.queue.c
            if tx.conn.scalar(select(q.item_id).where(q.node_id == node_id).limit(1)) is None:
                give_up(tx, node_id, DISCONNECTED)
            return True

        return await self._transact(work)

    async def settle_runs(self, rule: Rule, *, after_id: int = 0, limit: int) -> Closed:
        left = await self._db.read(lambda conn: conn.scalars(unsettled_runs()).all())
        ids = sorted(run_id for run_id in left if run_id > after_id)[:limit]
        count = 0
        if ids:
            done = await self._decide(self._owners(ids), rule, run_ids=ids, first=lambda: ids)
            count = len(done.plan.moves)
        return Closed(count=count, last_id=ids[-1] if len(ids) == limit else None)

    async def cancel(self, run_ids: Sequence[int], *, rule: Rule) -> Cancelled:
        def work(tx: Transaction) -> Cancelled:
            r = schema.run.c
            found = tx.conn.execute(select(r.id, r.job_id).where(self._dialect.among(r.id, run_ids))).all()
            of_jobs = [row.id for row in found if row.job_id]
            counts: list[tuple[int, int]] = []

            def stop() -> Sequence[int]:
                tx.read_clock()
                counts.append(self._stop(tx, [row.id for row in found]))
                return of_jobs

            if of_jobs:
                self._decided(tx, self._owners(of_jobs), rule, run_ids=of_jobs, first=stop)
            else:
                stop()
            (ended, asked), *_ = counts
            return Cancelled(ended=ended, asked=asked)

        return await self._transact(work)

    async def extend(self, item_id: int, attempt: int, seconds: float) -> datetime | None:
        def work(tx: Transaction) -> datetime | None:
            tx.read_clock()
            q, until_us = schema.queue.c, tx.now_us + round(seconds * 1_000_000)
            outside = update(schema.queue).where(
                q.item_id == item_id, q.attempt == attempt, q.state == RUNNING, q.node_id.is_(None)
            )
            found = tx.conn.execute(outside.values(expires_at=until_us)).rowcount
            return from_us(until_us) if found else None

        return await self._transact(work)

    def _settle(self, tx: Transaction, batch: _Batch, rule: Rule | None) -> None:
        run_ids = sorted({end.run_id for end in batch.ends if end.job_id})
        if not run_ids:
            batch.write(tx)
            return
        assert rule is not None, "the runs of jobs need a rule that says what follows"
        job_ids = sorted({end.job_id for end in batch.ends if end.job_id})
        wanted = self._dialect.among(schema.job.c.id, job_ids)
        self._decided(
            tx,
            lambda conn: self._readable_jobs(conn, wanted)[0],
            rule,
            run_ids=run_ids,
            first=lambda: batch.write(tx),
        )

    def _stop(self, tx: Transaction, run_ids: Sequence[int]) -> tuple[int, int]:
        """Also items whose run has not begun: they have no place in the queue."""
        r, i = schema.run.c, schema.item.c
        theirs = self._dialect.among(r.id, run_ids)
        going = select(r.id, r.job_id).where(theirs, r.cancel_at.is_(None), r.ended_at.is_(None))
        new = tx.conn.execute(self._dialect.locked(going.order_by(r.id))).all()
        for row in new:
            tx.record("run.cancel_asked", {}, job_id=row.job_id or None, run_id=row.id)
        if new:
            asked_now = update(schema.run).where(self._dialect.among(r.id, [row.id for row in new]))
            tx.conn.execute(asked_now.values(cancel_at=tx.now_us))
        waiting = tx.conn.scalars(
            select(i.id).where(self._dialect.among(i.run_id, run_ids), i.state == str(ItemState.WAITING))
        ).all()
        cancel_items(tx, waiting)
        ended, asked = ask_to_stop(tx, run_ids)
        return ended + len(waiting), asked


def unsettled_runs() -> Select[Any]:
    """The runs of jobs whose items have all ended. There are few of them, if any, among very many runs: so they are
    looked for job by job, and sorted by who asks. An order or a limit here leads planners through the whole table; so
    does a job's plain id on SQLite, which would then go from runs to jobs."""
    j, r, i = schema.job.c, schema.run.c, schema.item.c
    theirs = select(i.id).where(i.run_id == r.id)
    live = schema.job.join(schema.run, and_(r.job_id == j.id + 0, r.ended_at.is_(None)))
    over = and_(r.state == str(RunState.RUNNING), theirs.exists(), ~theirs.where(i.ended_at.is_(None)).exists())
    return select(r.id).select_from(live).where(over)


class _Live(NamedTuple):
    """What the queue says of an item, and the clock when it did."""

    item_id: int
    attempt: int
    state: str
    start_by_at: int
    node_id: int | None
    expires_at: int | None
    cancel_at: int | None
    round: int | None
    now: int


class _Batch:
    """Ends and starts on their way into the store."""

    def __init__(
        self, ends: Sequence[ItemEnd], starts: Sequence[ItemStart], notices: Notices, guard: Guard | None = None
    ) -> None:
        self.ends = ends
        self._starts = starts
        self._notices = notices
        self._guard = guard
        self.stale: set[int] = set()
        self.is_off = False
        """Whether the guard said no: nothing was written."""

    def write(self, tx: Transaction) -> list[int]:
        """Write what is still current. Returns the runs of jobs that it concerned."""
        rows = _locked(tx, {end.item_id for end in self.ends} | {start.item_id for start in self._starts})
        if self._guard is not None and not self._guard():
            self.is_off = True
            return []
        current = self._current(rows)
        self._begin(tx, rows)
        over = [end for end, row in current if end.state != READY or row.cancel_at is not None]
        _end(tx, over)
        _retry(tx, [(end, row) for end, row in current if end.state == READY and row.cancel_at is None])
        _write_attempts(tx, [end for end, _ in current])
        for notice in (it for end, _ in current for it in self._notices.get(end.item_id, ())):
            put_assignment(tx, notice, Cause.NOTICE)
        return sorted({end.run_id for end, _ in current if end.job_id})

    def _current(self, rows: dict[int, _Live]) -> list[tuple[ItemEnd, _Live]]:
        """Those that count; their rows are taken, so that a second end of the same attempt is late."""
        current = []
        for end in self.ends:
            row = rows.get(end.item_id)
            if row is None or not _is_current(end, row):
                self.stale.add(end.item_id)
                continue
            del rows[end.item_id]
            current.append((end, row))
        return current

    def _begin(self, tx: Transaction, rows: dict[int, _Live]) -> None:
        ended = {end.item_id for end in self.ends}
        began: list[tuple[int, int]] = []
        left: list[tuple[int, int, int]] = []
        for start in self._starts:
            row = rows.get(start.item_id)
            if row is None or not _is_of(start, row):
                if start.item_id not in ended:
                    self.stale.add(start.item_id)
            elif start.expires_s is not None and row.node_id is not None:
                left.append((start.item_id, start.started_us, start.started_us + round(start.expires_s * 1_000_000)))
            elif start.expires_s is None and row.state == ASSIGNED:
                began.append((start.item_id, start.started_us))
        tx.write(_START, began)
        tx.write(_LEAVE, left)
        tx.outside += [(item_id, rows[item_id].attempt) for item_id, *_ in left]
        _drop_asked(tx, [item_id for item_id, *_ in left if rows[item_id].cancel_at is not None])


def _locked(tx: Transaction, item_ids: set[int]) -> dict[int, _Live]:
    """Lock the rows of items, and read the clock."""
    if item_ids:
        rows = tx.dialect.fetched(tx.conn.execute(_rows_to_lock(tx.dialect), {"ids": tx.dialect.listed(item_ids)}))
        found = {row[0]: _Live._make(row) for row in rows}
    else:
        found = {}
    if found:
        tx.now_us = int(next(iter(found.values())).now)
    else:
        tx.read_clock()
    return found


@lru_cache
def _rows_to_lock(dialect: Dialect) -> Select[Any]:
    q = schema.queue.c
    columns = (q.item_id, q.attempt, q.state, q.start_by_at, q.node_id, q.expires_at, q.cancel_at, q.round)
    now = dialect.statement_now_us().label("now")
    wanted = select(*columns, now).where(dialect.among_named(q.item_id, "ids")).order_by(q.item_id)
    return dialect.whole(dialect.locked(wanted))


def _is_current(end: ItemEnd, row: _Live) -> bool:
    return _is_of(end, row) and (end.expired_us is None or row.expires_at == end.expired_us)


def _is_of(told: ItemEnd | ItemStart, row: _Live) -> bool:
    """Whether it tells of the attempt that is under way. Its number alone may have come again."""
    return row.attempt == told.attempt and row.state != READY and told.round in (None, row.round)


def _end(tx: Transaction, ends: Sequence[ItemEnd]) -> None:
    """Give items their final state. One that was asked to stop is not tried again."""
    if not ends:
        return
    rows = [
        (it.item_id, CANCELLED if it.state == READY else str(it.state), tx.now_us, it.result, clean(it.message))
        for it in ends
    ]
    ids = [it.item_id for it in ends]
    tx.write(_OUT, [(item_id,) for item_id in ids])
    tx.write(_END, rows)
    tx.ended += ids


def _retry(tx: Transaction, ends: Sequence[tuple[ItemEnd, _Live]]) -> None:
    """Make items ready again, after a while, and rather on another node."""
    rows = []
    lanes = _moved(tx, [end for end, _ in ends if end.newer_than])
    for it, row in ends:
        not_before = tx.now_us + round(it.delay_s * 1_000_000)
        avoid = it.node_id if it.outcome in AVOIDED else None
        rows.append((it.item_id, not_before, it.failures, it.losses, avoid))
        whose = (it.item_id, it.run_id, it.job_id, lanes.get(it.item_id, it.lane_id))
        tx.ready.append(Ready(*whose, row.start_by_at, not_before, it.attempt, it.failures, it.losses, avoid))
    tx.write(_AGAIN, rows)
    tx.write(_MOVE, list(lanes.items()))


def _moved(tx: Transaction, ends: Sequence[ItemEnd]) -> dict[int, int]:
    """The lanes of items that only a node of a newer release may have from now on."""
    if not ends:
        return {}
    c = schema.lane.c
    found = tx.conn.execute(select(c.id, c.spec).where(tx.dialect.among(c.id, {end.lane_id for end in ends})))
    specs = {row.id: row.spec for row in found}
    wanted = {
        end.item_id: spec
        for end in ends
        if end.lane_id in specs and (spec := for_newer(specs[end.lane_id], end.newer_than)) is not None
    }
    ids = ids_of_specs(tx.conn, tx.dialect, wanted.values(), tx.now_us) if wanted else {}
    return {item_id: ids[spec] for item_id, spec in wanted.items()}


def _write_attempts(tx: Transaction, ends: Sequence[ItemEnd]) -> None:
    rows = [
        (
            it.item_id,
            it.attempt,
            it.node,
            it.round,
            it.assigned_us,
            it.started_us,
            tx.now_us,
            str(it.outcome),
            it.code,
            clean(it.message),
            it.log_bytes,
        )
        for it in ends
    ]
    tx.write(Insert(schema.attempt), rows)


def _drop_asked(tx: Transaction, item_ids: Sequence[int]) -> None:
    """Items that were asked to stop while they were still on their node."""
    if item_ids:
        wanted = tx.dialect.among(schema.queue.c.item_id, item_ids)
        cancel_held(tx, tx.conn.execute(select(schema.queue).where(wanted)).all())
