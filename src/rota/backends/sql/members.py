"""Nodes: join, renew, drain; how they leave is in `leaving.py`.

A node is believed alive while it has a lease row. A renewal touches that row only, on a connection of its own. A node
whose name is taken by a newer incarnation is fenced: it renews no more, and is rescued when its lease is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec
import structlog
from sqlalchemy import BigInteger, Connection, Row, Select, Update, and_, bindparam, delete, or_, select, true, update

from rota.backends.numbers import number_of
from rota.backends.record import LOST
from rota.backends.sql import schema
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.history import LAST, UNSETTLED, Rows, raised, run_through
from rota.backends.sql.reading import Reading
from rota.backends.sql.receipts import NAMED_MAX
from rota.backends.sql.rows import from_us
from rota.backends.sql.transaction import Transaction
from rota.model.dispatch import Ready
from rota.model.node import UNREADABLE, Joined, Members, NewNode, Node, NodeState, Place, settle_us
from rota.model.value import Json, decode, encode

ONLINE, DRAINING, DISCONNECTED, OFFLINE = (str(state) for state in NodeState)
_STATES = frozenset(str(state) for state in NodeState)
NOWHERE = Place(host="", boot_id="", pid_namespace="", pid=0, pid_started=0)

log = structlog.get_logger()


class Membership(Reading):
    """Who is there, and until when."""

    async def join(self, node: NewNode, *, lease_s: float) -> Joined:
        return await self._transact(lambda tx: self._join(tx, node, lease_s))

    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> int | None:
        renewal = {"node": node_id, "for_us": round(lease_s * 1_000_000), "score": round(busy * 100)}

        def work(conn: Connection) -> tuple[bool, tuple[int, int | None, int]]:
            kept = conn.execute(_renewed(self._dialect), renewal).rowcount == 1
            generation, beat, next_id = conn.execute(_STANDING, {"node": node_id}).one()
            return kept, (int(generation), beat, next_id)

        kept, found = await self._db.beat(work)
        await self._look_back(node_id, kept, *found)
        await self._name_what_was_lost()
        return self._heeded if kept else None

    async def settle(self, node_id: int, ended: Sequence[tuple[int, int]]) -> None:
        named: list[Json] = [f"{item_id}.{attempt}" for item_id, attempt in ended[:NAMED_MAX]]

        def work(tx: Transaction) -> None:
            tx.read_clock()
            tx.conn.execute(delete(schema.meta).where(schema.meta.c.name == f"{UNSETTLED}{node_id}"))
            if ended:
                tx.record(LOST, {"node": node_id, "begun_lost": len(ended), "begun": named})
            tx.is_news = True

        await self._transact(work)

    async def raised(self) -> tuple[datetime, str] | None:
        m = schema.meta.c
        value = await self._db.read(lambda conn: conn.scalar(select(m.value).where(m.name == LAST)))
        if value is None:
            return None
        at, _, why = value.partition(" ")
        return from_us(int(at)), why

    async def raise_generation(self, why: str, *, above: int | None = None) -> int:
        def work(tx: Transaction) -> int:
            def run(statement: str) -> Rows:
                found = tx.conn.exec_driver_sql(statement)
                return found.all() if found.returns_rows else ()

            statements = raised(why, now=str(tx.dialect.now_us(tx.conn)), above=above, lock=self._dialect.row_lock)
            return run_through(statements, run)

        generation = await self._transact(work)
        self._heed(generation)
        return generation

    async def _look_back(self, node_id: int, kept: bool, generation: int, beat: int | None, next_id: int) -> None:
        """See whether the store still has what it acknowledged to this node before; if not, raise its generation."""
        known = self._beats.get(node_id, 0)
        seen = self._heeded or generation
        went_back = next_id <= node_id or (beat is not None and beat < known + kept)
        if generation < seen or (generation == seen and went_back):
            why = f"node {node_id} had renewed its lease {known} times, and the store knows of {beat or 0}"
            self._beats[node_id] = known + 1  # if this fails, the next renewal finds the same
            await self.raise_generation(why, above=seen)
        else:
            self._heed(generation)
        self._beats[node_id] = beat or 0

    async def advertise(self, node_id: int, handlers: Sequence[str], digests: Mapping[str, str]) -> None:
        def work(tx: Transaction) -> None:
            n = schema.node.c
            text = tx.conn.scalar(self._dialect.locked(select(n.joined).where(n.id == node_id)))
            if text is None:
                return
            known = decode(text, NewNode)
            now = msgspec.structs.replace(known, handlers=tuple(handlers), digests=dict(digests))
            tx.conn.execute(update(schema.node).where(n.id == node_id).values(joined=encode(now)))
            tx.is_news = True

        await self._transact(work)

    async def retire(self, node_id: int) -> None:
        def work(tx: Transaction) -> None:
            interrupt_rounds(tx)  # when this is committed, no round is under way that would give it something
            tx.read_clock()
            n = schema.node.c
            retired = update(schema.node).where(n.id == node_id, n.state == ONLINE).values(state=DRAINING)
            if tx.conn.execute(retired).rowcount:
                tx.record("node.draining", {"node": node_id})

        await self._transact(work)

    async def evict(self) -> int | None:
        return await self._db.read(self._dialect.evict)

    async def nodes(self, *, gone: bool = False) -> Members:
        return await self._db.read(lambda conn: self._members(conn, gone=gone))

    def _members(self, conn: Connection, *, gone: bool = False) -> Members:
        found = conn.execute(members_query(self._dialect, gone=gone)).all()
        nodes = sorted((_node_of(row) for row in found if row.id is not None), key=lambda it: it.id)
        return Members(now=from_us(int(found[0].now)), nodes=tuple(nodes))

    def _join(self, tx: Transaction, node: NewNode, lease_s: float) -> Joined:
        node_id = self._dialect.reserve(tx.conn, "node", 1)  # two of one name join one after the other
        now = tx.read_clock()
        n, lease = schema.node.c, schema.lease.c
        namesakes = tx.conn.execute(select(n.id, n.joined).where(n.name == node.name, n.left_at.is_(None))).all()
        generation = self._generation(tx.conn)
        for row in namesakes:
            known = joined_of(node.name, row.joined)
            if known.incarnation == node.incarnation:
                return Joined(id=row.id, generation=generation, number=known.number)
        node = msgspec.structs.replace(node, number=self._number(tx, node), lease_s=lease_s)
        fenced = self._dialect.among(lease.node_id, [row.id for row in namesakes])
        if namesakes:
            tx.conn.execute(update(schema.lease).where(fenced).values(fenced=1))
        self._dialect.insert(tx.conn, schema.node, [(node_id, node.name, ONLINE, encode(node), tx.now_us, None)])
        self._dialect.insert(tx.conn, schema.lease, [(node_id, tx.now_us + round(lease_s * 1_000_000), 1, 0, 0)])
        tx.record("node.joined", {"node": node_id, "name": node.name, "at": now.isoformat()})
        tx.is_news = node.seats > 0
        return Joined(id=node_id, generation=generation, number=node.number)

    def _number(self, tx: Transaction, node: NewNode) -> int:
        """Give the node its number; nodes join one after the other."""
        conn, n, it, lease = tx.conn, schema.node.c, schema.number.c, schema.lease.c
        group = it.group_name == node.group
        held = {row.name: row.number for row in conn.execute(select(it.name, it.number).where(group))}
        living = set(conn.scalars(select(n.name).where(n.id == lease.node_id, lease.until_at > tx.now_us)))
        number = number_of(node.name, node.number, held, living)
        if held.get(node.name) != number:
            former = or_(it.name == node.name, it.number == number)
            conn.execute(delete(schema.number).where(group, former))
            self._dialect.insert(conn, schema.number, [(node.group, number, node.name)])
        return number


def lock_dispatch(tx: Transaction) -> Row[Any]:
    """Take the lock under which rounds are made: the first lock of a transaction."""
    return tx.conn.execute(_dispatch_lock(tx.dialect)).one()


def interrupt_rounds(tx: Transaction) -> None:
    """Take the same lock to change what rounds rest on: limits, and who is a member. A round that was decided on before
    that, without the lock, finds the row changed and is not written."""
    d = schema.dispatch.c
    tx.conn.execute(update(schema.dispatch).where(d.id == 1).values(changes=d.changes + 1))


@lru_cache
def _dispatch_lock(dialect: Dialect) -> Select[Any]:
    return dialect.locked(select(schema.dispatch).where(schema.dispatch.c.id == 1))


def has_unsettled(tx: Transaction) -> bool:
    """Whether a node may execute something that the store gave it and has lost. One that has not settled has not moved
    its switches on since the generation was raised, so after a lease they have acted."""
    m, n = schema.meta.c, schema.node.c
    listed = tx.conn.execute(select(m.name, m.value).where(m.name.startswith(UNSETTLED))).all()
    since = {int(row.name.removeprefix(UNSETTLED)): int(row.value) for row in listed}
    if not since:
        return False
    living = select(n.id, n.name, n.joined).join(schema.lease, schema.lease.c.node_id == n.id)
    nodes = tx.conn.execute(living.where(tx.dialect.among(n.id, list(since)))).all()
    now_us = tx.dialect.now_us(tx.conn)
    return any(now_us < since[row.id] + settle_us(joined_of(row.name, row.joined)) for row in nodes)


def give_up(tx: Transaction, node_id: int, state: str) -> None:
    """The node is gone: it has no lease, its name is free, and somebody else makes the next round. Once only; the
    caller has the dispatch lock."""
    n, d = schema.node.c, schema.dispatch.c
    tx.conn.execute(update(schema.dispatch).where(d.id == 1, d.holder == node_id).values(holder=None))
    tx.conn.execute(delete(schema.lease).where(schema.lease.c.node_id == node_id))
    left = update(schema.node).where(n.id == node_id, n.left_at.is_(None))
    if tx.conn.execute(left.values(state=state, left_at=tx.now_us)).rowcount:
        tx.record(f"node.{state}", {"node": node_id})


def ready_of(row: Row[Any]) -> Ready:
    """What a round must know of an item of the queue that is ready."""
    return Ready(
        row.item_id,
        row.run_id,
        row.job_id,
        row.lane_id,
        row.start_by_at,
        row.not_before_at,
        row.attempt,
        row.failures,
        row.losses,
        row.avoid_id,
    )


_STANDING = select(
    schema.meta.c.value.label("generation"),
    select(schema.lease.c.beat).where(schema.lease.c.node_id == bindparam("node")).scalar_subquery().label("beat"),
    select(schema.counter.c.next).where(schema.counter.c.name == "node").scalar_subquery().label("next_id"),
).where(schema.meta.c.name == "generation")
"""What a node compares with what it knows."""


@lru_cache
def _renewed(dialect: Dialect) -> Update:
    lease = schema.lease.c
    until = dialect.statement_now_us() + bindparam("for_us", type_=BigInteger)
    mine = update(schema.lease).where(lease.node_id == bindparam("node"), lease.fenced == 0)
    return mine.values(until_at=until, beat=lease.beat + 1, busy=bindparam("score"))


@lru_cache
def members_query(dialect: Dialect, *, gone: bool = False, targets: bool = False) -> Select[Any]:
    """The clock and the nodes, in one statement: at least one row, with no id if there are no nodes."""
    n, lease, d = schema.node.c, schema.lease.c, schema.drained.c
    now = dialect.statement_now_us()
    executes = or_(d.roles.is_(None), d.roles.contains("executor"))
    drained = select(d.name).where(d.name == n.name, executes).exists()
    source = schema.node.join(schema.lease, lease.node_id == n.id, isouter=gone)
    wanted = select(*schema.node.columns, lease.until_at, lease.beat, lease.busy, drained.label("drained"))
    wanted = wanted.select_from(source)
    if targets:
        wanted = wanted.where(and_(lease.until_at > now, lease.fenced == 0, n.state == ONLINE, ~drained))
    nodes, moment = wanted.subquery(), select(now.label("now")).subquery()
    return select(moment.c.now, nodes).select_from(moment.outerjoin(nodes, true()))


@lru_cache(maxsize=1000)
def joined_of(name: str, text: str) -> NewNode:
    """What a node says of itself; that changes rarely, and is asked for in every round. Of one that is not to be
    understood, its name is known: it is there and may be rescued, but nothing is given to it from here."""
    try:
        return decode(text, NewNode)
    except msgspec.MsgspecError as fault:
        log.error("store.unreadable", record=f"node {name}", reason=str(fault))  # noqa: TRY400 - no traceback
        return NewNode(name=name, incarnation="", place=NOWHERE, version=UNREADABLE)


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
