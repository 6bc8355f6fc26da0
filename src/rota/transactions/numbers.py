"""The number of a node within its group: the lowest that is free, kept by the node's name; or the one it asks for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import count

from rota.errors import Refused


def number_of(name: str, wanted: int, held: Mapping[str, int], living: Collection[str]) -> int:
    """The number of a node that joins (`wanted`: 0 for any), where these names have these numbers. One that is asked
    for is taken from a node that is gone, never from one that lives."""
    if not wanted:
        return held.get(name) or next(number for number in count(1) if number not in held.values())
    holder = next((it for it, number in held.items() if number == wanted and it != name), None)
    if holder in living:
        raise Refused(f"number {wanted} of this group is the number of node {holder}, which lives")
    return wanted
