"""Compare releases: a node of a newer one may read what an older one cannot."""

from __future__ import annotations

import math
from itertools import takewhile

from rota.model.node import UNREADABLE


def release(version: str) -> tuple[float, ...]:
    """Return the leading numbers of a version, to compare with; an unreadable version is newer than all."""
    if version == UNREADABLE:
        return (math.inf,)
    return tuple(float(part) for part in takewhile(str.isdigit, version.split(".")))


def is_newer(version: str, than: str) -> bool:
    return release(version) > release(than)
