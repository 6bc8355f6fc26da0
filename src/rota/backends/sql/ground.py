"""What all verbs of the store stand on: the database, and what this process keeps between its transactions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TypeVar

import structlog
from sqlalchemy import Connection

from rota.backends.readable import Readings
from rota.backends.record import LOST
from rota.backends.sql.alarming import note_alarms
from rota.backends.sql.database import Database
from rota.backends.sql.lanes import KnownLane
from rota.backends.sql.receipts import NAMED_MAX, Lost, Receipts, lost_of
from rota.backends.sql.transaction import Ids, Transaction
from rota.errors import StoreError
from rota.model.value import Json
from rota.model.work import Lane

T = TypeVar("T")

log = structlog.get_logger()


class Ground:
    """The database of a store."""

    def __init__(self, database: Database, *, actor: str, may_forget: bool = False) -> None:
        self._db = database
        self._dialect = database.dialect
        self._actor = actor
        self._may_forget = may_forget
        self._ids = Ids()
        self._lanes: dict[Lane, KnownLane] = {}
        self._readings = Readings()
        self._receipts = Receipts()
        self._heeded: int | None = None
        self._beats: dict[int, int] = {}
        """How often nodes of this process have renewed their leases, as the store has confirmed."""
        database.heed(self._heed)

    def _heed(self, generation: int) -> None:
        """Forget what was known of another generation: the ids that were taken then, the ids of lanes, and how often
        nodes had renewed their leases, which would seem to be lost once more."""
        if generation == self._heeded:
            return
        if self._heeded is not None:
            log.warning("store.generation_changed", generation=generation, was=self._heeded)
            self._receipts.doubt()
        self._heeded, self._ids, self._lanes, self._beats = generation, Ids(), {}, {}

    @property
    def unread(self) -> Mapping[str, str]:
        return self._readings.unread

    async def _transact(self, work: Callable[[Transaction], T], *, at_once: bool = False) -> T:
        """Make a transaction, and name what the store has lost, if the transaction found that its history went back."""
        done = await self._made(work, at_once=at_once)
        with suppress(StoreError):  # this is done; what was lost is named with the next
            await self._name_what_was_lost()
        return done

    async def _name_what_was_lost(self) -> None:
        """Whoever uses a store knows what was acknowledged to it: nodes, and clients that assign."""
        doubted = self._receipts.take_doubted()
        if not doubted:
            return

        def work(tx: Transaction) -> Lost:
            tx.read_clock()
            lost = lost_of(doubted, tx.conn, self._dialect, tx.now_us)
            if lost.runs or lost.attempts:
                runs: list[Json] = [*lost.runs[:NAMED_MAX]]
                ends: list[Json] = [f"{item_id}.{attempt}" for item_id, attempt in lost.attempts[:NAMED_MAX]]
                counts = {"runs_lost": len(lost.runs), "ends_lost": len(lost.attempts)}
                tx.record(LOST, {**counts, "runs": runs, "ends": ends})
            return lost

        try:
            lost = await self._made(work)
        except BaseException:
            self._receipts.put_back(doubted)
            raise
        if lost.runs or lost.attempts:
            named = {"runs": lost.runs[:NAMED_MAX], "ends": lost.attempts[:NAMED_MAX]}
            log.error(LOST, runs_lost=len(lost.runs), ends_lost=len(lost.attempts), **named)

    async def _made(self, work: Callable[[Transaction], T], *, at_once: bool = False) -> T:
        """Make a transaction, again if it lost a race; then tell others and keep what it took. `at_once`: it locks
        nothing, and writes nothing but what it keeps until its end."""
        last: list[Transaction] = []

        def once(conn: Connection) -> T:
            tx = Transaction(conn, self._dialect, self._actor, self._ids, self._lanes)
            last[:] = [tx]  # one that was rolled back has left nothing over
            result = work(tx)
            note_alarms(tx)
            tx.tell()
            return result

        def is_sent() -> bool:
            return bool(last) and last[0].is_sent

        done = await (self._db.at_once(once, is_sent) if at_once else self._db.write(once))
        self._receipts.keep(last[0].receipts, last[0].now_us)
        self._ids.keep(last[0].left)
        if last[0].new_lanes:
            still = {lane: it for lane, it in self._lanes.items() if it.holds(last[0].now_us)}
            self._lanes = still | last[0].new_lanes
        return done
