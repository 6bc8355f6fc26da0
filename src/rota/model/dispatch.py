"""What a dispatch round reads and writes. Instants are microseconds of the store's clock here, because rounds are many.

Records are arrays in JSON, so that a thousand of them are one short text in one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from rota.model.value import Value
from rota.model.work import Limit


class Ready(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item that waits for its turn."""

    item_id: int
    run_id: int
    job_id: int
    lane_id: int
    start_by: int
    not_before: int
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    avoid_id: int | None = None


class Seated(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item that holds a seat: of a node, or, with no node, of its limits only (it is finished from outside)."""

    item_id: int
    lane_id: int
    node_id: int | None
    attempt: int = 0
    """The attempt that holds it."""
    given_us: int | None = None
    """When it was given, while it is not known to have begun."""


class ArrivalKind(StrEnum):
    READY = "ready"
    ENDED = "ended"
    GONE = "gone"
    OUTSIDE = "outside"


class Arrival(NamedTuple):
    """What others changed since the holder's last round: items that became ready; items (by id) that gave back their
    seats, or were cancelled before they started; and those (item and attempt) that left their node but still count."""

    kind: ArrivalKind
    ready: Sequence[Ready] = ()
    item_ids: Sequence[int] = ()
    left: Sequence[tuple[int, int]] = ()


class Granted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An item given to a node; its place in the round is its place in the grant's list plus `position`."""

    position: int
    item_id: int
    run_id: int
    job_id: int
    lane_id: int
    attempt: int
    failures: int
    losses: int


class Grant(Value, frozen=True, kw_only=True):
    """What one round gave to one node."""

    round: int
    at_us: int
    items: tuple[Granted, ...]


class Target(NamedTuple):
    """An executor that may be given items: its lease is live and it is not drained."""

    node_id: int
    name: str
    group: str
    seats: int
    handlers: frozenset[str]
    busy: float = 0.0
    version: str = ""


class Given(NamedTuple):
    ready: Ready
    node_id: int


class RoundPlan(NamedTuple):
    """What a round decided: items in the order of their turn, the limits whose memory of starts changed, and when
    something falls due by itself next (microseconds; none if only an arrival can change anything)."""

    given: Sequence[Given]
    limits: Sequence[Limit]
    next_us: int | None


class TargetRow(NamedTuple):
    """A node that is online, not drained, and whose lease lasts."""

    id: int
    name: str
    joined: str
    busy: int
    until_at: int


class Seen(NamedTuple):
    """What a look found: the dispatch row, and what arrived (id, kind, data)."""

    holder: int | None
    epoch: int
    round: int
    changes: int
    next_us: int | None
    arrivals: Sequence[tuple[int, str, str | bytes]]
    now_us: int = 0
    targets: Sequence[TargetRow] = ()


class Draft(NamedTuple):
    """A round as it is to be written."""

    node_id: int
    epoch: int
    number: int
    """Its number; that of the last round if nothing is new."""
    now_us: int
    plan: RoundPlan
    grants: Mapping[int, Grant]


class Round(Value, frozen=True, kw_only=True):
    round: int
    now_us: int
    took_over: bool = False
    given: int = 0
    more: bool = False
    """Whether the batch was full: there may be more to give at once."""
    arrivals: int = 0
    next_us: int | None = None
    grants: Mapping[int, Grant] = {}


class Pulse(Value, frozen=True, kw_only=True):
    """Whether there is something to do, in one short read."""

    now_us: int
    holder: int | None
    round: int
    """The last one."""
    next_us: int | None
    """When the holder wanted to act by itself."""
    arrived_us: int | None
    """Since when the oldest arrival waits."""
    granted: int
    """The last round that gave this node something."""


class ItemEnd(Value, frozen=True, kw_only=True):
    """What becomes of an item after an attempt: its final state, or ready again after `delay_s`.

    It counts only if the attempt is still the item's current one: with `round`, only if it was given in that round, for
    a store that lost its latest history gives the same number again; with `expired_us`, only if it still expires then.
    """

    item_id: int
    attempt: int
    run_id: int
    job_id: int
    lane_id: int
    outcome: str
    state: str
    delay_s: float = 0.0
    failures: int = 0
    losses: int = 0
    node: str = ""
    node_id: int | None = None
    round: int | None = None
    assigned_us: int | None = None
    started_us: int | None = None
    code: int | None = None
    message: str = ""
    result: str | None = None
    log_bytes: int = 0
    expired_us: int | None = None
    newer_than: str = ""
    """If it is ready again: only for nodes of a newer release than this one, which could not read it."""


class ItemStart(Value, frozen=True, kw_only=True):
    """An attempt that runs. With `expires_s` it is finished from outside: it leaves its node and is over then."""

    item_id: int
    attempt: int
    round: int | None = None
    started_us: int
    expires_s: float | None = None


class Finished(Value, frozen=True, kw_only=True):
    """What came of a batch of ends: those that came too late or twice (item ids)."""

    now_us: int
    stale: frozenset[int] = frozenset()
