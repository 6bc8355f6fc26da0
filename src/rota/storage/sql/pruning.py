"""What is old in a SQL database, and how it is forgotten."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Table, and_, delete, func, or_, select, update

from rota.storage.sql import schema
from rota.storage.sql.rows import SqlRows


class SqlPruning:
    """The questions of pruning."""

    def __init__(self, rows: SqlRows) -> None:
        self._rows = rows
        self._dialect = rows.dialect

    def old_runs(self, ended_us: int, numbers_us: int, limit: int) -> list[int]:
        r = schema.run.c
        old = and_(r.created_at < ended_us, r.ended_at < ended_us, or_(r.job_id != 0, r.ended_at < numbers_us))
        return list(self._rows.conn.scalars(select(r.id).where(old).order_by(r.created_at, r.id).limit(limit)))

    def surplus_runs(self, runs_max: int, limit: int, known: set[int]) -> list[int]:
        r, conn = schema.run.c, self._rows.conn
        ended = and_(r.job_id != 0, r.ended_at.is_not(None))
        full = select(r.job_id).where(ended).group_by(r.job_id).having(func.count() > runs_max).order_by(r.job_id)
        found: list[int] = []
        for job_id in conn.scalars(full.limit(limit)).all():
            newest_first = select(r.id).where(r.job_id == job_id, r.ended_at.is_not(None))
            newest_first = newest_first.order_by(r.created_at.desc(), r.id.desc())
            surplus = conn.scalars(newest_first.offset(runs_max).limit(limit + len(known))).all()
            found += [run_id for run_id in surplus if run_id not in known]
            if len(found) >= limit:
                break
        return found[:limit]

    def item_counts(self, run_ids: Sequence[int]) -> tuple[dict[int, int], set[int]]:
        i, q, conn = schema.item.c, schema.queue.c, self._rows.conn
        theirs = self._dialect.among(i.run_id, run_ids)
        counted = conn.execute(select(i.run_id, func.count()).where(theirs).group_by(i.run_id))
        live = select(i.run_id).join(schema.queue, q.item_id == i.id).where(theirs).distinct()
        return {row[0]: row[1] for row in counted}, set(conn.scalars(live))

    def forget_runs(self, run_ids: Sequence[int]) -> int:
        i, among = schema.item.c, self._dialect.among
        items = select(i.id).where(among(i.run_id, run_ids))
        return self._deleted(
            (schema.attempt, schema.attempt.c.item_id.in_(items)),
            (schema.event, among(schema.event.c.run_id, run_ids)),
            (schema.item, among(i.run_id, run_ids)),
            (schema.run, among(schema.run.c.id, run_ids)),
        )

    def forget_grants(self, before_us: int, limit: int) -> int:
        """Those of the oldest rounds: all up to the last of the first so many."""
        at = schema.grant.c.at
        oldest = select(at).where(at < before_us).order_by(at).limit(limit).subquery()
        last = self._rows.conn.scalar(select(func.max(oldest.c.at)))
        return 0 if last is None else self._deleted((schema.grant, at <= last))

    def forget_lines(self, before_us: int, limit: int) -> int:
        e = schema.event.c
        ids = self._rows.conn.scalars(select(e.id).where(e.run_id.is_(None), e.at < before_us).limit(limit)).all()
        return self._deleted((schema.event, self._dialect.among(e.id, ids))) if ids else 0

    def forget_alarms(self, before_us: int, limit: int) -> int:
        a, d = schema.alarm.c, schema.delivery.c
        old = select(a.id).where(a.at < before_us, a.is_open == 0).order_by(a.at).limit(limit)
        ids = self._rows.conn.scalars(old).all()
        if not ids:
            return 0
        self._deleted((schema.delivery, self._dialect.among(d.alarm_id, ids)))
        return self._deleted((schema.alarm, self._dialect.among(a.id, ids)))

    def forget_keys(self, limit: int) -> int:
        o, r, conn = schema.overlap.c, schema.run.c, self._rows.conn
        live = select(r.id).where(r.overlap_key == o.key, r.ended_at.is_(None)).exists()
        idle = select(o.key).where(~live).order_by(o.key).limit(limit)
        locked = conn.scalars(self._dialect.locked(idle, skip=True)).all()
        if not locked:
            return 0
        theirs = and_(self._dialect.among(r.overlap_key, locked), r.ended_at.is_(None))
        used = set(conn.scalars(select(r.overlap_key).where(theirs)))
        return self._deleted((schema.overlap, self._dialect.among(o.key, [key for key in locked if key not in used])))

    def forget_nodes(self, before_us: int, limit: int) -> int:
        n, q, conn = schema.node.c, schema.queue.c, self._rows.conn
        gone = conn.scalars(select(n.id).where(n.left_at < before_us).order_by(n.id).limit(limit)).all()
        if not gone:
            return 0
        busy = set(conn.scalars(select(q.node_id).where(self._dialect.among(q.node_id, gone)).distinct()))
        forgotten = self._dialect.among(n.id, [it for it in gone if it not in busy])
        nameless = ~select(n.id).where(n.name == schema.number.c.name).exists()
        return self._deleted((schema.node, forgotten), (schema.number, nameless))

    def forget_lanes(self, now_us: int, before_us: int, limit: int) -> int:
        c, q, conn, among = schema.lane.c, schema.queue.c, self._rows.conn, self._dialect.among
        conn.execute(update(schema.lane).where(c.used_at.is_(None)).values(used_at=now_us))  # of an earlier release
        unused = c.used_at < before_us
        old = conn.scalars(select(c.id).where(unused).order_by(c.id).limit(limit)).all()
        if not old:
            return 0
        busy = set(conn.scalars(select(q.lane_id).where(among(q.lane_id, old)).distinct()))
        if busy:  # so that they are not looked at again before long: the queue has no index for this
            conn.execute(update(schema.lane).where(among(c.id, busy)).values(used_at=now_us))
        idle = [it for it in old if it not in busy]
        return self._deleted((schema.lane, and_(among(c.id, idle), unused))) if idle else 0

    def _deleted(self, *wanted: tuple[Table, ColumnElement[bool]]) -> int:
        return sum(self._rows.conn.execute(delete(table).where(condition)).rowcount for table, condition in wanted)
