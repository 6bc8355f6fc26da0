"""What schedulers keep as entries of the coordinator: who they are, the plan of a leader, hand-overs and repairs.

An entry that cannot be understood counts as one that is not there: another version of rota, or a person, wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from rota.model.cluster import Handover, Peer, Repair, ScopePlan
from rota.model.entry import Entry
from rota.model.folders import HANDOVER, REPAIRS
from rota.model.value import decode, encode


def read_peer(entry: Entry) -> Peer | None:
    """What a scheduler tells of itself under `live` (S4.4)."""
    try:
        return decode(entry.value, Peer)
    except msgspec.MsgspecError:
        return None


def read_member(entry: Entry) -> Peer | None:
    """A scheduler that lives; none for an entry that no session keeps, or that is not its own."""
    peer = None if entry.session is None else read_peer(entry)
    return peer if peer is not None and peer.name == entry.name else None


def read_plan(entry: Entry | None) -> ScopePlan | None:
    """The plan of a leader, if there is a sound one."""
    try:
        plan = None if entry is None else decode(entry.value, ScopePlan)
    except msgspec.MsgspecError:
        return None
    return plan if plan is not None and plan.is_sound else None


def handover_key(giver: str) -> str:
    """Where the hand-overs of a giver are: one entry, written by itself or for a person."""
    return f"{HANDOVER}/{giver}"


def read_handover(entry: Entry) -> dict[int, Handover]:
    """Which jobs of a giver go to whom."""
    try:
        return {int(job_id): it for job_id, it in decode(entry.value, dict[str, Handover]).items()}
    except (msgspec.MsgspecError, ValueError):
        return {}


def write_handover(jobs: Mapping[int, Handover]) -> str:
    return encode({str(job_id): it for job_id, it in jobs.items()})


def repairs_key(name: str) -> str:
    """Where the repairs of a scheduler are: what it put right in the coordinator of late, for the doctor to tell."""
    return f"{REPAIRS}/{name}"


def read_repairs(entry: Entry) -> tuple[Repair, ...]:
    try:
        return decode(entry.value, tuple[Repair, ...])
    except msgspec.MsgspecError:
        return ()


def write_repairs(repairs: Sequence[Repair]) -> str:
    return encode(tuple(repairs))
