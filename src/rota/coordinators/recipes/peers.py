"""Peers: the schedulers as they tell of themselves under `live`, and the plan that a leader keeps there (S4.4)."""

from __future__ import annotations

import msgspec

from rota.model.cluster import Peer, ScopePlan
from rota.model.entry import Entry
from rota.model.value import decode


def read_peer(entry: Entry) -> Peer | None:
    """What a scheduler tells of itself; none if it is not to be understood."""
    try:
        return decode(entry.value, Peer)
    except msgspec.MsgspecError:
        return None


def read_member(entry: Entry) -> Peer | None:
    """A scheduler that lives; none for an entry that no session keeps, or that is not its own."""
    peer = None if entry.session is None else read_peer(entry)
    return peer if peer is not None and peer.name == entry.name else None


def read_plan(entry: Entry | None) -> ScopePlan | None:
    """The plan of a leader; none if there is none to be understood."""
    try:
        plan = None if entry is None else decode(entry.value, ScopePlan)
    except msgspec.MsgspecError:
        return None
    return plan if plan is not None and plan.is_sound else None
