"""Hand-overs: which jobs of a giver shall go to whom. One entry for each giver, written by itself or for a person."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from rota.model.cluster import Handover
from rota.model.entry import Entry
from rota.model.folders import HANDOVER
from rota.model.value import decode, encode


def key_of(giver: str) -> str:
    """Where the hand-overs of a giver are."""
    return f"{HANDOVER}/{giver}"


def read_handover(entry: Entry) -> dict[int, Handover]:
    """Which jobs go to whom; nothing if it is not to be understood."""
    try:
        return {int(job_id): it for job_id, it in decode(entry.value, dict[str, Handover]).items()}
    except (msgspec.MsgspecError, ValueError):
        return {}


def write_handover(jobs: Mapping[int, Handover]) -> str:
    """The value of the entry."""
    return encode({str(job_id): it for job_id, it in jobs.items()})
