"""Limits, and what is asked about the queue: why a run waits, how much there is of each quota."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, and_, func, or_, select, tuple_

from rota.backends.sql import schema
from rota.backends.sql.leaving import Leaving
from rota.backends.sql.limits import limit_of, put
from rota.backends.sql.members import interrupt_rounds
from rota.backends.sql.queue import READY, queued_of
from rota.backends.sql.rows import to_us
from rota.backends.sql.transaction import Transaction
from rota.errors import Refused
from rota.model.run import Run
from rota.model.standing import Place, QuotaCount, Standing
from rota.model.states import RunState
from rota.model.work import GLOBAL, Lane, Limit, quota_limit

QUOTA = "quota:"


class Queue(Leaving):
    """The queue as people see it."""

    async def limits(self) -> tuple[Limit, ...]:
        return await self._db.read(self._limits)

    async def set_limits(self, limits: Sequence[Limit], removed: Sequence[str] = ()) -> None:
        if GLOBAL in removed:
            raise Refused("the global limit cannot be removed, only set")

        def work(tx: Transaction) -> None:
            interrupt_rounds(tx)
            put(tx, limits, removed)
            tx.is_news = True

        await self._transact(work)

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

    def _places(self, conn: Connection, run_id: int, now_us: int) -> list[Place]:
        q = schema.queue.c
        items = {item.id: item for item in self._items_of(conn, [run_id])}
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
            Place(
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
