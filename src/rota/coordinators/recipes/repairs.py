"""Repairs: what each scheduler had to put right in the coordinator of late, for the doctor to tell."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from rota.model.cluster import Repair
from rota.model.entry import Entry
from rota.model.folders import REPAIRS
from rota.model.value import decode, encode


def key_of(name: str) -> str:
    """Where the repairs of a scheduler are."""
    return f"{REPAIRS}/{name}"


def read_repairs(entry: Entry) -> tuple[Repair, ...]:
    """What a scheduler put right; nothing if it is not to be understood."""
    try:
        return decode(entry.value, tuple[Repair, ...])
    except msgspec.MsgspecError:
        return ()


def write_repairs(repairs: Sequence[Repair]) -> str:
    """The value of the entry."""
    return encode(tuple(repairs))
