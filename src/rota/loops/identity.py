"""Who this node is at present. Only `Member` changes it; the other loops of the process look at it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Identity:
    """A node's name, and the id that the store gave to its present incarnation; none: it has not joined,
    or was given up and has not joined anew."""

    name: str
    id: int | None = None
