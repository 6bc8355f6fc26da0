"""Wrong ways to dispatch and to hold a lease, put over the product inside a node process. The judges must catch each.

| mutant          | what it does                                                                                    |
|-----------------|-------------------------------------------------------------------------------------------------|
| kept_board      | goes on with what it knew although another node has made rounds since                            |
| counted_first   | reads what runs and what waits, then takes the lock (check, then act)                            |
| counted_in_lock | takes the lock and counts in one statement, whose snapshot is older than the lock (PostgreSQL)   |
| batch_order     | takes the oldest few of the queue and puts only these in order                                   |
| no_switch       | never tells the switches of its process trees when to act                                        |

In the first four every node makes a round whenever something arrives, as it must be able to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select, text

from rota.core.dispatch.board import Rounds
from rota.loops.dispatcher import Dispatcher
from rota.loops.member import Member
from rota.model import tables
from rota.model.dispatch import Pulse, Ready, Round, Seated
from rota.model.tables import Change
from rota.storage.sql import questions, schema
from rota.storage.sql import store as store_module
from rota.transactions import round as round_module
from rota.transactions.tx import Tx

BATCH = 30
FAR_S = 3600.0

_QUEUE = (
    "item_id",
    "lane_id",
    "node_id",
    "attempt",
    "run_id",
    "job_id",
    "start_by_at",
    "not_before_at",
    "failures",
    "losses",
    "avoid_id",
    "state",
)


def kept_board() -> None:
    make = round_module.make_round

    def going_on(tx: Tx, io: Any, node_id: int, board: Rounds, batch_max: int) -> Round | None:
        if board.epoch is not None:
            tx.rows.change(Change(tables.DISPATCH, ("id",), ("holder",)), [(1, node_id)])
            (row,) = tx.rows.read(tables.DISPATCH, [1])
            board.epoch, board.round = row.epoch, row.round
        return make(tx, io, node_id, board, batch_max)

    round_module.make_round = going_on
    _everybody_makes_rounds()


def counted_first() -> None:
    columns = [schema.queue.c[name] for name in _QUEUE]
    _count_by(lambda tx: _conn(tx).execute(select(*columns)).all())


def counted_in_lock() -> None:
    columns = ", ".join(f"q.{name}" for name in _QUEUE)
    source = "rota_dispatch d LEFT JOIN rota_queue q ON q.item_id > 0"
    both = text(f"SELECT {columns} FROM {source} WHERE d.id = 1 FOR UPDATE OF d")
    _count_by(lambda tx: [row for row in _conn(tx).execute(both) if row.item_id is not None])


def _conn(tx: Tx) -> Any:
    return tx.rows.conn  # type: ignore[attr-defined]


def _count_by(count: Callable[[Tx], Sequence[Any]]) -> None:
    """Rebuild the board in every round, from what was counted before the product took the lock."""
    make = round_module.make_round
    counted: dict[int, Sequence[Any]] = {}

    def too_soon(tx: Tx, io: Any, node_id: int, board: Rounds, batch_max: int) -> Round | None:
        board.forget()
        counted.clear()
        counted[id(tx)] = count(tx)
        return make(tx, io, node_id, board, batch_max)

    def rebuild(tx: Tx, board: Rounds) -> None:
        seen = counted[id(tx)]
        round_module._know_lanes(tx, board, {row.lane_id for row in seen})
        waiting = [_ready(row) for row in seen if row.state == "ready"]
        board.rebuild(waiting, [_seated(row) for row in seen if row.state != "ready"])

    round_module._rebuild = rebuild
    round_module.make_round = too_soon
    _everybody_makes_rounds()


def _seated(row: Any) -> Seated:
    return Seated(row.item_id, row.lane_id, row.node_id, row.attempt)


def _ready(row: Any) -> Ready:
    times = (row.start_by_at, row.not_before_at)
    return Ready(
        row.item_id, row.run_id, row.job_id, row.lane_id, *times, row.attempt, row.failures, row.losses, row.avoid_id
    )


def batch_order() -> None:
    make = round_module.make_round
    questions._WAITING = questions._WAITING.order_by(schema.queue.c.item_id).limit(BATCH)

    def afresh(tx: Tx, io: Any, node_id: int, board: Rounds, batch_max: int) -> Round | None:
        board.forget()
        return make(tx, io, node_id, board, batch_max)

    round_module.make_round = afresh
    _everybody_makes_rounds()


def _everybody_makes_rounds() -> None:
    store_module.UnlockedRound = lambda: None  # type: ignore[assignment,misc]  # these are about rounds under the lock

    def always(self: Dispatcher, pulse: Pulse, node_id: int) -> bool:
        waits = [at for at in (pulse.arrived_us, pulse.next_us) if at is not None]
        return any(at <= pulse.now_us for at in waits)

    Dispatcher._must_act = always  # type: ignore[method-assign]


def no_switch() -> None:
    once = Member.once

    async def late(self: Member) -> float:
        runner = self.runner
        self.runner = None
        try:
            return await once(self)
        finally:
            self.runner = runner
            if runner is not None:
                runner.renew(self.clock.boottime() + FAR_S)

    Member.once = late  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    mutant.__name__: mutant for mutant in (kept_board, counted_first, counted_in_lock, batch_order, no_switch)
}
