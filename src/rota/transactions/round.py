"""Rounds: who has the dispatch lock gives ready items to nodes.

The lock is a statement of its own; all that is counted is read in later ones, for a statement's snapshot can be older
than the lock it waited for. A board that knows the last round of this very holder and epoch learns what arrived; any
other is rebuilt from the queue, after the arrivals were emptied and never before: what comes between the two is learned
twice, which does no harm, instead of never.

The board is what the holder knows: the epoch of the lock under which it was filled (none: it knows nothing), the last
round, and up to which number of changes it knows limits and members. It counts what it gives as seated at once, so it
is forgotten if that was not written, with the ids of lanes, which a store that was set back gives again.

How a round is read and written is a `RoundIO`: under the lock, as here, or as a store can do it in fewer statements.
What it decides is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from rota.core.dispatch.board import Rounds
from rota.model import tables
from rota.model.dispatch import (
    Arrival,
    ArrivalKind,
    Draft,
    Given,
    Grant,
    Granted,
    Ready,
    Round,
    Seen,
    Target,
    TargetRow,
)
from rota.model.readable import reads
from rota.model.records import joined_of
from rota.model.tables import Change
from rota.model.value import decode, encode
from rota.transactions.lanes import lanes_by_id
from rota.transactions.limits import all_limits, remember
from rota.transactions.members import has_unsettled
from rota.transactions.queue import ASSIGNED, READY, RUNNING
from rota.transactions.tx import RoundIO, Transactor, Tx

_STATE = Change(tables.DISPATCH, ("id",), ("holder", "epoch", "round", "next_at"))
_GIVE = Change(
    tables.QUEUE,
    ("item_id", "attempt"),
    ("node_id", "round", "assigned_at"),
    fixed=(("state", ASSIGNED),),
    raised=("attempt",),
    where=(("state", READY),),
)


class LastRound(NamedTuple):
    """The round after which a node decided to make the next: who made it, and its number."""

    holder: int | None
    number: int


class LockedRound:
    """Under the dispatch lock: on every store. Who had to wait for the lock may be late: `me` takes over from another
    node only if that one has made no round since `last`. Else each of two would take over what the other has just
    learned anew, which costs more than a round, and go on so for as long as both have something to wait for."""

    takes_over = True

    def __init__(self, me: int, last: LastRound | None) -> None:
        self._me = me
        self._last = last

    def look(self, tx: Tx) -> Seen | None:
        (row,) = tx.lock(tables.DISPATCH, [1])
        if self._last is not None and row.holder not in (None, self._me) and (row.holder, row.round) != self._last:
            return None
        arrivals = [(0, kind, data) for kind, data in tx.ask.take_arrivals()]
        return Seen(row.holder, row.epoch, row.round, row.changes, row.next_at, arrivals)

    def targets(self, tx: Tx, seen: Seen) -> tuple[int, Sequence[TargetRow]]:
        return tx.ask.targets()

    def write(self, tx: Tx, seen: Seen, draft: Draft) -> Collection[int]:
        plan, grants = draft.plan, draft.grants
        remember(tx, plan.limits)
        tx.rows.change(_STATE, [(1, draft.node_id, draft.epoch, draft.number, plan.next_us)])
        tx.rows.insert(tables.GRANT, _grant_rows(grants, draft.node_id))
        given = [(it.ready.item_id, it.ready.attempt, it.node_id, draft.number, draft.now_us) for it in plan.given]
        kept = tx.rows.changed(_GIVE, given)
        if len(kept) < len(given):  # cancelled meanwhile
            tx.rows.remove(tables.GRANT, [(node_id, draft.number) for node_id in grants])
            left = grants_of([it for it in plan.given if it.ready.item_id in kept], draft.number, draft.now_us)
            tx.rows.insert(tables.GRANT, _grant_rows(left, draft.node_id))
        tx.woken |= grants.keys() - {draft.node_id}
        return kept


_OVERTAKEN = Round(round=0, now_us=0, took_over=False, given=0, more=False, arrivals=0, next_us=None, grants={})


async def dispatch(
    store: Transactor, node_id: int, board: Rounds, *, batch_max: int, last: LastRound | None = None
) -> Round:
    """One round: lock, learn, decide, write the grants. Any failure leaves the board forgetful, and so does another
    node that has made a round since `last`: then nothing is done."""
    shortcut = store.shortcuts.round
    try:
        if shortcut is not None and board.epoch is not None and not board.is_rated and store.memory.is_settled:
            done = await store.write_once(make_round, shortcut, node_id, board, batch_max)
            if done is not None:
                return done
        done = await store.transact(make_round, LockedRound(node_id, last), node_id, board, batch_max)
    except BaseException:
        board.forget()
        raise
    return done or _OVERTAKEN


def make_round(tx: Tx, io: RoundIO, node_id: int, board: Rounds, batch_max: int) -> Round | None:
    """Give ready items to nodes. None: it must be made under the lock, or by another node."""
    if tx.attempt > 1:
        board.forget()  # what it learned and gave was rolled back
    if not io.takes_over and board.epoch is None:
        return None
    seen = io.look(tx)
    if seen is None:
        board.forget()
        return None
    took_over = _catch_up(tx, io, node_id, board, seen)
    if took_over is None:
        return None
    draft = _planned(tx, io, seen, node_id, board, batch_max, took_over=took_over)
    plan, kept = draft.plan, set[int]()
    if draft.number > seen.round or plan.next_us != seen.next_us:
        written = io.write(tx, seen, draft)
        if written is None:
            board.forget()
            return None
        kept = set(written)
    grants = draft.grants
    if len(kept) < len(plan.given):
        board.refused([it.ready.item_id for it in plan.given if it.ready.item_id not in kept])
        grants = grants_of([it for it in plan.given if it.ready.item_id in kept], draft.number, draft.now_us)
    board.round = draft.number
    return Round(
        round=draft.number,
        now_us=draft.now_us,
        took_over=took_over,
        given=len(kept),
        more=len(plan.given) >= batch_max or len(kept) < len(plan.given),
        arrivals=len(seen.arrivals),
        next_us=plan.next_us,
        grants=grants,
    )


def _catch_up(tx: Tx, io: RoundIO, node_id: int, board: Rounds, seen: Seen) -> bool | None:
    """Let the board know all that there is. Returns whether it was filled anew: another has made the last round, or
    something of what arrived is not to be understood. None: it may not be, or what just arrived has a rate, and what
    it remembers of starts must be written."""
    learned = tx.readings.all([(kind, data) for _, kind, data in seen.arrivals], _arrival)
    is_known = (seen.holder, seen.epoch, seen.round) == (node_id, board.epoch, board.round)
    took_over = not is_known or len(learned) < len(seen.arrivals)
    if not io.takes_over and (took_over or seen.changes != board.changes):
        return None
    if took_over:
        board.forget()
    if took_over or seen.changes != board.changes:  # others remember starts without counting a change
        board.set_limits(all_limits(tx))
        board.changes = seen.changes
    if took_over:
        _rebuild(tx, board)
    else:
        _learn(tx, board, learned)
    if board.is_rated and not io.takes_over:
        board.forget()
        return None
    return took_over


def _planned(tx: Tx, io: RoundIO, seen: Seen, node_id: int, board: Rounds, batch_max: int, *, took_over: bool) -> Draft:
    """Decide a round, on a board that knows everything."""
    if board.unbegun:
        board.begin(_begun(tx, board.unbegun))
    board.epoch = seen.epoch + took_over
    if took_over or not tx.memory.is_settled:  # a generation that was raised is a take-over
        tx.memory.is_settled = not has_unsettled(tx)
    tx.now_us, nodes = io.targets(tx, seen)
    plan = board.plan(tx.now_us, targets_of(nodes, tx.now_us) if tx.memory.is_settled else [], batch_max)
    number = seen.round + bool(plan.given or seen.arrivals or took_over)
    return Draft(node_id, board.epoch, number, tx.now_us, plan, grants_of(plan.given, number, tx.now_us))


def _learn(tx: Tx, board: Rounds, learned: Sequence[Arrival]) -> None:
    _know_lanes(tx, board, {item.lane_id for arrival in learned for item in arrival.ready})
    lanes = board.lanes
    if any(item.lane_id not in lanes for arrival in learned for item in arrival.ready):
        learned = [it._replace(ready=[item for item in it.ready if item.lane_id in lanes]) for it in learned]
    board.take(learned)


def _rebuild(tx: Tx, board: Rounds) -> None:
    """The seats are read first: an item that is given back between the two statements is counted, then told."""
    seated = tx.ask.seated()
    ready = tx.ask.ready()
    _know_lanes(tx, board, {it.lane_id for it in ready} | {it.lane_id for it in seated})
    lanes = board.lanes
    board.rebuild([it for it in ready if it.lane_id in lanes], [it for it in seated if it.lane_id in lanes])


def _begun(tx: Tx, item_ids: Collection[int]) -> list[tuple[int, int, int]]:
    """Which of these have begun, and when."""
    rows = tx.rows.read(tables.QUEUE, sorted(item_ids))
    return [(it.item_id, it.attempt, it.started_at) for it in rows if it.state == RUNNING and it.started_at is not None]


def _know_lanes(tx: Tx, board: Rounds, lane_ids: set[int]) -> None:
    unknown = lane_ids - board.lanes.keys()
    if unknown:
        board.lanes.update(lanes_by_id(tx, unknown))


def targets_of(rows: Sequence[TargetRow], now_us: int) -> list[Target]:
    """The executors that may be given something."""
    nodes = [(row, joined_of(row.name, row.joined)) for row in rows]
    return [
        Target(row.id, row.name, it.group, it.seats, frozenset(it.handlers), row.busy / 100, it.version)
        for row, it in nodes
        if it.takes_items and not it.is_void(row.until_at, now_us)
    ]


def grants_of(given: Sequence[Given], number: int, now_us: int) -> dict[int, Grant]:
    """What each node gets in a round, in the order of its turns."""
    items: dict[int, list[Granted]] = {}
    for position, (it, node_id) in enumerate(given):
        whose = (it.item_id, it.run_id, it.job_id, it.lane_id)
        granted = Granted(position, *whose, it.attempt + 1, it.failures, it.losses)
        items.setdefault(node_id, []).append(granted)
    return {node_id: Grant(round=number, at_us=now_us, items=tuple(its)) for node_id, its in items.items()}


def _grant_rows(grants: Mapping[int, Grant], by: int) -> list[tuple[int, int, int, int, str]]:
    return [(it, grant.round, grant.at_us, by, encode(grant.items)) for it, grant in grants.items()]


@reads("arrival")
def _arrival(told: tuple[str, str | bytes]) -> Arrival:
    kind, data = told
    if kind == ArrivalKind.READY:
        return Arrival(ArrivalKind.READY, ready=decode(data, list[Ready]))
    if kind == ArrivalKind.OUTSIDE:
        return Arrival(ArrivalKind.OUTSIDE, left=decode(data, list[tuple[int, int]]))
    return Arrival(ArrivalKind(kind), item_ids=decode(data, list[int]))
