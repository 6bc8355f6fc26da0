"""What all verbs of the store stand on: the database, and what this process keeps between its transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection

from rota.backends.sql.alarming import note_alarms
from rota.backends.sql.database import Database
from rota.backends.sql.transaction import Ids, Transaction
from rota.model.work import Lane

T = TypeVar("T")


class Ground:
    """The database of a store."""

    def __init__(self, database: Database, *, actor: str, may_forget: bool = False) -> None:
        self._db = database
        self._dialect = database.dialect
        self._actor = actor
        self._may_forget = may_forget
        self._ids = Ids()
        self._lanes: dict[Lane, int] = {}

    async def _transact(self, work: Callable[[Transaction], T], *, at_once: bool = False) -> T:
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
        self._ids.keep(last[0].left)
        self._lanes.update(last[0].new_lanes)
        return done
