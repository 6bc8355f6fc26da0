"""Who of the other nodes can be reached, as one observer sees it (S1.16 to S1.18, A1.5).

A node is asked where it says that it is. What counts is that it answers itself: whoever else has its port, or a former
or later life of it, is a failed check like silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from rota.model.cluster import UNREACHABLE_AFTER
from rota.model.node import Node, PingAnswer, Place


def checked(nodes: Iterable[Node], own: str, here: Place) -> list[Node]:
    """Those that an observer of that name at that place can ask. A loopback address of another host leads nowhere, and
    says nothing about its node: releases before this one advertised no other."""
    found = ((node, node.joined.place) for node in nodes if node.joined.name != own and node.joined.address)
    return [
        node
        for node, place in found  # containers of one machine share its boot, but not its name
        if (place.boot_id, place.host) == (here.boot_id, here.host) or not is_loopback(node.joined.address)
    ]


def is_answer_of(node: Node, answer: PingAnswer | None) -> bool:
    """True if this node answered, and not an earlier or later one of its name."""
    return answer is not None and answer.node == node.joined.name and answer.id in (None, node.id)


def failures(before: Mapping[int, int], answered: Mapping[int, bool]) -> dict[int, int]:
    """How often in a row each node (by id, so a new life begins at 0) has failed to answer; others are forgotten."""
    return {node_id: 0 if it else before.get(node_id, 0) + 1 for node_id, it in answered.items()}


def unreachable(failed: Mapping[int, int]) -> frozenset[int]:
    return frozenset(node_id for node_id, count in failed.items() if count >= UNREACHABLE_AFTER)


def is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]") or address
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
