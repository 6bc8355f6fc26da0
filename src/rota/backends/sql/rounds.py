"""Rounds: who has the dispatch lock gives ready items to nodes.

The lock is a statement of its own; all that is counted is read in later ones (M6, M7). A board that knows the last
round of this very holder and epoch learns what arrived; any other is rebuilt from the queue, after the arrivals were
emptied and never before: what comes between the two is learned twice, which does no harm, instead of never.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Select, bindparam, case, func, select

from rota.backends.readable import reads
from rota.backends.sql import schema
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.limits import limit_of, remember
from rota.backends.sql.members import Membership, has_unsettled, joined_of, lock_dispatch, members_query
from rota.backends.sql.queue import ASSIGNED, READY, RUNNING
from rota.backends.sql.sets import Change, Insert, Remove
from rota.backends.sql.transaction import Transaction
from rota.backends.sql.unlocked import look, write
from rota.model.dispatch import (
    Arrival,
    ArrivalKind,
    Board,
    Given,
    Grant,
    Granted,
    Pulse,
    Ready,
    Round,
    Seated,
    Target,
)
from rota.model.value import decode, encode
from rota.model.work import Limit

_GIVE = Change(
    schema.queue,
    ("item_id", "attempt"),
    ("node_id", "round", "assigned_at"),
    fixed="state = 'assigned', attempt = t.attempt + 1",
    where="t.state = 'ready'",
)
_GRANT = Insert(schema.grant)
_STATE = Change(schema.dispatch, ("id",), ("holder", "epoch", "round", "next_at"))


class Rounds(Membership):
    """Dispatch, and what nodes read of it."""

    _is_settled = True
    """Whether no node executes what the store has lost, as far as the last round under the lock knows."""

    async def dispatch(self, node_id: int, board: Board, *, batch_max: int) -> Round:
        tries: list[Transaction] = []

        def begin(tx: Transaction) -> None:
            if tries:
                board.forget()  # what it learned and gave was rolled back
            tries.append(tx)

        def work(tx: Transaction) -> Round:
            begin(tx)
            return self._round(tx, node_id, board, batch_max)

        def unlocked(tx: Transaction) -> Round | None:
            begin(tx)
            return None if board.epoch is None else self._unlocked_round(tx, node_id, board, batch_max)

        try:
            done = None
            if self._dialect.writes_in_one and board.epoch is not None and not board.is_rated and self._is_settled:
                done = await self._transact(unlocked, at_once=True)
                tries.clear()
            return await self._transact(work) if done is None else done
        except BaseException:
            board.forget()
            raise

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

    def _round(self, tx: Transaction, node_id: int, board: Board, batch_max: int) -> Round:
        lock = lock_dispatch(tx)
        arrivals = self._dialect.taken_arrivals(tx.conn)
        learned = self._learned(arrivals)
        took_over = (lock.holder, lock.epoch, lock.round) != (node_id, board.epoch, board.round) or learned is None
        epoch = lock.epoch + took_over
        if took_over:
            board.forget()
        if took_over or lock.changes != board.changes:  # others remember starts without counting a change
            board.set_limits(self._all_limits(tx))
            board.changes = lock.changes
        if took_over or learned is None:
            self._rebuild(tx, board)
        else:
            self._learn(tx, board, learned)
        if board.unbegun:
            board.begin(self._begun(tx, board.unbegun))
        board.epoch = epoch
        if took_over or not self._is_settled:  # a generation that was raised is a take-over
            self._is_settled = not has_unsettled(tx)
        targets = self._targets(tx)
        plan = board.plan(tx.now_us, targets if self._is_settled else [], batch_max)
        number = lock.round + 1
        remember(tx, plan.limits)
        is_new = bool(plan.given or arrivals or took_over)
        board.round = lock.round + is_new
        if is_new or plan.next_us != lock.next_at:
            tx.write(_STATE, [(1, node_id, epoch, lock.round + is_new, plan.next_us)])
        grants = _grants(plan.given, number, tx.now_us)
        tx.write(_GRANT, _grant_rows(grants, node_id))
        given = self._given(tx, board, plan.given, number)
        if len(given) < len(plan.given):
            grants = _grants(given, number, tx.now_us)
            tx.write(Remove(schema.grant, "round"), [(number,)])
            tx.write(_GRANT, _grant_rows(grants, node_id))
        tx.woken |= grants.keys() - {node_id}
        return Round(
            round=lock.round + is_new,
            now_us=tx.now_us,
            took_over=took_over,
            given=len(given),
            more=len(plan.given) >= batch_max or len(given) < len(plan.given),
            arrivals=len(arrivals),
            next_us=plan.next_us,
            grants=grants,
        )

    def _unlocked_round(self, tx: Transaction, node_id: int, board: Board, batch_max: int) -> Round | None:
        """A round as `unlocked` says; none if it must be made under the lock."""
        seen = look(tx)
        known = (node_id, board.epoch, board.round, board.changes)
        if (seen.holder, seen.epoch, seen.round, seen.changes) != known:
            return None
        learned = self._learned([(kind, data) for _, kind, data in seen.arrivals])
        if learned is None:
            return None
        self._learn(tx, board, learned)
        if board.is_rated:  # by what just arrived: starts must be remembered, which this write does not
            board.forget()
            return None
        plan = board.plan(seen.now_us, seen.targets, batch_max)
        is_new = bool(plan.given or seen.arrivals)
        number = seen.round + is_new
        grants = _grants(plan.given, number, seen.now_us)
        if (is_new or plan.next_us != seen.next_us) and not write(tx, seen, number, plan.next_us, plan.given, grants):
            board.forget()
            return None
        board.round = number
        return Round(
            round=number,
            now_us=seen.now_us,
            given=len(plan.given),
            more=len(plan.given) >= batch_max,
            arrivals=len(seen.arrivals),
            next_us=plan.next_us,
            grants=grants,
        )

    def _learned(self, arrivals: Sequence[tuple[str, str | bytes]]) -> list[Arrival] | None:
        """What has arrived; none if something of it is not to be understood, and the queue must be asked."""
        learned = self._readings.all(arrivals, _arrival)
        return learned if len(learned) == len(arrivals) else None

    def _learn(self, tx: Transaction, board: Board, learned: Sequence[Arrival]) -> None:
        self._know_lanes(tx, board, {item.lane_id for arrival in learned for item in arrival.ready})
        lanes = board.lanes
        if any(item.lane_id not in lanes for arrival in learned for item in arrival.ready):
            learned = [it._replace(ready=[item for item in it.ready if item.lane_id in lanes]) for it in learned]
        board.take(learned)

    def _all_limits(self, tx: Transaction) -> list[Limit]:
        """One that cannot be read counts as full."""
        rows = tx.conn.execute(select(schema.limit)).all()
        read = self._readings.all(rows, limit_of)
        if len(read) < len(rows):
            known = {limit.name for limit in read}
            read += [Limit(name=row.name, cap=0) for row in rows if row.name not in known]
        return read

    def _rebuild(self, tx: Transaction, board: Board) -> None:
        """The seats are read first: an item that is given back between the two statements is counted, then told."""
        q = schema.queue.c
        given_us = case((q.state == ASSIGNED, q.assigned_at))
        taken = select(q.item_id, q.lane_id, q.node_id, q.attempt, given_us).where(q.state != READY)
        seated = [Seated(*row) for row in tx.conn.execute(taken)]
        ready = [Ready(*row) for row in tx.conn.execute(_WAITING)]
        self._know_lanes(tx, board, {it.lane_id for it in ready} | {it.lane_id for it in seated})
        lanes = board.lanes
        board.rebuild([it for it in ready if it.lane_id in lanes], [it for it in seated if it.lane_id in lanes])

    def _begun(self, tx: Transaction, item_ids: Collection[int]) -> list[tuple[int, int, int]]:
        """Which of these have begun, and when."""
        theirs = self._dialect.among(schema.queue.c.item_id, item_ids)
        return [(row.item_id, row.attempt, row.started_at) for row in tx.conn.execute(_BEGUN.where(theirs))]

    def _know_lanes(self, tx: Transaction, board: Board, lane_ids: set[int]) -> None:
        unknown = lane_ids - board.lanes.keys()
        if unknown:
            c = schema.lane.c
            found = tx.conn.execute(select(c.id, c.spec).where(self._dialect.among(c.id, unknown)))
            board.lanes.update(self._lanes_of(found.all()))

    def _targets(self, tx: Transaction) -> list[Target]:
        """Read the clock, and the executors that may be given something."""
        found = tx.conn.execute(members_query(self._dialect, targets=True)).all()
        tx.now_us = int(found[0].now)
        nodes = [(row, joined_of(row.name, row.joined)) for row in found if row.id is not None]
        return [
            Target(row.id, row.name, node.group, node.seats, frozenset(node.handlers), row.busy / 100, node.version)
            for row, node in nodes
            if node.takes_items and not node.is_void(row.until_at, tx.now_us)
        ]

    def _given(self, tx: Transaction, board: Board, given: Sequence[Given], number: int) -> Sequence[Given]:
        """Write decisions. Items that were cancelled meanwhile are dropped."""
        rows = [(it.ready.item_id, it.ready.attempt, it.node_id, number, tx.now_us) for it in given]
        if tx.changed(_GIVE, rows) == len(rows):
            return given
        q = schema.queue.c
        ids = [it.ready.item_id for it in given]
        written = select(q.item_id).where(self._dialect.among(q.item_id, ids), q.round == number, q.state == ASSIGNED)
        kept = set(tx.conn.scalars(written))
        board.refused([item_id for item_id in ids if item_id not in kept])
        return [it for it in given if it.ready.item_id in kept]


_WAITING = select(
    *(
        schema.queue.c[name]
        for name in (
            "item_id",
            "run_id",
            "job_id",
            "lane_id",
            "start_by_at",
            "not_before_at",
            "attempt",
            "failures",
            "losses",
            "avoid_id",
        )
    )
).where(schema.queue.c.state == READY)


_BEGUN = select(schema.queue.c.item_id, schema.queue.c.attempt, schema.queue.c.started_at).where(
    schema.queue.c.state == RUNNING, schema.queue.c.started_at.is_not(None)
)


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


@reads("arrival")
def _arrival(told: tuple[str, str | bytes]) -> Arrival:
    kind, data = told
    return _arrived(kind, data)


def _arrived(kind: str, data: str | bytes) -> Arrival:
    if kind == ArrivalKind.READY:
        return Arrival(ArrivalKind.READY, ready=decode(data, list[Ready]))
    if kind == ArrivalKind.OUTSIDE:
        return Arrival(ArrivalKind.OUTSIDE, left=decode(data, list[tuple[int, int]]))
    return Arrival(ArrivalKind(kind), item_ids=decode(data, list[int]))


def _grant_rows(grants: Mapping[int, Grant], by: int) -> list[tuple[int, int, int, int, str]]:
    return [(it, grant.round, grant.at_us, by, encode(grant.items)) for it, grant in grants.items()]


def _grants(given: Sequence[Given], number: int, now_us: int) -> dict[int, Grant]:
    items: dict[int, list[Granted]] = {}
    for position, (it, node_id) in enumerate(given):
        granted = Granted(
            position, it.item_id, it.run_id, it.job_id, it.lane_id, it.attempt + 1, it.failures, it.losses
        )
        items.setdefault(node_id, []).append(granted)
    return {node_id: Grant(round=number, at_us=now_us, items=tuple(its)) for node_id, its in items.items()}
