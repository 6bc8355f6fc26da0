"""The store port on a SQL database: transactions of `transactions/`, reads of `reads.py`, and its life cycle.

It brings a database to this release's schema, and refuses one that this release does not understand. Migrations only
add, so that nodes of the release before go on working beside new ones. `readable_from` names the oldest schema whose
code still understands the present one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import BigInteger, Connection, String, Update, bindparam, inspect, select, update

from rota.errors import StoreError, StoreRefused
from rota.logger import log
from rota.model.value import Json
from rota.ports import Store
from rota.storage.sql import schema
from rota.storage.sql.database import Database
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.history import Rows, raised, run_through
from rota.storage.sql.postgresql import UnlockedRound, end_items
from rota.storage.sql.questions import SqlQuestions
from rota.storage.sql.receipts import LostRecords, Receipts, lost_of
from rota.storage.sql.rows import SqlRows
from rota.transactions.alarms import note_alarms
from rota.transactions.record import LOST, NAMED_MAX
from rota.transactions.rows import Conflict
from rota.transactions.tx import BLOCK, ProcessMemory, Shortcuts, Tx

P = ParamSpec("P")
T = TypeVar("T")


class SqlStore(Store):
    def __init__(self, database: Database, *, actor: str, may_forget: bool = False) -> None:
        self.memory = ProcessMemory(actor, database.dialect.run_block_max)
        self._db = database
        self._dialect = database.dialect
        self.database = database
        """The coordinator that comes with a store uses the same connections."""
        self.shortcuts = Shortcuts(UnlockedRound(), end_items) if self._dialect.writes_in_one else Shortcuts()
        self._may_forget = may_forget
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
        self._heeded, self._beats = generation, {}
        self.memory.forget()

    @property
    def hears(self) -> bool:  # type: ignore[override]  # it never changes, though the port has it as an attribute
        return self._db.hears

    @property
    def is_called(self) -> bool:  # type: ignore[override]  # true from when this process listens
        return self._db.is_called

    async def hear_words(self, host: str, port: int, address: str) -> None:
        """Let others wake this process at a UDP port, where the database cannot tell."""
        await self._db.hear_words(host, port, address)

    async def migrate(self) -> None:
        if not await self._db.read(is_current):  # a frozen node that holds the lock must not keep others from starting
            await self._db.exclusively(migrate)

    async def check(self) -> None:
        await self._db.read(check_schema)
        weak = await self.weaknesses()
        if weak and not self._may_forget:
            raise StoreRefused(
                f"this {self._dialect.name} store could lose what it has acknowledged: {'; '.join(weak)}. "
                "To use it all the same, set store.may_forget (ROTA_STORE_MAY_FORGET=true)."
            )

    async def weaknesses(self) -> tuple[str, ...]:
        return tuple(await self._db.read(self._dialect.weaknesses))

    def listen(self, wake: Callable[[str], None]) -> None:
        self._db.listen(wake)

    async def close(self) -> None:
        await self._db.close()

    async def probe(self) -> None:
        await self._db.write(lambda conn: self._dialect.reserve(conn, "row", 1))  # ids have gaps anyway

    async def transact(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transact(lambda tx: work(tx, *args, **kwargs))

    async def write_once(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transact(lambda tx: work(tx, *args, **kwargs), single_write=True)

    async def look(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        def once(conn: Connection) -> T:
            rows = SqlRows(conn, self._dialect)
            return work(Tx(rows, SqlQuestions(rows), self.memory), *args, **kwargs)

        return await self._db.read(once)

    async def _transact(self, work: Callable[[Tx], T], *, single_write: bool = False) -> T:
        """Make a transaction, and name what the store has lost, if the transaction found that its history went back."""
        done = await self._made(work, single_write=single_write)
        with suppress(StoreError):  # this is done; what was lost is named with the next
            await self._name_what_was_lost()
        return done

    async def _made(self, work: Callable[[Tx], T], *, single_write: bool = False) -> T:
        last: list[tuple[Tx, SqlRows]] = []
        tries = 0
        also: Conflict | None = None

        def once(conn: Connection) -> T:
            nonlocal tries, also
            tries += 1
            rows = SqlRows(conn, self._dialect)
            tx = Tx(rows, SqlQuestions(rows), self.memory, attempt=tries, also=also)
            last[:] = [(tx, rows)]  # one that was rolled back has left nothing over
            try:
                result = work(tx)
                note_alarms(tx)
                tx.write_lines()
                rows.flush(tx.topics)
            except Conflict as conflict:
                also = conflict if also is None else also.with_those_of(conflict)
                raise
            return result

        def is_sent() -> bool:
            return bool(last) and last[0][1].is_sent

        done = await (self._db.at_once(once, is_sent) if single_write else self._db.write(once))
        tx, rows = last[0]
        self._receipts.keep(rows.receipts, tx.now_us)
        self.memory.keep(tx)
        return done

    async def reserve_rows(self, count: int) -> None:
        if self.memory.ids.lacks("row", count):
            size = count + BLOCK
            start = await self._db.write(lambda conn: self._dialect.reserve(conn, "row", size))
            self.memory.ids.put("row", range(start, start + size))

    async def renew(self, node_id: int, *, lease_s: float, busy: float) -> int | None:
        renewal = {"node": node_id, "for_us": round(lease_s * 1_000_000), "score": round(busy * 100)}

        known, generation = self._beats.get(node_id, 0), self._heeded
        as_known = {**renewal, "known": known, "generation": str(generation)}

        def work(conn: Connection) -> tuple[bool, tuple[int, int | None, int]]:
            if generation is not None and conn.execute(_renewed_as_known(self._dialect), as_known).rowcount == 1:
                return True, (generation, known + 1, node_id + 1)
            kept = conn.execute(_renewed(self._dialect), renewal).rowcount == 1
            found, beat, next_id = conn.execute(_STANDING, {"node": node_id}).one()
            return kept, (int(found), beat, next_id)

        kept, found = await self._db.beat(work)
        await self._look_back(node_id, kept, *found)
        await self._name_what_was_lost()
        return self._heeded if kept else None

    async def raise_generation(self, why: str, *, above: int | None = None) -> int:
        def work(tx: Tx) -> int:
            def run(statement: str) -> Rows:
                found = conn.exec_driver_sql(statement)
                return found.all() if found.returns_rows else ()

            conn = _conn(tx)
            statements = raised(why, now=str(self._dialect.now_us(conn)), above=above, lock=self._dialect.row_lock)
            return run_through(statements, run)

        generation = await self.transact(work)
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

    async def evict(self) -> int | None:
        return await self._db.read(self._dialect.evict)

    async def _name_what_was_lost(self) -> None:
        """Whoever uses a store knows what was acknowledged to it: nodes, and clients that assign."""
        doubted = self._receipts.take_doubted()
        if not doubted:
            return

        def work(tx: Tx) -> LostRecords:
            tx.read_clock()
            lost = lost_of(doubted, _conn(tx), self._dialect, tx.now_us)
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
def _renewed_as_known(dialect: Dialect) -> Update:
    """The same, if the store has all that it acknowledged to this node before: then one statement tells it all."""
    m, c = schema.meta.c, schema.counter.c
    generation = select(m.value).where(m.name == "generation").scalar_subquery()
    next_id = select(c.next).where(c.name == "node").scalar_subquery()
    return _renewed(dialect).where(
        schema.lease.c.beat == bindparam("known", type_=BigInteger),
        generation == bindparam("generation", type_=String),
        next_id > bindparam("node"),
    )


def _conn(tx: Tx) -> Connection:
    assert isinstance(tx.rows, SqlRows)
    return tx.rows.conn


VERSION_TABLE = "rota_schema"
VERSIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
"""The migrations of this release, in order; a test compares them with the files."""


def migrate(conn: Connection) -> None:
    """Apply what is missing. The caller makes sure that nobody else does so at the same time."""
    present = _present(conn)
    if present is not None and present not in VERSIONS:
        check_schema(conn)
        return
    from alembic import command  # heavy, and needed only here
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = conn
    command.upgrade(config, VERSIONS[-1])


def is_current(conn: Connection) -> bool:
    """Whether there is nothing to apply."""
    return _present(conn) == VERSIONS[-1]


def check_schema(conn: Connection) -> None:
    """Raise if the schema is missing, older than this release, or newer than this release understands."""
    present, newest = _present(conn), VERSIONS[-1]
    if present == newest:
        return
    if present is None or present in VERSIONS:
        what = "has no tables of rota" if present is None else f"has schema {present}, this release needs {newest}"
        raise StoreRefused(f"the store {what}. Run: rota store migrate")
    m = schema.meta.c
    if conn.scalar(select(m.value).where(m.name == "readable_from")) not in VERSIONS:
        raise StoreRefused(
            f"the store has schema {present} of a newer release; this one knows up to {newest}. Upgrade rota here."
        )


def _present(conn: Connection) -> str | None:
    if not inspect(conn).has_table(VERSION_TABLE):
        return None
    found: str | None = conn.exec_driver_sql(f"SELECT version_num FROM {VERSION_TABLE}").scalar()  # noqa: S608 - a constant
    return found
