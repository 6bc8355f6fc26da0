"""What transactions ask of a SQL database, one statement each; and what is old in it, and how that is forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ColumnElement, Select, Table, and_, bindparam, case, delete, func, or_, select, true, update

from rota.model import tables
from rota.model.dispatch import Ready, Seated, TargetRow
from rota.model.states import Cause, ItemState, RunState
from rota.model.tables import QueueRow
from rota.storage.sql import schema
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.lookups import SqlLookups, has_items, members_query
from rota.transactions.rows import AssignmentFacts, CrowdCount, FiredWith, LiveItem, NamedRun, Tally

READY, ASSIGNED, RUNNING = (str(it) for it in (ItemState.READY, ItemState.ASSIGNED, ItemState.RUNNING))
_ITEM = len(schema.item.columns)
_RUN = len(schema.run.columns)
_READY = ("item_id", "run_id", "job_id", "lane_id", "start_by_at", "not_before_at", "attempt", "failures", "losses")


class SqlQuestions(SqlLookups):
    def due_jobs(self, tenant: str, project: str, until_us: int) -> list[int]:
        j = schema.job.c
        scope = [*([j.tenant == tenant] if tenant else []), *([j.project == project] if project else [])]
        return list(self._rows.conn.scalars(select(j.id).where(j.next_fire_at <= until_us, *scope).order_by(j.id)))

    def crowds(self, keys: Sequence[str]) -> tuple[int, list[CrowdCount]]:
        found = self._rows.conn.execute(_crowds(self._dialect), {"keys": self._dialect.listed(keys)}).all()
        return int(found[0][0]), [CrowdCount(key, state, count) for _, key, state, count in found if key is not None]

    def named_runs(self, keys: Sequence[str]) -> list[NamedRun]:
        found = self._rows.conn.execute(_named_runs(self._dialect), {"keys": self._dialect.listed(keys)})
        return [NamedRun(id_, job_id, state, key, bool(started)) for id_, job_id, state, key, started in found]

    def live_counts(self, job_ids: Sequence[int]) -> dict[int, int]:
        r = schema.run.c
        live = and_(self._dialect.among(r.job_id, job_ids), r.ended_at.is_(None))
        counts = self._rows.conn.execute(select(r.job_id, func.count()).where(live).group_by(r.job_id))
        return {row[0]: row[1] for row in counts}

    def waiting_keys(self, job_ids: Sequence[int]) -> list[str]:
        r = schema.run.c
        mine = self._dialect.among(r.job_id, job_ids)
        waiting = and_(mine, r.ended_at.is_(None), r.state == str(RunState.WAITING))
        return list(self._rows.conn.scalars(select(r.overlap_key).where(waiting).distinct()))

    def last_ends(self, job_id: int, since_us: int, states: Sequence[str], limit: int) -> list[str]:
        r = schema.run.c
        mine = and_(r.job_id == job_id, r.ended_at.is_not(None), r.created_at >= since_us)
        query = select(r.state).where(mine, r.state.in_(states)).order_by(r.ended_at.desc(), r.id.desc())
        return list(self._rows.conn.scalars(query.limit(limit)))

    def live_items(self, run_ids: Sequence[int]) -> list[LiveItem]:
        found = self._rows.conn.execute(_live_items(self._dialect), {"ids": self._dialect.listed(run_ids)})
        return [LiveItem(tables.ItemRow(*row[:_ITEM]), row[_ITEM]) for row in found]

    def fired_with(self, run_ids: Sequence[int]) -> list[FiredWith]:
        r, v = schema.run.c, schema.job_version.c
        versions = schema.run.join(schema.job_version, and_(v.job_id == r.job_id, v.version == r.version))
        columns = (r.job_id, r.version, v.definition, r.id, r.created_at, r.due_at)
        query = select(*columns).select_from(versions).where(self._dialect.among(r.id, run_ids))
        return [FiredWith(*row) for row in self._rows.conn.execute(query)]

    def tally(self, run_ids: Sequence[int]) -> list[Tally]:
        """In two statements: those with an item that has not ended are told from the others without counting."""
        r, i = schema.run.c, schema.item.c
        conn = self._rows.conn
        going = set(
            conn.scalars(select(r.id).where(self._dialect.among(r.id, run_ids), has_items(i.ended_at.is_(None))))
        )
        over = [run_id for run_id in run_ids if run_id not in going]
        found: dict[int, dict[str, int]] = {}
        if over:
            query = select(i.run_id, i.state, func.max(i.ended_at)).group_by(i.run_id, i.state)
            for run_id, state, ended_at in conn.execute(query.where(self._dialect.among(i.run_id, over))):
                found.setdefault(run_id, {})[state] = ended_at
        ended = [Tally(it, frozenset(states), max(states.values()), False) for it, states in found.items()]
        return [*ended, *(Tally(it, frozenset(), None, True) for it in sorted(going))]

    def assignment(self, key: str, quota: str) -> AssignmentFacts:
        row = self._rows.conn.execute(_assignment(self._dialect), {"key": key, "name": quota}).one()
        run = None if row[0] is None else tables.RunRow(*row[:_RUN])
        return AssignmentFacts(int(row[_RUN]), run, row[_RUN + 1] is not None)

    def ready(self) -> list[Ready]:
        return [Ready(*row) for row in self._rows.conn.execute(_WAITING)]

    def seated(self) -> list[Seated]:
        return [Seated(*row) for row in self._rows.conn.execute(_TAKEN)]

    def queue_of(self, node_id: int) -> list[QueueRow]:
        q = schema.queue.c
        query = select(schema.queue).where(q.node_id == node_id).order_by(q.item_id)
        return [QueueRow(*row) for row in self._rows.conn.execute(query)]

    def open_assignments(self, after_id: int, limit: int) -> Sequence[int]:
        r = schema.run.c
        open_ = select(r.id).where(r.job_id == 0, r.ended_at.is_(None), r.id > after_id).order_by(r.id).limit(limit)
        return self._rows.conn.scalars(open_).all()

    def unsettled_runs(self) -> Sequence[int]:
        return self._rows.conn.scalars(unsettled_runs()).all()

    def take_arrivals(self) -> list[tuple[str, str]]:
        return list(self._dialect.taken_arrivals(self._rows.conn))

    def targets(self) -> tuple[int, list[TargetRow]]:
        found = self._rows.conn.execute(members_query(self._dialect, targets=True)).all()
        nodes = [row for row in found if row.id is not None]
        return int(found[0].now), [TargetRow(it.id, it.name, it.joined, it.busy, it.until_at) for it in nodes]

    def living_names(self, now_us: int) -> set[str]:
        n, lease = schema.node.c, schema.lease.c
        return set(self._rows.conn.scalars(select(n.name).where(n.id == lease.node_id, lease.until_at > now_us)))

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


def unsettled_runs() -> Select[Any]:
    """The runs of jobs whose items have all ended. There are few of them, if any, among very many runs: so they are
    looked for job by job, and sorted by who asks. An order or a limit here leads planners through the whole table; so
    does a job's plain id on SQLite, which would then go from runs to jobs."""
    j, r, i = schema.job.c, schema.run.c, schema.item.c
    live = schema.job.join(schema.run, and_(r.job_id == j.id + 0, r.ended_at.is_(None)))
    over = and_(r.state == str(RunState.RUNNING), has_items(), ~has_items(i.ended_at.is_(None)))
    return select(r.id).select_from(live).where(over)


@lru_cache
def _crowds(dialect: Dialect) -> Select[Any]:
    r = schema.run.c
    live = and_(dialect.among_named(r.overlap_key, "keys"), r.ended_at.is_(None))
    counts = select(r.overlap_key, r.state, func.count().label("n")).where(live).group_by(r.overlap_key, r.state)
    moment, found = select(dialect.statement_now_us().label("now")).subquery(), counts.subquery()
    return select(moment.c.now, found).select_from(moment.outerjoin(found, true()))


@lru_cache
def _named_runs(dialect: Dialect) -> Select[Any]:
    r, i, q = schema.run.c, schema.item.c, schema.queue.c
    live = and_(dialect.among_named(r.overlap_key, "keys"), r.ended_at.is_(None))
    given = schema.item.join(schema.queue, q.item_id == i.id)
    started = has_items(q.state.in_((ASSIGNED, RUNNING)), source=given)
    query = select(r.id, r.job_id, r.state, r.overlap_key, started.label("started"))
    return query.where(live).order_by(r.created_at, r.id)


@lru_cache
def _live_items(dialect: Dialect) -> Select[Any]:
    i, q = schema.item.c, schema.queue.c
    items = select(schema.item, q.state.label("live")).outerjoin(schema.queue, q.item_id == i.id)
    return items.where(dialect.among_named(i.run_id, "ids")).order_by(i.run_id, i.task, i.index)


@lru_cache
def _assignment(dialect: Dialect) -> Select[Any]:
    r, c = schema.run.c, schema.limit.c
    moment = select(dialect.statement_now_us().label("now")).subquery()
    known = and_(r.job_id == 0, r.cause == str(Cause.ASSIGN), r.key == bindparam("key"))
    quota = select(c.name).where(c.name == bindparam("name"), c.is_set == 1).scalar_subquery()
    source = moment.outerjoin(schema.run, known)
    return select(*schema.run.columns, moment.c.now, quota.label("quota")).select_from(source)


_WAITING = select(*(schema.queue.c[name] for name in (*_READY, "avoid_id"))).where(schema.queue.c.state == READY)

_TAKEN = select(
    schema.queue.c.item_id,
    schema.queue.c.lane_id,
    schema.queue.c.node_id,
    schema.queue.c.attempt,
    case((schema.queue.c.state == ASSIGNED, schema.queue.c.assigned_at)),
).where(schema.queue.c.state != READY)
