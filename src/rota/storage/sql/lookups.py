"""What is asked of a SQL database outside transactions: one statement each, nothing locked."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    FromClause,
    Select,
    and_,
    bindparam,
    func,
    literal,
    null,
    or_,
    select,
    true,
    tuple_,
)

from rota.model import tables
from rota.model.dispatch import Pulse
from rota.model.plan import JobFilter, RunFilter
from rota.model.states import ItemState, RunState
from rota.model.tables import AlarmRow, AttemptRow, DeliveryRow, EventRow, JobRow, LeaseRow, NodeRow, QueueRow, RunRow
from rota.storage.sql import schema
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.rows import SqlRows
from rota.transactions.rows import FoundNode, Values

READY, RUNNING, ONLINE = str(ItemState.READY), str(ItemState.RUNNING), "online"
TOGETHER = 50
"""Up to so many items are read with their runs in one statement, each with all of its run: a round trip costs more."""


class SqlLookups:
    """The questions that are asked outside transactions."""

    def __init__(self, rows: SqlRows) -> None:
        self._rows = rows
        self._dialect = rows.dialect

    def upcoming(self, within_us: int, limit: int) -> tuple[int, int, list[tuple[int, int]]]:
        """One statement, because an idle node asks again and again. The clock comes even if no job does."""
        now, j = self._dialect.statement_now_us(), schema.job.c
        soon = select(j.id, j.next_fire_at).where(j.next_fire_at <= now + within_us, ~_is_held())
        first = soon.order_by(j.next_fire_at, j.id).limit(limit).subquery()
        placed = select(schema.counter.c.next).where(schema.counter.c.name == "placed").scalar_subquery()
        moment = select(now.label("now"), placed.label("placed")).subquery()
        found = self._all(select(moment, first).select_from(moment.outerjoin(first, true())))
        pending = sorted((row.next_fire_at, row.id) for row in found if row.id is not None)
        return int(found[0].now), found[0].placed or 0, [(job_id, at) for at, job_id in pending]

    def job_page(self, wanted: JobFilter) -> list[JobRow]:
        j = schema.job.c
        query = select(schema.job).where(j.state.in_([str(it) for it in wanted.states]), j.id > wanted.after_id)
        if wanted.ids is not None:
            query = query.where(self._dialect.among(j.id, wanted.ids))
        if wanted.tenant is not None:
            query = query.where(j.tenant == wanted.tenant)
        if wanted.project is not None:
            query = query.where(j.project == wanted.project)
        return [JobRow(*row) for row in self._all(query.order_by(j.id).limit(wanted.limit))]

    def run_page(self, wanted: RunFilter, job_ids: Sequence[int] | None) -> list[RunRow]:
        r = schema.run.c
        query = select(schema.run).order_by(r.created_at.desc(), r.id.desc()).limit(wanted.limit)
        if job_ids is not None:
            query = query.where(self._dialect.among(r.job_id, job_ids))
        else:  # which MariaDB sorts them all for, as long as it has not noticed that they have become many
            query = query.with_hint(schema.run, "FORCE INDEX (rota_run_by_age)", "mysql")
        if wanted.states:
            query = query.where(r.state.in_([str(it) for it in wanted.states]))
        if wanted.before_id is not None:
            last = self._rows.conn.execute(select(r.created_at, r.id).where(r.id == wanted.before_id)).first()
            if last is not None:
                query = query.where(tuple_(r.created_at, r.id) < tuple_(literal(last.created_at), literal(last.id)))
        return [RunRow(*row) for row in self._all(query)]

    def live_runs(self, tenant: str, after_id: int, limit: int) -> Sequence[int]:
        r, j, i = schema.run.c, schema.job.c, schema.item.c
        of_jobs = select(r.id).join(schema.job, j.id == r.job_id).where(j.tenant == tenant)
        prefix = f"{tenant}/"
        loose = select(r.id).where(
            r.job_id == 0, func.substr(r.key, 1, len(prefix)) == prefix, has_items(i.ended_at.is_(None))
        )
        live = and_(r.ended_at.is_(None), r.id > after_id)
        both = of_jobs.where(live).union_all(loose.where(live)).subquery()
        return self._rows.conn.scalars(select(both.c.id).order_by(both.c.id).limit(limit)).all()

    def unstarted(self, run_ids: Sequence[int]) -> Sequence[int]:
        r, q = schema.run.c, schema.queue.c
        queued = schema.item.outerjoin(schema.queue, q.item_id == schema.item.c.id)
        begun = has_items(or_(q.item_id.is_(None), q.attempt > 0), source=queued)
        mine = and_(self._dialect.among(r.id, run_ids), r.state == str(RunState.RUNNING))
        return self._rows.conn.scalars(select(r.id).where(mine, ~begun)).all()

    def kept_runs(self, run_ids: Sequence[int]) -> Sequence[int]:
        r = schema.run.c
        return self._rows.conn.scalars(select(r.id).where(self._dialect.among(r.id, run_ids))).all()

    def loads(self, item_ids: Sequence[int], run_ids: Sequence[int]) -> tuple[Values, Values]:
        conn, listed = self._rows.conn, self._dialect.listed
        if run_ids and 0 < len(item_ids) <= TOGETHER:
            both = conn.execute(_items_and_runs(self._dialect), {"ids": listed(item_ids), "run_ids": listed(run_ids)})
            found = [tuple(row) for row in both]
            return [row[:_WIDTH] for row in found], list({row[_WIDTH:] for row in found if row[_WIDTH] is not None})
        items = self._dialect.fetched(conn.execute(_items_by_id(self._dialect), {"ids": listed(item_ids)}))
        return [tuple(row) for row in items], self._rows.read(tables.RUN, run_ids)

    def attempts_of(self, run_id: int) -> list[AttemptRow]:
        a, i = schema.attempt.c, schema.item.c
        query = select(schema.attempt).join(schema.item, i.id == a.item_id).where(i.run_id == run_id)
        return [AttemptRow(*row) for row in self._all(query.order_by(a.ended_at, a.item_id, a.attempt))]

    def last_lines(self, run_id: int | None, job_id: int | None, limit: int) -> list[EventRow]:
        e = schema.event.c
        query = select(schema.event).order_by(e.at.desc(), e.id.desc()).limit(limit)
        if run_id is not None:
            query = query.where(e.run_id == run_id)
        if job_id is not None:
            query = query.where(e.job_id == job_id)
        return [EventRow(*row) for row in self._all(query)]

    def queued(
        self, item_ids: Sequence[int] | None, node_id: int | None, expired_us: int | None, *, limit: int
    ) -> list[QueueRow]:
        q = schema.queue.c
        query = select(schema.queue).order_by(q.item_id).limit(limit)
        if item_ids is not None:
            query = query.where(self._dialect.among(q.item_id, item_ids))
        if node_id is not None:
            query = query.where(q.node_id == node_id)
        if expired_us is not None:
            until = self._dialect.statement_now_us() + expired_us
            query = query.where(q.state == RUNNING, q.node_id.is_(None), q.expires_at <= until)
        return [QueueRow(*row) for row in self._all(query)]

    def asked_to_cancel(self, item_ids: Sequence[int]) -> Sequence[int]:
        q = schema.queue.c
        query = select(q.item_id).where(self._dialect.among(q.item_id, item_ids), q.cancel_at.is_not(None))
        return self._rows.conn.scalars(query).all()

    def queue_counts(self) -> list[tuple[int, str, int]]:
        q = schema.queue.c
        return [tuple(row) for row in self._all(select(q.lane_id, q.state, func.count()).group_by(q.lane_id, q.state))]

    def line(self) -> list[tuple[int, int]]:
        q = schema.queue.c
        able = and_(q.state == READY, q.not_before_at <= self._dialect.statement_now_us())
        query = select(q.item_id, q.lane_id).where(able).order_by(q.start_by_at, q.not_before_at, q.item_id)
        return [tuple(row) for row in self._all(query)]

    def seats_taken(self) -> dict[int, int]:
        q = schema.queue.c
        query = select(q.node_id, func.count()).where(q.node_id.is_not(None)).group_by(q.node_id)
        return {row[0]: row[1] for row in self._all(query)}

    def pulse(self, node_id: int) -> Pulse:
        row = self._rows.conn.execute(_pulse(self._dialect), {"node": node_id}).one()
        return Pulse(
            now_us=int(row.now),
            holder=row.holder,
            round=row.round,
            next_us=row.next_at,
            arrived_us=row.arrived,
            granted=row.granted or 0,
        )

    def grants(self, node_id: int, after_round: int) -> list[tuple[int, int, str]]:
        found = self._rows.conn.execute(_GRANTED, {"node": node_id, "after": after_round})
        return [tuple(row) for row in found]

    def members(self, *, gone: bool) -> tuple[int, list[FoundNode]]:
        found = self._all(members_query(self._dialect, gone=gone))
        return int(found[0].now), [_member(row[1:]) for row in found if row.id is not None]

    def alarms(self, *, unsorted: bool, open_: bool, limit: int) -> list[AlarmRow]:
        a = schema.alarm.c
        query = select(schema.alarm).limit(limit)
        if unsorted:
            query = query.where(a.sorted_at.is_(None)).order_by(a.at, a.id)
        elif open_:
            query = query.where(a.is_open == 1).order_by(a.at, a.id)
        else:
            query = query.order_by(a.at.desc(), a.id.desc())
        return [AlarmRow(*row) for row in self._all(query)]

    def deliveries(self, limit: int, *, pending: bool) -> list[tuple[DeliveryRow, AlarmRow]]:
        a, d = schema.alarm.c, schema.delivery.c
        columns = (*schema.delivery.columns, *schema.alarm.columns)
        both = schema.delivery.join(schema.alarm, a.id == d.alarm_id)
        if not pending:
            latest = select(*columns).select_from(both).order_by(a.at.desc(), a.id.desc(), d.rule).limit(limit)
            return [_delivery(row) for row in self._all(latest)]
        # The oldest of each rule: one that has many must not hide those of the others.
        place = func.row_number().over(partition_by=d.rule, order_by=(a.at, a.id)).label("place")
        found = select(*columns, place).select_from(both).where(d.ended_at.is_(None)).subquery()
        oldest = select(found).where(found.c.place <= limit).order_by(found.c.rule, found.c.at, found.c.id)
        return [_delivery(row[:-1]) for row in self._all(oldest)]

    def _all(self, query: Select[Any]) -> Sequence[Any]:
        return self._rows.conn.execute(query).all()


def _member(row: Any) -> FoundNode:
    """From the columns of a node, those of its lease, which may be null, and whether it is drained."""
    *both, drained = row
    node, lease = both[:_NODE], both[_NODE:]
    return FoundNode(NodeRow(*node), None if lease[0] is None else LeaseRow(*lease), bool(drained))


_NODE = len(schema.node.columns)


def _delivery(row: Any) -> tuple[DeliveryRow, AlarmRow]:
    return DeliveryRow(*row[:_DELIVERY]), AlarmRow(*row[_DELIVERY:])


_DELIVERY = len(schema.delivery.columns)


def _is_held() -> ColumnElement[bool]:
    """Whether a job's tenant, its project or everything is held, inside a query about jobs."""
    h, j = schema.held.c, schema.job.c
    return (
        select(h.at).where(h.tenant.in_(["", j.tenant]), h.project.in_(["", j.project])).correlate(schema.job).exists()
    )


_WIDTH = len(schema.item.columns) + 1
"""How many values there are of an item, its live state included."""


def has_items(*conditions: ColumnElement[bool], source: FromClause = schema.item) -> ColumnElement[bool]:
    """Whether a run has items of which this is true. EXISTS would say the same, but planners make a join of it: as
    statistics know hardly any open item among a million, PostgreSQL then read them all, for fifty runs."""
    i = schema.item.c
    first = select(i.id).select_from(source).where(i.run_id == schema.run.c.id, *conditions).limit(1)
    return first.correlate(schema.run).scalar_subquery().is_not(None)


@lru_cache
def _items_and_runs(dialect: Dialect) -> Select[Any]:
    i, r = schema.item.c, schema.run.c
    both = schema.item.outerjoin(schema.run, and_(r.id == i.run_id, dialect.among_named(r.id, "run_ids")))
    columns = (*schema.item.columns, null(), *schema.run.columns)
    return select(*columns).select_from(both).where(dialect.among_named(i.id, "ids"))


@lru_cache
def _items_by_id(dialect: Dialect) -> Select[Any]:
    """Without their live states: nobody asks for them here, and the join would look through what left the queue."""
    return dialect.whole(select(schema.item, null()).where(dialect.among_named(schema.item.c.id, "ids")))


@lru_cache
def _pulse(dialect: Dialect) -> Select[Any]:
    d, a, g = schema.dispatch.c, schema.arrival.c, schema.grant.c
    mine = select(func.max(g.round)).where(g.node_id == bindparam("node"))
    return select(
        dialect.statement_now_us().label("now"),
        d.holder,
        d.round,
        d.next_at,
        select(func.min(a.at)).scalar_subquery().label("arrived"),
        mine.scalar_subquery().label("granted"),
    ).where(d.id == 1)


_GRANTED = (
    select(schema.grant.c.round, schema.grant.c.at, schema.grant.c.data)
    .where(schema.grant.c.node_id == bindparam("node"), schema.grant.c.round > bindparam("after"))
    .order_by(schema.grant.c.round)
)


@lru_cache
def members_query(dialect: Dialect, *, gone: bool = False, targets: bool = False) -> Select[Any]:
    """The clock and the nodes, in one statement: at least one row, with no id if there are no nodes."""
    n, lease, d = schema.node.c, schema.lease.c, schema.drained.c
    now = dialect.statement_now_us()
    executes: ColumnElement[bool] = or_(d.roles.is_(None), d.roles.contains("executor"))
    drained = select(d.name).where(d.name == n.name, executes).exists()
    source = schema.node.join(schema.lease, lease.node_id == n.id, isouter=gone)
    wanted = select(*schema.node.columns, *schema.lease.columns, drained.label("drained"))
    wanted = wanted.select_from(source)
    if targets:
        wanted = wanted.where(and_(lease.until_at > now, lease.fenced == 0, n.state == ONLINE, ~drained))
    nodes, moment = wanted.subquery(), select(now.label("now")).subquery()
    return select(moment.c.now, nodes).select_from(moment.outerjoin(nodes, true()))
