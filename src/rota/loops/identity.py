"""Say who this node is at present. Only `Member` changes it; the other loops of the process read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Identity:
    """The name of this node, and the id that the store gave to its present incarnation. The id is none while the node
    has not joined, or has lost its lease and not joined anew."""

    name: str
    id: int | None = None
