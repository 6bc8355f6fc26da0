"""Hold: fire nothing of a scope until told otherwise.

    hold    write the scope ──commit──> wait for the locks of its jobs that are due: who fires them has read before
    fire    lock jobs ──> read the scopes ──> leave out what is held ──> decide, write, commit

So when `hold` returns, nothing of the scope fires any more, and firing waits for nobody.
"""

from __future__ import annotations

from sqlalchemy import delete, select

from rota.backends.sql import schema
from rota.backends.sql.held import all_holds, within
from rota.backends.sql.placing import Placing
from rota.backends.sql.transaction import Transaction
from rota.model.cluster import Hold

SLACK_US = 10_000_000
"""Jobs that are due so soon may be under a lock already."""


class Holding(Placing):
    """Scopes of which nothing fires."""

    async def hold(self, tenant: str = "", project: str = "") -> None:
        def write(tx: Transaction) -> None:
            h = schema.held
            tx.read_clock()
            known = select(h.c.at).where(h.c.tenant == tenant, h.c.project == project)
            if tx.conn.execute(known).first() is None:
                row = (tenant, project, tx.now_us, tx.actor)
                self._dialect.insert_missing(tx.conn, h, [row])
                tx.record("cluster.paused", {"tenant": tenant, "project": project})

        def wait(tx: Transaction) -> None:
            tx.read_clock()
            j = schema.job.c
            due = select(j.id).where(j.next_fire_at <= tx.now_us + SLACK_US, *within(tenant, project))
            locked = tx.conn.scalars(self._dialect.locked(due.order_by(j.id))).all()
            self._dialect.touch(tx.conn, [f"job:{job_id}" for job_id in locked])

        await self._transact(write)
        await self._transact(wait)

    async def unhold(self, tenant: str = "", project: str = "") -> bool:
        def work(tx: Transaction) -> bool:
            h = schema.held
            tx.read_clock()
            gone = tx.conn.execute(delete(h).where(h.c.tenant == tenant, h.c.project == project)).rowcount > 0
            if gone:
                tx.record("cluster.resumed", {"tenant": tenant, "project": project})
            return gone

        return await self._transact(work)

    async def holds(self) -> tuple[Hold, ...]:
        return await self._db.read(all_holds)
