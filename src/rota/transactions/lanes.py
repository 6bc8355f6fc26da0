"""Lanes in the store: what each process knows of them, and how those that nobody uses are forgotten.

A process keeps the ids of lanes, and writes items with them without asking again; so a row must outlive what anybody
knows of it. An id is known for an hour by the store's clock. Whoever asks for it after that notes in its row that it is
used; a row is removed only if that was a day ago, and no item in the queue is in that lane.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from rota.model import tables
from rota.model.records import lane_as_known, lane_of
from rota.model.tables import Change
from rota.model.value import canonical, decode, encode
from rota.model.work import Lane

if TYPE_CHECKING:
    from rota.transactions.tx import Tx

KNOWN_US = 3_600_000_000
KEPT_US = 24 * KNOWN_US

_NOTE = Change(tables.LANE, ("id",), ("used_at",))


class KnownLane(NamedTuple):
    """What a process knows of a lane."""

    id: int
    at_us: int
    """When it was looked up."""

    def holds(self, now_us: int) -> bool:
        """Whether its row is there for certain. If the clock was set back, it is looked up again."""
        return 0 <= now_us - self.at_us < KNOWN_US


def look_up(tx: Tx, lanes: Sequence[Lane]) -> dict[Lane, KnownLane]:
    """The ids of lanes, for the next hour. Those that are not there are made."""
    specs = {lane: encode(canonical(lane)) for lane in lanes}
    ids = ids_of_specs(tx, specs.values())
    return {lane: KnownLane(ids[spec], tx.now_us) for lane, spec in specs.items()}


def ids_of_specs(tx: Tx, specs: Iterable[str]) -> dict[str, int]:
    """The same, of lanes as they are written: this release need not understand them."""
    digests = dict(sorted((_digest(spec), spec) for spec in specs))
    rows = tx.rows.find(tables.LANE, "digest", digests)
    unnoted = [row.id for row in rows if row.used_at is None or row.used_at < tx.now_us - KNOWN_US // 2]
    if unnoted:  # whoever forgets one of them has done so, and it is made anew; or sees that it is used
        noted = tx.rows.changed(_NOTE, [(lane_id, tx.now_us) for lane_id in unnoted])
        rows = [row for row in rows if row.id not in unnoted or row.id in noted]
    found = {digests[row.digest]: row.id for row in rows}
    missing = {name: spec for name, spec in digests.items() if spec not in found}
    if missing:
        first = tx.reserve("lane", len(missing))
        new = [(first + n, name, spec, tx.now_us) for n, (name, spec) in enumerate(missing.items())]
        tx.rows.insert(tables.LANE, new, missing=True)
        found |= {digests[row.digest]: row.id for row in tx.rows.find(tables.LANE, "digest", missing)}
    return found


def lanes_by_id(tx: Tx, lane_ids: Collection[int]) -> dict[int, Lane]:
    """Lanes by their ids. Of one of a newer release, as much as is understood."""
    rows = tx.rows.read(tables.LANE, sorted(lane_ids))
    lanes = {row.id: lane for row, lane in tx.readings.pairs(rows, lane_of)}
    unread = [row for row in rows if row.id not in lanes]
    return lanes | {row.id: known for row in unread if (known := lane_as_known(row)) is not None}


def for_newer(spec: str, than: str) -> str | None:
    """The same lane, for nodes of a newer release only; with all that such a release wrote of it, which this one may
    not understand. None if it is no lane at all."""
    try:
        return encode(decode(spec, dict) | {"newer_than": than})
    except msgspec.MsgspecError:
        return None


def _digest(spec: str) -> str:
    """The same as `digest` of the lane."""
    return sha256(spec.encode()).hexdigest()
