"""Lanes in the database: what each process knows of them, and how those that nobody uses are forgotten.

A process keeps the ids of lanes, and writes items with them without asking again; so a row must outlive what anybody
knows of it. An id is known for an hour by the store's clock. Whoever asks for it after that notes in its row that it is
used; a row is removed only if that was a day ago, and no item in the queue is in that lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, and_, delete, or_, select, update

from rota.backends.sql import schema
from rota.backends.sql.dialect import Dialect
from rota.model.value import canonical, decode, encode
from rota.model.work import Lane

KNOWN_US = 3_600_000_000
KEPT_US = 24 * KNOWN_US

C, Q = schema.lane.c, schema.queue.c


class KnownLane(NamedTuple):
    """What a process knows of a lane."""

    id: int
    at_us: int
    """When it was looked up."""

    def holds(self, now_us: int) -> bool:
        """Whether its row is there for certain. If the clock was set back, it is looked up again."""
        return 0 <= now_us - self.at_us < KNOWN_US


def look_up(conn: Connection, dialect: Dialect, lanes: Sequence[Lane], now_us: int) -> dict[Lane, KnownLane]:
    """The ids of lanes, for the next hour. Those that are not there are made."""
    specs = {lane: encode(canonical(lane)) for lane in lanes}
    ids = ids_of_specs(conn, dialect, specs.values(), now_us)
    return {lane: KnownLane(ids[spec], now_us) for lane, spec in specs.items()}


def ids_of_specs(conn: Connection, dialect: Dialect, specs: Iterable[str], now_us: int) -> dict[str, int]:
    """The same, of lanes as they are written: this release need not understand them."""
    digests = dict(sorted((_digest(spec), spec) for spec in specs))
    # Before they are read: who forgets one of them has done so, or will see that it is used.
    unnoted = or_(C.used_at.is_(None), C.used_at < now_us - KNOWN_US // 2)
    conn.execute(update(schema.lane).where(dialect.among(C.digest, digests), unnoted).values(used_at=now_us))
    found = _found(conn, dialect, digests)
    missing = {name: spec for name, spec in digests.items() if spec not in found}
    if missing:
        first = dialect.reserve(conn, "lane", len(missing))
        rows = [(first + n, name, spec, now_us) for n, (name, spec) in enumerate(missing.items())]
        dialect.insert_missing(conn, schema.lane, rows)
        found |= _found(conn, dialect, missing)
    return found


def for_newer(spec: str, than: str) -> str | None:
    """The same lane, for nodes of a newer release only; with all that such a release wrote of it, which this one may
    not understand. None if it is no lane at all."""
    try:
        return encode(decode(spec, dict) | {"newer_than": than})
    except msgspec.MsgspecError:
        return None


def forget_lanes(conn: Connection, dialect: Dialect, now_us: int, age_us: int, limit: int) -> int:
    """Remove rows of lanes that nobody has used for so long. Says how many."""
    conn.execute(update(schema.lane).where(C.used_at.is_(None)).values(used_at=now_us))  # of an earlier release
    unused = C.used_at < now_us - max(age_us, KEPT_US)
    old = conn.scalars(select(C.id).where(unused).order_by(C.id).limit(limit)).all()
    if not old:
        return 0
    busy = set(conn.scalars(select(Q.lane_id).where(dialect.among(Q.lane_id, old)).distinct()))
    if busy:  # so that they are not looked at again before long: the queue has no index for this
        conn.execute(update(schema.lane).where(dialect.among(C.id, busy)).values(used_at=now_us))
    idle = [it for it in old if it not in busy]
    return conn.execute(delete(schema.lane).where(and_(dialect.among(C.id, idle), unused))).rowcount if idle else 0


def _found(conn: Connection, dialect: Dialect, digests: Mapping[str, str]) -> dict[str, int]:
    rows = conn.execute(select(C.digest, C.id).where(dialect.among(C.digest, digests)))
    return {digests[row.digest]: row.id for row in rows}


def _digest(spec: str) -> str:
    """The same as `digest` of the lane."""
    return sha256(spec.encode()).hexdigest()
