"""Prune: forget what is older, or more, than shall be kept, a small batch at a time.

Whether a slot was fired is known by its job's next instant, so runs may be forgotten. What is live is never touched.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, select

from rota.backends.sql import schema
from rota.backends.sql.alarming import forget_alarms
from rota.backends.sql.lanes import forget_lanes
from rota.backends.sql.standing import Queue
from rota.backends.sql.transaction import RUN, Transaction
from rota.model.standing import Pruned, Retention

ITEMS_MAX = 20_000
"""How many items one batch forgets, or one run more than that."""


class Pruning(Queue):
    """What is forgotten."""

    async def prune(self, wanted: Retention, *, limit: int) -> Pruned:
        return await self._transact(lambda tx: self._prune(tx, wanted, limit))

    async def forgotten(self, run_ids: Sequence[int]) -> Sequence[int]:
        r, c = schema.run.c, schema.counter.c

        def work(conn: Connection) -> list[int]:
            kept = set(conn.scalars(select(r.id).where(self._dialect.among(r.id, run_ids))))
            given = conn.scalar(select(c.next).where(c.name == RUN)) or 0
            return [it for it in run_ids if it < given and it not in kept]

        return await self._db.read(work)

    def _prune(self, tx: Transaction, wanted: Retention, limit: int) -> Pruned:
        tx.read_clock()
        run_ids = self._bounded(tx, self._old_runs(tx, wanted, limit))
        rows = self._forget_runs(tx, run_ids) if run_ids else 0
        history = tx.now_us - _us(wanted.history_s)
        rows += self._forget_grants(tx, history, limit)
        rows += self._forget_lines(tx, history, limit)
        rows += forget_alarms(tx, history, limit)
        rows += self._forget_keys(tx, limit)
        rows += self._forget_nodes(tx, tx.now_us - _us(wanted.age_s), limit)
        rows += forget_lanes(tx.conn, self._dialect, tx.now_us, _us(wanted.age_s), limit)
        return Pruned(run_ids=tuple(run_ids), rows=rows)

    def _old_runs(self, tx: Transaction, wanted: Retention, limit: int) -> list[int]:
        r = schema.run.c
        aged, loose = tx.now_us - _us(wanted.age_s), tx.now_us - _us(max(wanted.age_s, wanted.numbers_s))
        old = and_(r.created_at < aged, r.ended_at < aged, (r.job_id != 0) | (r.ended_at < loose))
        found = list(tx.conn.scalars(select(r.id).where(old).order_by(r.created_at, r.id).limit(limit)))
        if len(found) < limit:
            found += self._surplus(tx, wanted.runs_max, limit - len(found), set(found))
        return found

    def _surplus(self, tx: Transaction, runs_max: int, limit: int, known: set[int]) -> list[int]:
        """The oldest ended runs of jobs that have too many."""
        r = schema.run.c
        ended = and_(r.job_id != 0, r.ended_at.is_not(None))
        full = select(r.job_id).where(ended).group_by(r.job_id).having(func.count() > runs_max).order_by(r.job_id)
        found: list[int] = []
        for job_id in tx.conn.scalars(full.limit(limit)).all():
            newest_first = select(r.id).where(r.job_id == job_id, r.ended_at.is_not(None))
            newest_first = newest_first.order_by(r.created_at.desc(), r.id.desc())
            surplus = tx.conn.scalars(newest_first.offset(runs_max).limit(limit + len(known))).all()
            found += [run_id for run_id in surplus if run_id not in known]
            if len(found) >= limit:
                break
        return found[:limit]

    def _bounded(self, tx: Transaction, run_ids: Sequence[int]) -> list[int]:
        """As many of the runs as have not too many items together, and none that still has a live one."""
        if not run_ids:
            return []
        i, q = schema.item.c, schema.queue.c
        theirs = self._dialect.among(i.run_id, run_ids)
        counts = {
            row[0]: row[1] for row in tx.conn.execute(select(i.run_id, func.count()).where(theirs).group_by(i.run_id))
        }
        live = set(tx.conn.scalars(select(i.run_id).join(schema.queue, q.item_id == i.id).where(theirs).distinct()))
        kept: list[int] = []
        total = 0
        for run_id in run_ids:
            total += counts.get(run_id, 0)
            if run_id not in live and (not kept or total <= ITEMS_MAX):
                kept.append(run_id)
        return kept

    def _forget_runs(self, tx: Transaction, run_ids: Sequence[int]) -> int:
        i, among = schema.item.c, self._dialect.among
        items = select(i.id).where(among(i.run_id, run_ids))
        return _deleted(
            tx,
            (schema.attempt, schema.attempt.c.item_id.in_(items)),
            (schema.event, among(schema.event.c.run_id, run_ids)),
            (schema.item, among(i.run_id, run_ids)),
            (schema.run, among(schema.run.c.id, run_ids)),
        )

    def _forget_grants(self, tx: Transaction, before_us: int, limit: int) -> int:
        """Those of the oldest rounds: all up to the last of the first so many."""
        at = schema.grant.c.at
        oldest = select(at).where(at < before_us).order_by(at).limit(limit).subquery()
        last = tx.conn.scalar(select(func.max(oldest.c.at)))
        return 0 if last is None else _deleted(tx, (schema.grant, at <= last))

    def _forget_lines(self, tx: Transaction, before_us: int, limit: int) -> int:
        """Lines of history that are not about a run: those go with it."""
        e = schema.event.c
        ids = tx.conn.scalars(select(e.id).where(e.run_id.is_(None), e.at < before_us).limit(limit)).all()
        return _deleted(tx, (schema.event, self._dialect.among(e.id, ids))) if ids else 0

    def _forget_keys(self, tx: Transaction, limit: int) -> int:
        """Overlap keys under which nothing is live. Who holds one, or waits for it, makes it anew if need be."""
        o, r = schema.overlap.c, schema.run.c
        live = select(r.id).where(r.overlap_key == o.key, r.ended_at.is_(None)).exists()
        idle = select(o.key).where(~live).order_by(o.key).limit(limit)
        locked = tx.conn.scalars(self._dialect.locked(idle, skip=True)).all()
        if not locked:
            return 0
        theirs = and_(self._dialect.among(r.overlap_key, locked), r.ended_at.is_(None))
        used = set(tx.conn.scalars(select(r.overlap_key).where(theirs)))
        return _deleted(tx, (schema.overlap, self._dialect.among(o.key, [key for key in locked if key not in used])))

    def _forget_nodes(self, tx: Transaction, before_us: int, limit: int) -> int:
        n, q = schema.node.c, schema.queue.c
        gone = tx.conn.scalars(select(n.id).where(n.left_at < before_us).order_by(n.id).limit(limit)).all()
        if not gone:
            return 0
        busy = set(tx.conn.scalars(select(q.node_id).where(self._dialect.among(q.node_id, gone)).distinct()))
        forgotten = self._dialect.among(n.id, [it for it in gone if it not in busy])
        nameless = ~select(n.id).where(n.name == schema.number.c.name).exists()
        return _deleted(tx, (schema.node, forgotten), (schema.number, nameless))


def _deleted(tx: Transaction, *wanted: tuple[Table, ColumnElement[bool]]) -> int:
    return sum(tx.conn.execute(delete(table).where(condition)).rowcount for table, condition in wanted)


def _us(seconds: float) -> int:
    return round(seconds * 1_000_000)
