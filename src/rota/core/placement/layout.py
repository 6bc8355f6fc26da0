"""Find entries of the coordinator that are wrong, and say how to repair them.

    claims    live/NODE, jobs/ID, beat/*, election/leader, shard     belong to the session of a scheduler that lives
    lasting   live, all/NODE, handover/NODE, notice/*, repairs/NODE  belong to nobody's session

A scheduler registers under `live` before it claims anything else, so claims are read first and `live` last: a claim
whose session is not found there belongs to nobody, or is gone by now. The plan itself (`live`) is its leader's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from rota.model.cluster import Handover, Peer
from rota.model.entry import Entry, folder_of
from rota.model.folders import ALL, BEAT, CLAIMED, ELECTION, HANDOVER, JOBS, LASTING, LIVE, SHARD
from rota.model.value import V, Value, decode


class Wrong(Value, frozen=True, kw_only=True):
    """An entry that is not what it should be. It is to be removed; or, if `value` says what it should be, rewritten by
    the session that it belongs to."""

    entry: Entry
    why: str
    value: str | None = None


def wrong(entries: Iterable[Entry]) -> tuple[Wrong, ...]:
    """What is wrong with the entries of all folders, where the folder `live` was read last."""
    found = tuple(entries)
    members = {it.session: _member(it) for it in found if folder_of(it.key) == LIVE and it.session is not None}
    living = frozenset(it.name for it in found if folder_of(it.key) == LIVE and it.session in members)
    return tuple(it for entry in found if (it := _judged(entry, members, living)) is not None)


def is_job(name: str) -> bool:
    """Whether the last word of a key is the number of a job, as we write it."""
    return name.isascii() and name.isdecimal() and name == str(int(name))


def _judged(entry: Entry, members: Mapping[str, Peer | None], living: frozenset[str]) -> Wrong | None:
    folder = folder_of(entry.key)
    if folder in CLAIMED or entry.key == SHARD:
        return _judged_claim(entry, members)
    if entry.session is not None and (folder in LASTING or entry.key in (*CLAIMED, *LASTING)):
        return Wrong(entry=entry, why=f"session {entry.session} claims what belongs to no session")
    if folder == HANDOVER and entry.name not in living:
        return Wrong(entry=entry, why="its giver does not take part")
    if folder == HANDOVER and _decoded(entry, dict[str, Handover]) is None:
        return Wrong(entry=entry, why="it is not to be understood")
    if folder == ALL and not _names_itself(entry):
        return Wrong(entry=entry, why="it is not to be understood")
    return None


def _judged_claim(entry: Entry, members: Mapping[str, Peer | None]) -> Wrong | None:
    folder = folder_of(entry.key)
    if entry.session is None:
        return Wrong(entry=entry, why="it lasts, and belongs to nobody")
    if folder == LIVE:
        return None if _names_itself(entry) else Wrong(entry=entry, why="it is not to be understood")
    if entry.session not in members:
        return Wrong(entry=entry, why=f"session {entry.session} is of nobody who takes part")
    if folder == JOBS and not is_job(entry.name):
        return Wrong(entry=entry, why="it is not the number of a job")
    return _judged_value(entry, members[entry.session])


def _judged_value(entry: Entry, owner: Peer | None) -> Wrong | None:
    folder = folder_of(entry.key)
    if owner is None or folder not in (JOBS, BEAT, ELECTION):
        return None
    right = (owner.address or owner.name,) if folder == ELECTION else (owner.name, owner.incarnation)
    return None if entry.value in right else Wrong(entry=entry, why=f"it does not name {owner.name}", value=right[0])


def _member(entry: Entry) -> Peer | None:
    peer = _decoded(entry, Peer)
    return peer if peer is not None and peer.name == entry.name else None


def _names_itself(entry: Entry) -> bool:
    """Whether it tells of the scheduler that it is named after, be it in words of a newer release."""
    return bool((_decoded(entry, dict[str, object]) or {}).get("name") == entry.name)


def _decoded(entry: Entry, kind: type[V]) -> V | None:
    try:
        return decode(entry.value, kind)
    except msgspec.MsgspecError:
        return None
