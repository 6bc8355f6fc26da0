"""The store port in memory: the transactions of `transactions/` on tables that are plain dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import TypeVar

from rota.coordinators.memory import Realm
from rota.errors import StoreFault
from rota.model import tables
from rota.model.moment import micros
from rota.model.records import from_us
from rota.model.tables import Change
from rota.model.work import first_round
from rota.ports import Clock, Conflict
from rota.storage.memory.questions import MemoryQuestions
from rota.storage.memory.queue_reads import MemoryQueueReads
from rota.transactions.alarms import note_alarms
from rota.transactions.deeds import Deeds
from rota.transactions.members import UNSETTLED
from rota.transactions.record import ID_GAP, RAISED
from rota.transactions.tx import ProcessMemory, Tx

T = TypeVar("T")

TRIES_MAX = 10
LAST = "raised"

_VALUE = Change(tables.META, ("name",), ("value",))
_SKIP = Change(tables.COUNTER, ("name",), ("next",))
_NOBODY = (("holder", None), ("next_at", None))
_ANEW = Change(tables.DISPATCH, ("id",), ("epoch", "round"), fixed=_NOBODY, raised=("changes",))
_RENEW = Change(tables.LEASE, ("node_id",), ("until_at", "busy"), raised=("beat",), where=(("fenced", 0),))


def renewed(tx: Tx, node_id: int, lease_s: float, busy: float) -> bool:
    """Prolong a lease, unless it was given up or fenced."""
    until = tx.rows.now_us() + round(lease_s * 1_000_000)
    return bool(tx.rows.changed(_RENEW, [(node_id, until, round(busy * 100))]))


class MemoryStore(MemoryQueueReads, Deeds):
    """The store that lives and dies with its process."""

    hears = False
    is_called = False

    def __init__(self, clock: Clock, *, actor: str) -> None:
        self.memory = ProcessMemory(actor)
        super().__init__(clock, self.memory.readings)
        self.realm = Realm(clock)
        """What the clients of the coordinator that comes with this store share."""
        self._wakes: list[Callable[[str], None]] = []

    @property
    def unread(self) -> Mapping[str, str]:
        return self._readings.unread

    async def migrate(self) -> None:
        pass

    async def check(self) -> None:
        pass

    async def weaknesses(self) -> tuple[str, ...]:
        return ("everything is in memory, and gone with its process",)

    async def close(self) -> None:
        pass

    async def evict(self) -> int | None:
        return None

    def listen(self, wake: Callable[[str], None]) -> None:
        self._wakes.append(wake)

    async def transact(self, work: Callable[[Tx], T], *, single_write: bool = False) -> T:
        """One step without an await: each transaction is atomic by nature."""
        also: Conflict | None = None
        for attempt in range(1, TRIES_MAX + 1):
            rows = self._rows
            tx = Tx(rows, MemoryQuestions(rows), self.memory, attempt=attempt, also=also)
            try:
                done = work(tx)
                note_alarms(tx)
                tx.write_lines()
            except Conflict as conflict:
                also = conflict if also is None else also.with_those_of(conflict)
                continue
            rows.commit()
            self.tell(tx)
            return done
        raise StoreFault(f"the memory store refused a transaction {TRIES_MAX} times: {also}")

    def tell(self, tx: Tx) -> None:
        """A transaction was committed: keep what it left over, and wake those who wait for it."""
        self.memory.keep(tx)
        for topic in tx.topics:
            for wake in self._wakes:
                wake(topic)

    async def reserve_rows(self, count: int) -> None:
        pass  # nobody waits for a counter

    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> int | None:
        kept = await self.transact(partial(renewed, node_id=node_id, lease_s=lease_s, busy=busy))
        return await self.generation() if kept else None

    async def raised(self) -> tuple[datetime, str] | None:
        row = self.tables.get(tables.META, LAST)
        if row is None:
            return None
        at, _, why = row.value.partition(" ")
        return from_us(int(at)), why

    async def raise_generation(self, why: str, *, above: int | None = None) -> int:
        def work(tx: Tx) -> int:
            now = tx.read_clock()
            was = int(tx.rows.read(tables.META, ["generation"])[0].value)
            if above is not None and was > above:
                return was
            generation = max(was, above or 0) + 1
            tx.rows.change(_VALUE, [("generation", str(generation))])
            (lock,) = tx.rows.read(tables.DISPATCH, [1])
            tx.rows.change(_ANEW, [(1, lock.epoch + 1, first_round(generation))])
            tx.rows.change(_SKIP, [(row.name, row.next + ID_GAP) for row in tx.rows.all(tables.COUNTER)])
            former = [it.name for it in tx.rows.all(tables.META) if it.name == LAST or it.name.startswith(UNSETTLED)]
            tx.rows.remove(tables.META, former)
            listed = [(f"{UNSETTLED}{row.node_id}", str(tx.now_us)) for row in tx.rows.all(tables.LEASE)]
            tx.rows.insert(tables.META, [(LAST, f"{micros(now)} {why[:200]}"), *listed])
            tx.record(RAISED, {"generation": generation, "why": why})
            return generation

        self.memory.forget()
        return await self.transact(work)
