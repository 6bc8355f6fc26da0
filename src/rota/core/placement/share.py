"""Share jobs out among schedulers: how many each should have, and who gives how many to whom.

Everybody who knows the same loads comes to the same moves, so that each giver can make its own without asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Move(NamedTuple):
    """So many jobs go from one to another."""

    giver: str
    receiver: str
    jobs: int


def targets(loads: Mapping[str, int], weights: Mapping[str, float]) -> dict[str, int]:
    """How many of all jobs each should have, by weight. What does not divide goes to those that already have more, so
    that as few as possible move."""
    total, whole = sum(loads.values()), sum(weights[name] for name in loads)
    if not loads or whole <= 0:
        return dict.fromkeys(loads, 0)
    exact = {name: total * weights[name] / whole for name in loads}
    found = {name: int(exact[name]) for name in loads}
    by_need = sorted(loads, key=lambda name: (-min(loads[name] - found[name], 1), found[name] - exact[name], name))
    for name in by_need[: total - sum(found.values())]:
        found[name] += 1
    return found


def moves(loads: Mapping[str, int], weights: Mapping[str, float]) -> list[Move]:
    """The fewest moves after which everybody has its share."""
    wanted = targets(loads, weights)
    lack = {name: wanted[name] - loads[name] for name in sorted(loads) if loads[name] < wanted[name]}
    found: list[Move] = []
    for giver in sorted(loads):
        surplus = loads[giver] - wanted[giver]
        while surplus > 0:
            receiver = next(iter(lack))
            count = min(surplus, lack[receiver])
            found.append(Move(giver, receiver, count))
            surplus -= count
            lack[receiver] -= count
            if not lack[receiver]:
                del lack[receiver]
    return found
