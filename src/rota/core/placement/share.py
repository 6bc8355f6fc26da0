"""Share jobs out among schedulers: how many each should have, and who gives how many to whom.

The moves depend on the loads alone, so each scheduler computes the same ones and makes its own without asking.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Move(NamedTuple):
    """A number of jobs that go from one scheduler to another."""

    giver: str
    receiver: str
    jobs: int


def targets(
    loads: Mapping[str, int], weights: Mapping[str, float], limits: Mapping[str, int] | None = None
) -> dict[str, int]:
    """How many of all jobs each should have, by weight, but nobody more than its limit. What does not divide goes to
    those that already have more, so that as few as possible move."""
    left, total, found = dict(loads), sum(loads.values()), dict[str, int]()
    while left:
        shares = _shares(left, weights, total)
        full = {name: limits[name] for name in left if shares[name] > limits[name]} if limits else {}
        if not full:
            return found | shares
        found |= full
        total -= sum(full.values())
        left = {name: load for name, load in left.items() if name not in full}
    return found


def _shares(loads: Mapping[str, int], weights: Mapping[str, float], total: int) -> dict[str, int]:
    whole = sum(weights[name] for name in loads)
    if whole <= 0:
        return dict.fromkeys(loads, 0)
    exact = {name: total * weights[name] / whole for name in loads}
    found = {name: int(exact[name]) for name in loads}
    by_need = sorted(loads, key=lambda name: (-min(loads[name] - found[name], 1), found[name] - exact[name], name))
    for name in by_need[: total - sum(found.values())]:
        found[name] += 1
    return found


def moves(
    loads: Mapping[str, int], weights: Mapping[str, float], limits: Mapping[str, int] | None = None
) -> list[Move]:
    """The fewest moves after which everybody has its share."""
    wanted = targets(loads, weights, limits)
    lack = {name: wanted[name] - loads[name] for name in sorted(loads) if loads[name] < wanted[name]}
    found: list[Move] = []
    for giver in sorted(loads):
        surplus = loads[giver] - wanted[giver]
        while surplus > 0 and lack:
            receiver = next(iter(lack))
            count = min(surplus, lack[receiver])
            found.append(Move(giver, receiver, count))
            surplus -= count
            lack[receiver] -= count
            if not lack[receiver]:
                del lack[receiver]
    return found
