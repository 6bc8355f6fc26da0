"""Decide by leases: whether that of a node is over, and who has a name.

A lease ends by the store's clock, but nobody believes that alone: a clock may have been set. So an observer also asks
how long it has seen no renewal, by its own clock, and gives a node up only when both say so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from rota.model.moment import micros
from rota.model.node import Node


class Renewal(NamedTuple):
    """The last renewal of a node that an observer has seen, and when it saw it first, by its monotonic clock."""

    beat: int
    seen_s: float


def renewals(known: Mapping[int, Renewal], nodes: Iterable[Node], now_s: float) -> dict[int, Renewal]:
    """What an observer knows after another look; nodes that are not there any more are forgotten."""
    return {
        node.id: known[node.id] if node.id in known and known[node.id].beat == node.beat else Renewal(node.beat, now_s)
        for node in nodes
    }


def is_over(node: Node, now: datetime, unseen_s: float, *, lease_s: float, wait_s: float) -> bool:
    """Whether nobody believes this node any more: its lease and `wait_s` have passed by the store's clock, and it was
    not seen to renew for as long. Of a lease that a clock set back has put out of reach, only the second is asked."""
    if node.lease_until is None:
        return False
    is_void = node.joined.is_void(micros(node.lease_until), micros(now))
    has_passed = is_void or now > node.lease_until + timedelta(seconds=wait_s)
    return has_passed and unseen_s >= max(lease_s, node.joined.lease_s) + wait_s


def is_nearly_over(unseen_s: float, *, lease_s: float, margin_s: float) -> bool:
    """Whether a node was not seen to renew for nearly as long as its lease lasts."""
    return unseen_s >= lease_s - margin_s


def is_live(node: Node, now: datetime) -> bool:
    """Whether its lease lasts, by the store's clock."""
    return node.lease_until is not None and node.lease_until > now


def namesakes(name: str, nodes: Iterable[Node], now: datetime, *, own_id: int | None, token: str | None) -> list[Node]:
    """The other live nodes of that name, the last one last. `token` is that of a join of one's own whose answer was
    lost, and `own_id` one's own former life."""
    found = (it for it in nodes if it.joined.name == name and it.joined.incarnation != token and it.id != own_id)
    return sorted((it for it in found if is_live(it, now)), key=lambda it: it.id)


def is_replaced(name: str, own_id: int | None, nodes: Sequence[Node], now: datetime) -> bool:
    """Whether a newer node of one's own name lives: joining again would end its work, and so on in turns."""
    return own_id is not None and any(it.joined.name == name and it.id > own_id and is_live(it, now) for it in nodes)
