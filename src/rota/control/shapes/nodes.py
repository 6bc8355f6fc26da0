"""The JSON of nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from rota.control.shapes.values import Shape, fields_of
from rota.model.cluster import Peer
from rota.model.node import Node


def nodes_shape(nodes: Iterable[Node], seats_taken: Mapping[int, int], former: Iterable[Peer]) -> list[Shape]:
    """The nodes of the cluster, and the schedulers that only the coordinator remembers."""
    here = [{**node_shape(it), "seats_taken": seats_taken.get(it.id, 0)} for it in nodes]
    return [*here, *map(former_shape, former)]


def node_shape(node: Node) -> Shape:
    joined = node.joined
    return {
        "id": node.id,
        "name": joined.name,
        "state": str(node.state),
        "roles": joined.digests.get("roles", "all"),
        "group": joined.group,
        "number": joined.number or None,
        "seats": joined.seats,
        "busy": node.busy,
        **fields_of(joined.place, "host", "pid"),
        **fields_of(joined, "boundary", "version", "handlers"),
        **fields_of(node, "joined_at", "left_at", "lease_until"),
    }


def former_shape(peer: Peer) -> Shape:
    """A scheduler of which nothing is left but what the coordinator remembers."""
    unknown = (
        "id",
        "roles",
        "group",
        "number",
        "seats",
        "seats_taken",
        "busy",
        "pid",
        "boundary",
        "handlers",
        "joined_at",
        "left_at",
        "lease_until",
    )
    told = {"name": peer.name, "state": "offline", "host": peer.address or None, "version": peer.version}
    return {**told, **dict.fromkeys(unknown)}


def drained_shape(names: Sequence[str], listed: Collection[str], states: Mapping[str, str]) -> list[Shape]:
    """Whether nodes are on the offline list, and the state of those that are here."""
    return [{"name": it, "drained": it in listed, "state": states.get(it)} for it in names]
