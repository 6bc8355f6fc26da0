"""Compare releases: which nodes may understand what another one does not."""

from __future__ import annotations

import math
from itertools import takewhile

from rota.model.node import UNREADABLE


def release(version: str) -> tuple[float, ...]:
    """A version to compare: the numbers that it begins with."""
    if version == UNREADABLE:
        return (math.inf,)
    return tuple(float(part) for part in takewhile(str.isdigit, version.split(".")))


def is_newer(version: str, than: str) -> bool:
    return release(version) > release(than)
