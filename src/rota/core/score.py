"""The busy score of a node: what it waits by before it takes on work that any node could do (S1.12)."""

from __future__ import annotations


def busy(cpu: float, busy_seats: int, seats: int, memory: float) -> float:
    """From 0 (idle) to 100 (full), two decimals: CPU 64 %, taken seats 32 %, memory 4 %. CPU and memory are shares."""
    taken = busy_seats / seats if seats else 0.0
    return round(min(cpu, 1.0) * 64 + min(taken, 1.0) * 32 + min(memory, 1.0) * 4, 2)
