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

SLACK_S = 0.05
"""By how much two clocks may differ over a few seconds without one of them having been set."""


class LeaseLook(NamedTuple):
    """One look at all nodes: the store's clock, and when the observer asked and was answered, by its monotonic one."""

    now: datetime
    asked_s: float
    answered_s: float


class Renewal(NamedTuple):
    """The last renewal of a node that an observer knows of, and when that was by its monotonic clock, at the latest."""

    beat: int
    at_s: float


def renewals(
    known: Mapping[int, Renewal], nodes: Iterable[Node], look: LeaseLook, last: LeaseLook | None
) -> dict[int, Renewal]:
    """What an observer knows after another look; nodes that are not there any more are forgotten."""
    return {
        node.id: known[node.id]
        if node.id in known and known[node.id].beat == node.beat
        else Renewal(node.beat, look.answered_s - _age_s(node, look, last))
        for node in nodes
    }


def _age_s(node: Node, look: LeaseLook, last: LeaseLook | None) -> float:
    """How old a renewal is that was not there when the observer looked last: as the store's clock says, if that has
    gone no faster than the observer's own since then. Else it may be from just now."""
    if last is None or node.lease_until is None:
        return 0.0
    passed_s = look.answered_s - last.asked_s
    if (look.now - last.now).total_seconds() > passed_s + SLACK_S:
        return 0.0
    renewed = node.lease_until - timedelta(seconds=node.joined.lease_s)
    return min(max((look.now - renewed).total_seconds(), 0.0), passed_s)


def is_over(node: Node, now: datetime, unseen_s: float, *, lease_s: float, wait_s: float) -> bool:
    """Whether nobody believes this node any more: its lease and `wait_s` have passed by the store's clock, and it was
    not seen to renew for as long. Of a lease that a clock set back has put out of reach, only the second is asked."""
    if node.lease_until is None:
        return False
    is_void = node.joined.is_void(micros(node.lease_until), micros(now))
    has_passed = is_void or now > node.lease_until + timedelta(seconds=wait_s)
    return has_passed and unseen_s >= max(lease_s, node.joined.lease_s) + wait_s


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
