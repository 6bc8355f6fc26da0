"""The busy score of a node (S1.12). A busier node waits longer before it takes work that any node could do."""

from __future__ import annotations


def busy(cpu: float, busy_seats: int, seats: int, memory: float) -> float:
    """Return 0 (idle) to 100 (full), two decimals: CPU 64 %, taken seats 32 %, memory 4 %. `cpu`, `memory`: 0 to 1."""
    taken = busy_seats / seats if seats else 0.0
    return round(min(cpu, 1.0) * 64 + min(taken, 1.0) * 32 + min(memory, 1.0) * 4, 2)
