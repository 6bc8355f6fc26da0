"""What placement needs of the store: the jobs that want an owner, and the offline list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from rota.backends.sql import schema
from rota.backends.sql.commit import PLACED
from rota.backends.sql.members import interrupt_rounds
from rota.backends.sql.pruning import Pruning
from rota.backends.sql.rows import from_us, job_of, to_us
from rota.backends.sql.sets import Insert, Remove
from rota.backends.sql.transaction import Transaction
from rota.model.cluster import Drain, Drains, Placeable, Role
from rota.model.states import JobState


class Placing(Pruning):
    """Jobs to be placed, and nodes that take nothing more."""

    async def placeable(self, known: int) -> Placeable:
        def work(conn: Connection) -> Placeable:
            c, p = schema.counter.c, schema.placed.c
            revision = int(conn.scalar(select(c.next).where(c.name == PLACED)) or 0)
            if revision == known:
                return Placeable(revision=revision)
            return Placeable(revision=revision, jobs=tuple(conn.scalars(select(p.job_id).order_by(p.job_id))))

        return await self._db.read(work)

    async def misplaced(self, *, repair: bool = False) -> int:
        def work(conn: Connection) -> tuple[set[int], set[int]]:
            j = schema.job.c
            enabled = conn.execute(select(schema.job).where(j.state == str(JobState.ENABLED))).all()
            jobs = self._readings.all(enabled, job_of)
            unread = {row.id for row in enabled} - {job.id for job in jobs}  # whether they fire, others know
            wanted = {job.id for job in jobs if job.is_placed}
            listed = set(conn.scalars(select(schema.placed.c.job_id)))
            return wanted - listed, listed - wanted - unread

        def put_right(tx: Transaction) -> int:
            """Who changes jobs waits for the counter, and then goes on from what is written here."""
            self._dialect.reserve(tx.conn, PLACED, 1)
            missing, extra = work(tx.conn)
            tx.write(Insert(schema.placed), [(job_id,) for job_id in sorted(missing)])
            tx.write(Remove(schema.placed, "job_id"), [(job_id,) for job_id in sorted(extra)])
            return len(missing) + len(extra)

        missing, extra = await self._db.read(work)
        return await self._transact(put_right) if repair and (missing or extra) else len(missing) + len(extra)

    async def busy_jobs(self, job_ids: Sequence[int]) -> frozenset[int]:
        r = schema.run.c
        live = select(r.job_id).where(self._dialect.among(r.job_id, job_ids), r.ended_at.is_(None)).distinct()
        return await self._db.read(lambda conn: frozenset(conn.scalars(live)))

    async def drains(self) -> Drains:
        def work(conn: Connection) -> Drains:
            rows = conn.execute(select(schema.drained).order_by(schema.drained.c.name)).all()
            return Drains(now=from_us(self._dialect.now_us(conn)), drains=tuple(_drain_of(row) for row in rows))

        return await self._db.read(work)

    async def drain(self, drains: Sequence[Drain]) -> None:
        def work(tx: Transaction) -> None:
            known = self._listed(tx, [it.name for it in drains])
            for it in drains:
                was = known.get(it.name)
                roles = _sorted({*it.roles, *(() if was is None else was.roles)})
                self._put(tx, it.name, was, roles, keep=it.keep, deadline_at=to_us(it.deadline_at))
            if new := [it.name for it in drains if it.name not in known]:
                tx.record("node.drained", {"names": [*sorted(new)]})

        await self._transact(work)

    async def undrain(self, names: Sequence[str], roles: Sequence[Role]) -> None:
        def work(tx: Transaction) -> None:
            known = self._listed(tx, names)
            for name, was in known.items():
                left = _sorted(set(was.roles) - set(roles))
                self._put(tx, name, was, left, keep=was.keep, deadline_at=to_us(was.deadline_at))
            if known:
                tx.record("node.undrained", {"names": [*sorted(known)]})
                tx.is_news = True

        await self._transact(work)

    def _listed(self, tx: Transaction, names: Iterable[str]) -> dict[str, Drain]:
        """What the list says of these now; no round is under way that would go by it."""
        interrupt_rounds(tx)
        tx.read_clock()
        listed = select(schema.drained).where(self._dialect.among(schema.drained.c.name, list(names)))
        return {row.name: _drain_of(row) for row in tx.conn.execute(listed)}

    def _put(self, tx: Transaction, name: str, was: Drain | None, roles: Sequence[Role], **fields: Any) -> None:
        d, values = schema.drained, {"roles": ",".join(roles), **fields}
        if not roles:
            tx.conn.execute(delete(d).where(d.c.name == name))
        elif was is None:
            tx.conn.execute(d.insert().values(name=name, at=tx.now_us, **values))
        else:
            tx.conn.execute(update(d).where(d.c.name == name).values(values))


def _drain_of(row: Row[Any]) -> Drain:
    words = row.roles.split(",") if row.roles else list(Role)
    roles = tuple(role for role in Role if role in words)  # what else a newer release drains is its own affair
    return Drain(name=row.name, roles=roles, keep=row.keep, deadline_at=from_us(row.deadline_at))


def _sorted(roles: set[Role]) -> list[Role]:
    return [role for role in Role if role in roles]
