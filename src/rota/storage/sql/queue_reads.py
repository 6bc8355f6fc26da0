"""What is read of the queue, the limits, the nodes and the rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, bindparam, func, or_, select, tuple_

from rota.model.cluster import Drains
from rota.model.dispatch import Grant, Granted, Pulse
from rota.model.node import Members, Node, NodeState
from rota.model.readable import reads
from rota.model.records import (
    drain_of,
    from_us,
    item_of,
    joined_of,
    lane_as_known,
    lane_of,
    limit_of,
    queued_of,
    to_us,
)
from rota.model.run import Item, Run
from rota.model.standing import ItemStanding, QuotaCount, Standing
from rota.model.states import ItemState, RunState
from rota.model.value import decode
from rota.model.work import Lane, Limit, Queued, quota_limit
from rota.storage.sql import schema
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.questions import SqlQuestions, members_query
from rota.storage.sql.rows import SqlRows
from rota.storage.sql.run_reads import SqlRunReads

QUOTA = "quota:"
READY, RUNNING, ONLINE = str(ItemState.READY), str(ItemState.RUNNING), str(NodeState.ONLINE)
_STATES = frozenset(str(state) for state in NodeState)


class SqlQueueReads(SqlRunReads):
    """The queue, limits, nodes and rounds as others see them."""

    async def limits(self) -> tuple[Limit, ...]:
        return await self._db.read(self._limits)

    async def queued(
        self,
        *,
        item_ids: Sequence[int] | None = None,
        node_id: int | None = None,
        expired: bool = False,
        ahead_s: float = 0.0,
        limit: int = 1000,
    ) -> tuple[Queued, ...]:
        q = schema.queue.c
        query = select(schema.queue).order_by(q.item_id).limit(limit)
        if item_ids is not None:
            query = query.where(self._dialect.among(q.item_id, item_ids))
        if node_id is not None:
            query = query.where(q.node_id == node_id)
        if expired:
            until = self._dialect.statement_now_us() + round(ahead_s * 1_000_000)
            query = query.where(q.state == RUNNING, q.node_id.is_(None), q.expires_at <= until)
        return tuple(self._readings.all(await self._db.read(lambda conn: conn.execute(query).all()), queued_of))

    async def asked_to_cancel(self, item_ids: Sequence[int]) -> tuple[int, ...]:
        q = schema.queue.c
        query = select(q.item_id).where(self._dialect.among(q.item_id, item_ids), q.cancel_at.is_not(None))
        return tuple(await self._db.read(lambda conn: conn.scalars(query).all()))

    async def pulse(self, node_id: int) -> Pulse:
        row = await self._db.read(lambda conn: conn.execute(_pulse(self._dialect), {"node": node_id}).one())
        return Pulse(
            now_us=int(row.now),
            holder=row.holder,
            next_us=row.next_at,
            arrived_us=row.arrived,
            granted=row.granted or 0,
        )

    async def granted(self, node_id: int, after_round: int) -> tuple[Grant, ...]:
        wanted = {"node": node_id, "after": after_round}
        found = await self._db.read(lambda conn: conn.execute(_GRANTED, wanted).all())
        return tuple(self._readings.all(found, _grant))  # what is missing, its node gives back when it looks

    async def nodes(self, *, gone: bool = False) -> Members:
        return await self._db.read(lambda conn: self._members(conn, gone=gone))

    def _members(self, conn: Connection, *, gone: bool = False) -> Members:
        found = conn.execute(members_query(self._dialect, gone=gone)).all()
        nodes = sorted((_node_of(row) for row in found if row.id is not None), key=lambda it: it.id)
        return Members(now=from_us(int(found[0].now)), nodes=tuple(nodes))

    async def drains(self) -> Drains:
        def work(conn: Connection) -> Drains:
            rows = conn.execute(select(schema.drained).order_by(schema.drained.c.name)).all()
            return Drains(now=from_us(self._dialect.now_us(conn)), drains=tuple(drain_of(row) for row in rows))

        return await self._db.read(work)

    async def generation(self) -> int:
        m = schema.meta.c
        return int(await self._db.read(lambda conn: conn.scalars(select(m.value).where(m.name == "generation")).one()))

    async def statistics(self) -> tuple[QuotaCount, ...]:
        return await self._db.read(self._statistics)

    async def standing(self, run_id: int) -> Standing:
        return await self._db.read(lambda conn: self._standing(conn, run_id))

    async def unstarted(self, run_ids: Sequence[int]) -> frozenset[int]:
        if not run_ids:
            return frozenset()
        r, i, q = schema.run.c, schema.item.c, schema.queue.c
        begun = (
            select(i.id)
            .select_from(schema.item.outerjoin(schema.queue, q.item_id == i.id))
            .where(i.run_id == r.id, or_(q.item_id.is_(None), q.attempt > 0))
        )
        mine = and_(self._dialect.among(r.id, run_ids), r.state == str(RunState.RUNNING))
        query = select(r.id).where(mine, ~begun.exists())
        return frozenset(await self._db.read(lambda conn: conn.scalars(query).all()))

    async def seats_taken(self) -> Mapping[int, int]:
        return await self._db.read(self._seated)

    def _limits(self, conn: Connection, *, remembered: bool = False) -> tuple[Limit, ...]:
        """What was set; `remembered`: also what is only known of the starts of jobs."""
        c = schema.limit.c
        query = select(schema.limit).order_by(c.name)
        found = conn.execute(query if remembered else query.where(c.is_set == 1))
        return tuple(self._readings.all(found, limit_of))

    def _all_items(self, conn: Connection, run_id: int) -> list[Item]:
        found = SqlQuestions(SqlRows(conn, self._dialect)).live_items([run_id])
        return self._readings.all([(*it.item, it.live) for it in found], item_of)

    def _lanes_of(self, rows: Sequence[Any]) -> dict[int, Lane]:
        """Lanes by their ids. Of one of a newer release, as much as is understood."""
        lanes = {row.id: lane for row, lane in self._readings.pairs(rows, lane_of)}
        unread = [row for row in rows if row.id not in lanes]
        return lanes | {row.id: known for row in unread if (known := lane_as_known(row)) is not None}

    def _lanes_by_id(self, conn: Connection, lane_ids: Sequence[int]) -> dict[int, Lane]:
        c = schema.lane.c
        found = conn.execute(select(c.id, c.spec).where(self._dialect.among(c.id, set(lane_ids))))
        return self._lanes_of(found.all())

    def _counts(self, conn: Connection) -> list[tuple[Lane, str, int]]:
        q = schema.queue.c
        rows = conn.execute(select(q.lane_id, q.state, func.count()).group_by(q.lane_id, q.state)).all()
        lanes = self._lanes_by_id(conn, [row[0] for row in rows])
        return [(lanes[lane_id], state, count) for lane_id, state, count in rows if lane_id in lanes]

    def _statistics(self, conn: Connection) -> tuple[QuotaCount, ...]:
        """Quotas that were set are there even if nothing of them is live."""
        names = [limit.name.removeprefix(QUOTA) for limit in self._limits(conn) if limit.name.startswith(QUOTA)]
        counts: dict[tuple[str, str], list[int]] = {_pair(name): [0, 0] for name in names}
        for lane, state, count in self._counts(conn):
            counts.setdefault((lane.tenant, lane.quota), [0, 0])[state != READY] += count
        return tuple(
            QuotaCount(tenant=tenant, quota=quota, ready=ready, running=running)
            for (tenant, quota), (ready, running) in sorted(counts.items())
        )

    def _standing(self, conn: Connection, run_id: int) -> Standing:
        members = self._members(conn)
        runs = self._derived(conn, self._runs_by_id(conn, [run_id]))
        running: Counter[str] = Counter()
        for lane, state, count in self._counts(conn):
            if state != READY:
                running.update(dict.fromkeys(lane.limits, count))
        return Standing(
            now=members.now,
            run=runs[0] if runs else None,
            places=tuple(self._places(conn, run_id, to_us(members.now))),
            running=dict(running),
            limits=self._limits(conn, remembered=True),
            nodes=members.nodes,
            seated=self._seated(conn),
            before=self._before(conn, runs[0]) if runs else (),
        )

    def _places(self, conn: Connection, run_id: int, now_us: int) -> list[ItemStanding]:
        q = schema.queue.c
        items = {item.id: item for item in self._all_items(conn, run_id)}
        mine = conn.execute(select(schema.queue).where(self._dialect.among(q.item_id, items)).order_by(q.item_id)).all()
        if not mine:
            return []
        line = conn.execute(
            select(q.item_id, q.lane_id)
            .where(q.state == READY, q.not_before_at <= now_us)
            .order_by(q.start_by_at, q.not_before_at, q.item_id)
        ).all()
        lanes = self._lanes_by_id(conn, [row.lane_id for row in (*mine, *line)])
        ahead = _ahead(line, lanes, set(items))
        return [
            ItemStanding(
                item=items[row.item_id],
                queued=queued,
                lane=lanes[row.lane_id],
                ahead=ahead.get(row.item_id, (0, 0))[0],
                ahead_in_quota=ahead.get(row.item_id, (0, 0))[1],
            )
            for row, queued in self._readings.pairs(mine, queued_of)
            if row.lane_id in lanes and row.item_id in items
        ]

    def _seated(self, conn: Connection) -> dict[int, int]:
        q = schema.queue.c
        rows = conn.execute(select(q.node_id, func.count()).where(q.node_id.is_not(None)).group_by(q.node_id))
        return {row[0]: row[1] for row in rows}

    def _before(self, conn: Connection, run: Run) -> tuple[int, ...]:
        if run.state is not RunState.WAITING:
            return ()
        r = schema.run.c
        older = tuple_(r.created_at, r.id) < (to_us(run.created_at), run.id)
        query = select(r.id).where(r.overlap_key == run.overlap_key, r.ended_at.is_(None), older)
        return tuple(conn.scalars(query.order_by(r.created_at, r.id)))


def _ahead(line: Sequence[Any], lanes: dict[int, Lane], mine: set[int]) -> dict[int, tuple[int, int]]:
    """For each of our items in line: how many come before it, and how many of those are of its quota."""
    found: dict[int, tuple[int, int]] = {}
    in_quota: Counter[str] = Counter()
    quotas = {lane_id: quota_limit(lane.tenant, lane.quota) for lane_id, lane in lanes.items()}
    for place, (item_id, lane_id) in enumerate(line):
        quota = quotas.get(lane_id, "")
        if item_id in mine:
            found[item_id] = place, in_quota[quota]
        in_quota[quota] += 1
    return found


def _pair(name: str) -> tuple[str, str]:
    tenant, _, quota = name.partition("/")
    return tenant, quota


@lru_cache
def _pulse(dialect: Dialect) -> Select[Any]:
    d, a, g = schema.dispatch.c, schema.arrival.c, schema.grant.c
    mine = select(func.max(g.round)).where(g.node_id == bindparam("node"))
    return select(
        dialect.statement_now_us().label("now"),
        d.holder,
        d.next_at,
        select(func.min(a.at)).scalar_subquery().label("arrived"),
        mine.scalar_subquery().label("granted"),
    ).where(d.id == 1)


_GRANTED = (
    select(schema.grant.c.round, schema.grant.c.at, schema.grant.c.data)
    .where(schema.grant.c.node_id == bindparam("node"), schema.grant.c.round > bindparam("after"))
    .order_by(schema.grant.c.round)
)


@reads("grant of round")
def _grant(row: Any) -> Grant:
    return Grant(round=row.round, at_us=row.at, items=decode(row.data, tuple[Granted, ...]))


def _node_of(row: Row[Any]) -> Node:
    known = row.state in _STATES and not (row.state == ONLINE and row.drained)
    state = NodeState(row.state) if known else NodeState.DRAINING  # so is one in a state that a newer release knows
    return Node(
        id=row.id,
        joined=joined_of(row.name, row.joined),
        state=state,
        busy=0.0 if row.busy is None else row.busy / 100,
        joined_at=from_us(row.joined_at),
        left_at=from_us(row.left_at),
        lease_until=from_us(row.until_at),
        beat=row.beat or 0,
    )
