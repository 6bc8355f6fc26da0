"""Compare releases: a node of a newer one may read what an older one cannot.

While a newer node lives, an item that this release cannot read goes back to the queue, and no retry is used up;
otherwise the item fails.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import takewhile

from rota.core.lease import is_live
from rota.model.dispatch import Grant, Granted, ItemEnd
from rota.model.node import UNREADABLE, Members, Node
from rota.model.states import ItemState, Outcome

REASON = "unreadable"
PAUSE_S, PAUSE_MAX_S = 1.0, 60.0
"""How long it rests, and each time longer: a newer node that is drained, or has not its handler, does not take it."""


def release(version: str) -> tuple[float, ...]:
    """Return the leading numbers of a version, to compare with; an unreadable version is newer than all."""
    if version == UNREADABLE:
        return (math.inf,)
    return tuple(float(part) for part in takewhile(str.isdigit, version.split(".")))


def is_newer(version: str, than: str) -> bool:
    return release(version) > release(than)


def has_reader(members: Members, group: str, version: str) -> bool:
    """Whether a living executor of the group is newer than this release."""
    return any(is_live(it, members.now) and _may_read(it, group, version) for it in members.nodes)


def handed_back(
    granted: Iterable[tuple[Granted, Grant]], *, node: str, node_id: int, version: str, to_newer: bool
) -> list[ItemEnd]:
    """The ends of attempts that no process has begun."""
    text = f"{REASON}: node {node} of release {version} cannot read its run or its job"
    return [
        ItemEnd(
            item_id=it.item_id,
            attempt=it.attempt,
            run_id=it.run_id,
            job_id=it.job_id,
            lane_id=it.lane_id,
            outcome=Outcome.LOST if to_newer else Outcome.FAILED,
            state=ItemState.READY if to_newer else ItemState.FAILED,
            delay_s=min(PAUSE_S * it.attempt, PAUSE_MAX_S) if to_newer else 0.0,
            failures=it.failures,
            losses=it.losses,
            node=node,
            node_id=node_id,
            round=grant.round,
            assigned_us=grant.at_us,
            message=text if to_newer else f"{text}, and no newer node lives",
            newer_than=version if to_newer else "",
        )
        for it, grant in granted
    ]


def _may_read(node: Node, group: str, version: str) -> bool:
    it = node.joined
    return is_newer(it.version, version) and (not it.incarnation or (it.seats > 0 and it.group == group))
