"""Nodes: who they are, what they offer, and until when they are believed to be alive."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from ipaddress import ip_address

from rota.model.value import Value

LEASE_S = 10.0
MARGIN_S = 1.0
RENEWED_MEANWHILE_S = 1.0
"""By how much a lease may lie further ahead than a renewal could set it at the instant by which it is judged."""
UNREADABLE = "unreadable"
"""Told as the release of a node whose own record is not to be understood: it is newer, as far as anybody can tell."""
UNREACHABLE = "unreachable"
"""The digest by which a node tells the ids of those that it cannot reach."""

UNABLE = "unable"
"""The digest by which a node tells why it cannot execute anything at present; and the cause of attempts that it was
given meanwhile, which count as losses of nobody."""


class NodeState(StrEnum):
    ONLINE = "online"
    DRAINING = "draining"
    DISCONNECTED = "disconnected"
    OFFLINE = "offline"


class Place(Value, frozen=True, kw_only=True):
    """Where a process runs, so that its successor can tell whether it is gone: only on the same boot of the same
    machine and in the same PID namespace does a process id mean the same."""

    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    pid_started: int
    """Clock ticks since boot when the process started, as /proc tells it."""


class NewNode(Value, frozen=True, kw_only=True):
    """A node that joins. Every start of a process is a new incarnation, with an id of its own."""

    name: str
    incarnation: str
    place: Place
    group: str = "default"
    number: int = 0
    """Its number within the group; when it joins, the one it asks for, 0 for any."""
    seats: int = 0
    """How many items it executes at a time; 0 if it is no executor."""
    handlers: tuple[str, ...] = ()
    """What it can run: `tenant/project/name` of the tasks of its apps, and `module:*` for what it may import."""
    digests: dict[str, str] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    boundary: str = ""
    version: str = ""
    address: str = ""
    """Where others reach it."""
    lease_s: float = 0.0
    """How long its lease lasts from each renewal, as the store noted when it joined; 0 if a release before did."""

    def is_void(self, until_us: int, now_us: int) -> bool:
        """Whether a lease lies further ahead than a renewal could set it: the store's clock was set back since, and
        the lease says nothing any more. Not one that was renewed just after the look at the clock."""
        return self.lease_s > 0 and until_us > now_us + round((self.lease_s + RENEWED_MEANWHILE_S) * 1_000_000)

    @property
    def takes_items(self) -> bool:
        """Whether it may be given items."""
        return self.seats > 0 and UNABLE not in self.digests


def settle_us(node: NewNode) -> int:
    """How long others wait for a node to end what a store that went back does not know any more."""
    return round(((node.lease_s or LEASE_S) + MARGIN_S) * 1_000_000)


class Node(Value, frozen=True, kw_only=True):
    """A node as the store knows it. `beat` rises with every renewal of its lease."""

    id: int
    joined: NewNode
    state: NodeState
    busy: float = 0.0
    joined_at: datetime
    left_at: datetime | None = None
    lease_until: datetime | None = None
    beat: int = 0


class Joined(Value, frozen=True, kw_only=True):
    id: int
    generation: int
    """The high part of every token."""
    number: int = 0
    """Within its group."""


class Members(Value, frozen=True, kw_only=True):
    """The nodes, and the store's clock when they were read."""

    now: datetime
    nodes: tuple[Node, ...] = ()


class PingAnswer(Value, frozen=True, kw_only=True):
    """What a node says of itself when it is asked whether it lives. A release before this one gives no `id`, nor does a
    node that has not joined."""

    node: str
    id: int | None = None


def is_this_host(name: str) -> bool:
    """Whether a name or address leads nowhere else. No name is the one that programs take by themselves."""
    try:
        return ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return name in ("", "localhost")
