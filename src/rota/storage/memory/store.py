"""The store port in memory: the transactions of `transactions/` on tables that are plain dictionaries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from rota.coordinators.memory import Realm
from rota.errors import StoreFault
from rota.model import tables
from rota.model.moment import micros
from rota.model.tables import Change
from rota.model.work import first_round
from rota.ports import Clock, Store
from rota.storage.memory.questions import MemoryQuestions
from rota.storage.memory.rows import MemoryRows, Tables
from rota.transactions.alarms import note_alarms
from rota.transactions.members import UNSETTLED
from rota.transactions.record import ID_GAP, LAST, RAISED
from rota.transactions.rows import Conflict
from rota.transactions.tx import ProcessMemory, Shortcuts, Tx

P = ParamSpec("P")
T = TypeVar("T")

TRIES_MAX = 10

_VALUE = Change(tables.META, ("name",), ("value",))
_SKIP = Change(tables.COUNTER, ("name",), ("next",))
_NOBODY = (("holder", None), ("next_at", None))
_ANEW = Change(tables.DISPATCH, ("id",), ("epoch", "round"), fixed=_NOBODY, raised=("changes",))
_RENEW = Change(tables.LEASE, ("node_id",), ("until_at", "busy"), raised=("beat",), where=(("fenced", 0),))


def renewed(tx: Tx, node_id: int, lease_s: float, busy: float) -> bool:
    """Prolong a lease, unless it was given up or fenced."""
    until = tx.rows.now_us() + round(lease_s * 1_000_000)
    return bool(tx.rows.changed(_RENEW, [(node_id, until, round(busy * 100))]))


class MemoryStore(Store):
    hears = False
    shortcuts = Shortcuts()
    is_called = False

    def __init__(self, clock: Clock, *, actor: str) -> None:
        self.memory = ProcessMemory(actor)
        self._clock = clock
        self.tables = Tables()
        self.realm = Realm(clock)
        """What the clients of the coordinator that comes with this store share."""
        self._wakes: list[Callable[[str], None]] = []

    @property
    def _rows(self) -> MemoryRows:
        return MemoryRows(self.tables, self._clock)

    async def migrate(self) -> None:
        pass

    async def check(self) -> None:
        pass

    async def weaknesses(self) -> tuple[str, ...]:
        return ("everything is in memory, and gone with its process",)

    async def close(self) -> None:
        pass

    async def probe(self) -> None:
        pass

    async def evict(self) -> int | None:
        return None

    def listen(self, wake: Callable[[str], None]) -> None:
        self._wakes.append(wake)

    async def transact(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """One step without an await: each transaction is atomic by nature."""
        also: Conflict | None = None
        for attempt in range(1, TRIES_MAX + 1):
            rows = self._rows
            tx = Tx(rows, MemoryQuestions(rows), self.memory, attempt=attempt, also=also)
            try:
                done = work(tx, *args, **kwargs)
                note_alarms(tx)
                tx.write_lines()
            except Conflict as conflict:
                also = conflict if also is None else also.with_those_of(conflict)
                continue
            rows.commit()
            self.tell(tx)
            return done
        raise StoreFault(f"the memory store refused a transaction {TRIES_MAX} times: {also}")

    async def look(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        rows = self._rows
        return work(Tx(rows, MemoryQuestions(rows), self.memory), *args, **kwargs)

    def tell(self, tx: Tx) -> None:
        """A transaction was committed: keep what it left over, and wake those who wait for it."""
        self.memory.keep(tx)
        for topic in tx.topics:
            for wake in self._wakes:
                wake(topic)

    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> int | None:
        kept = await self.transact(renewed, node_id, lease_s, busy)
        return await self.generation() if kept else None

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
