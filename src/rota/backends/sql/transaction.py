"""One transaction under way: the ids and lanes that it takes, and what it tells the node that makes the rounds.

What it took is kept for the next one only if it commits. Whatever makes an item ready, or frees a seat, says so here;
it reaches the holder of the dispatch lock as arrivals, written once at the end.

Writes whose outcome nobody asks for are kept, and written together: before anything else is done with the connection,
and at the latest at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import Connection, Table

from rota.backends.alarming import alarm_of
from rota.backends.sql import schema
from rota.backends.sql.dialect import Dialect
from rota.backends.sql.lanes import KnownLane, look_up
from rota.backends.sql.receipts import Receipt, receipts_of
from rota.backends.sql.rows import from_us
from rota.backends.sql.sets import Change, Insert, Write
from rota.model.alarm import Alarm
from rota.model.dispatch import ArrivalKind, Ready
from rota.model.value import Json, encode
from rota.model.work import Lane

BLOCK = 1000
"""How many ids a process takes from the store at once. What it does not use is lost; ids have gaps."""

RUN = "run"
RUN_BLOCK_US = 1_000_000
"""How long a process gives away the run ids that it has taken. People read these ids, and lists are in their order:
they shall rise with time, whichever process makes a run. So a block begins with what is needed now, is doubled while
it is used up in time, and is dropped when it gets old."""

CHUNK = 1000
"""How many records one arrival holds at most."""


class Ids:
    """The ids that this process may still give away, by the name of their counter."""

    def __init__(self) -> None:
        self._free: dict[str, range] = {}
        self._run_block = 1
        self._run_block_at = 0

    def take(self, conn: Connection, dialect: Dialect, name: str, count: int, left: Ids, now_us: int) -> Iterator[int]:
        """Take ids. What a new block leaves over goes to `left`, to be kept only if the transaction commits."""
        if name == RUN and not 0 <= now_us - self._run_block_at < RUN_BLOCK_US:
            self._free.pop(RUN, None)
            self._run_block, self._run_block_at = 1, now_us
        free = self._free.pop(name, range(0))
        if len(free) >= count:
            self._free[name] = free[count:]
            return iter(free[:count])
        lacking = count - len(free)
        size = max(lacking, BLOCK if name != RUN else self._run_block)
        if name == RUN:
            self._run_block = min(2 * size, dialect.run_block_max)
        start = dialect.reserve(conn, name, size)
        left._free[name] = range(start + lacking, start + size)
        return chain(free, range(start, start + lacking))

    def lacks(self, name: str, count: int) -> bool:
        return len(self._free.get(name, range(0))) < count

    def keep(self, left: Ids) -> None:
        for name, free in left._free.items():
            self.put(name, free)

    def put(self, name: str, free: range) -> None:
        """Have these ids, unless there are more already."""
        if len(free) > len(self._free.get(name, range(0))):
            self._free[name] = free


class Transaction:
    """What verbs work with."""

    def __init__(
        self, conn: Connection, dialect: Dialect, actor: str, ids: Ids, lanes: Mapping[Lane, KnownLane]
    ) -> None:
        self._conn = conn
        self._kept: dict[Table, tuple[Write, list[tuple[Any, ...]]]] = {}
        self.dialect = dialect
        self.actor = actor
        self._ids = ids
        self._lanes = lanes
        self.is_sent = False
        """Whether something that was kept is on its way."""
        self.left = Ids()
        self.new_lanes: dict[Lane, KnownLane] = {}
        self.now_us = 0
        self._lines: list[tuple[Any, ...]] = []
        self.ready: list[Ready] = []
        self.ended: list[int] = []
        self.gone: list[int] = []
        self.outside: list[tuple[int, int]] = []
        self.is_news = False
        """Whether a round may find something to do although no item changed."""
        self.woken: set[int] = set()
        """Nodes that have something to read."""
        self.receipts: list[Receipt] = []
        self.happened: list[Alarm] = []
        """What people may want to know of."""

    @property
    def conn(self) -> Connection:
        """The connection. Whoever uses it finds everything written."""
        self.flush()
        return self._conn

    def write(self, write: Write, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write rows soon, after everything that was to be written to that table before."""
        if not rows:
            return
        if isinstance(write, Insert):
            self.receipts.extend(receipts_of(write.table, rows))
        kept = self._kept.get(write.table)
        if kept is not None and kept[0] != write:
            self.flush()
        self._kept.setdefault(write.table, (write, []))[1].extend(rows)

    def changed(self, change: Change, rows: Sequence[tuple[Any, ...]]) -> int:
        """Change rows now, and write what is kept; says how many rows still were as they were read."""
        if not rows:
            return 0
        if change.table in self._kept:
            self.flush()
        self.write(change, rows)
        return self.flush()

    def flush(self, topics: Sequence[str] = ()) -> int:
        """Write what is kept, and wake those who listen to these topics. Says how many rows the last of it touched."""
        kept, self._kept = self._kept, {}
        if not kept and not topics:
            return 0
        self.is_sent = True
        return self.dialect.write(self._conn, dict(kept.values()), topics)

    def read_clock(self) -> datetime:
        """The store's clock, for decisions: after everything is locked that they depend on."""
        self.now_us = self.dialect.now_us(self.conn)
        return from_us(self.now_us)

    def ids(self, name: str, count: int) -> Iterator[int]:
        return self._ids.take(self._conn, self.dialect, name, count, self.left, self.now_us)

    def lane_ids(self, wanted: Iterable[Lane]) -> Mapping[Lane, int]:
        """The ids of lanes. New ones are made: they never change, and few are."""
        wanted = set(wanted)
        known = {lane: it.id for lane in wanted if (it := self._lanes.get(lane)) and it.holds(self.now_us)}
        missing = [lane for lane in wanted if lane not in known and lane not in self.new_lanes]
        if missing:
            self.new_lanes |= look_up(self.conn, self.dialect, missing, self.now_us or self.dialect.now_us(self.conn))
        return {lane: known.get(lane) or self.new_lanes[lane].id for lane in wanted}

    def record(self, kind: str, data: dict[str, Json], *, job_id: int | None = None, run_id: int | None = None) -> None:
        """Add a line to the history."""
        self._lines.append((self.now_us, kind, self.actor, job_id, run_id, None, encode(data)))
        if (alarm := alarm_of(kind, data, from_us(self.now_us), job_id, run_id)) is not None:
            self.happened.append(alarm)

    def tell(self) -> None:
        """Write the lines of history, and what others must know: the last step before the commit."""
        if self._lines:
            ids = self.ids("row", len(self._lines))
            self.write(Insert(schema.event), [(next(ids), *line) for line in self._lines])
        arrivals = list(self._arrivals())
        if arrivals:
            at = self.now_us or self.dialect.now_us(self.conn)
            ids = self.ids("row", len(arrivals))
            self.write(Insert(schema.arrival), [(next(ids), at, str(kind), encode(data)) for kind, data in arrivals])
        self.flush([self._topic] * bool(arrivals) + [f"node:{it}" for it in sorted(self.woken)])

    @property
    def _topic(self) -> str:
        return "dispatch" if self.ready or self.gone or self.is_news else "seats"

    def _arrivals(self) -> Iterator[tuple[ArrivalKind, Sequence[object]]]:
        for kind, records in (
            (ArrivalKind.READY, self.ready),
            (ArrivalKind.ENDED, self.ended),
            (ArrivalKind.GONE, self.gone),
            (ArrivalKind.OUTSIDE, self.outside),
        ):
            yield from ((kind, records[at : at + CHUNK]) for at in range(0, len(records), CHUNK))
        if self.is_news:
            yield ArrivalKind.ENDED, []
