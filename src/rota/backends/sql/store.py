"""The store port on a SQL database: each verb is one transaction.

The verbs are in modules by what they are about; each stands on the one before:

    ground -> deciding -> reading -> members -> rounds -> assigning -> finishing -> standing -> pruning -> placing
    -> holding -> alarms

Lock order everywhere: dispatch, job or overlap key, run, item, node; rows of one kind in id order.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection, select, true

from rota.backends.sql import schema
from rota.backends.sql.alarms import Alarms
from rota.backends.sql.commit import PLACED
from rota.backends.sql.coordinator import SqlCoordinator
from rota.backends.sql.held import is_held
from rota.backends.sql.migrate import check_schema, is_current, migrate
from rota.backends.sql.rows import from_us
from rota.errors import StoreRefused
from rota.model.plan import Pending, Upcoming
from rota.ports import Clock


class SqlStore(Alarms):
    """The durable truth in a SQL database."""

    @property
    def hears(self) -> bool:
        return self._dialect.name == "postgresql"

    async def migrate(self) -> None:
        if not await self._db.read(is_current):  # a frozen node that holds the lock must not keep others from starting
            await self._db.exclusively(migrate)

    async def check(self) -> None:
        await self._db.read(check_schema)
        weak = await self.weaknesses()
        if weak and not self._may_forget:
            raise StoreRefused(
                f"this {self._dialect.name} store could lose what it has acknowledged: {'; '.join(weak)}. "
                "To use it all the same, set store.may_forget (ROTA_STORE_MAY_FORGET=true)."
            )

    async def weaknesses(self) -> tuple[str, ...]:
        return tuple(await self._db.read(self._dialect.weaknesses))

    def listen(self, wake: Callable[[str], None]) -> None:
        self._db.listen(wake)

    async def close(self) -> None:
        await self._db.close()

    def coordinator(self, clock: Clock, *, ttl_s: float) -> SqlCoordinator:
        return SqlCoordinator(self._db, clock, ttl_s=ttl_s)

    async def now(self) -> datetime:
        return from_us(await self._db.read(self._dialect.now_us))

    async def probe(self) -> None:
        await self._db.write(lambda conn: self._dialect.reserve(conn, "row", 1))  # ids have gaps anyway

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        return await self._db.read(lambda conn: self._upcoming(conn, within_s, limit))

    def _upcoming(self, conn: Connection, within_s: float, limit: int) -> Upcoming:
        """One statement, because an idle node asks again and again. The clock comes even if no job does."""
        now, j = self._dialect.statement_now_us(), schema.job.c
        soon = select(j.id, j.next_fire_at).where(j.next_fire_at <= now + round(within_s * 1_000_000), ~is_held())
        first = soon.order_by(j.next_fire_at, j.id).limit(limit).subquery()
        placed = select(schema.counter.c.next).where(schema.counter.c.name == PLACED).scalar_subquery()
        moment = select(now.label("now"), placed.label("placed")).subquery()
        found = conn.execute(select(moment, first).select_from(moment.outerjoin(first, true()))).all()
        pending = [
            Pending(job_id=row.id, next_fire_at=from_us(row.next_fire_at)) for row in found if row.id is not None
        ]
        pending.sort(key=lambda it: (it.next_fire_at, it.job_id))
        return Upcoming(now=from_us(int(found[0].now)), pending=tuple(pending), placed=found[0].placed or 0)
