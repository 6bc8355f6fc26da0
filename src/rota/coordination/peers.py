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


def read_plan(entry: Entry | None) -> ScopePlan | None:
    """The plan of a leader; none if there is none to be understood."""
    try:
        return None if entry is None else decode(entry.value, ScopePlan)
    except msgspec.MsgspecError:
        return None
