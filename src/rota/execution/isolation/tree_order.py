"""What the agent hands over for a new tree: the order in writing, and one end of everything that connects them."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rota.execution.isolation import cgroup, packets
from rota.execution.isolation.clearing import MARK
from rota.execution.isolation.errors import CannotStart
from rota.execution.isolation.limits import TreeLimits, impose
from rota.execution.isolation.process_handle import process_handle
from rota.execution.isolation.program_start import CHANNEL
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.users import user_entry
from rota.model.value import Value
from rota.model.work import Bounds


class TreeSpec(Value, frozen=True, kw_only=True):
    """What to start. The program gets exactly `env`, plus ROTA_TREE, plus ROTA_CHANNEL if it has a channel."""

    argv: tuple[str, ...]
    env: dict[str, str]
    bounds: Bounds = Bounds()
    hold_s: float = 0.0
    label: str
    channel: bool = False


class TreeOrder(Value, frozen=True, kw_only=True):
    """An order, with what was made for it beforehand."""

    content: dict[str, Any]
    limits: TreeLimits
    group: str | None

    @property
    def groups(self) -> tuple[str, ...]:
        return (*self.limits.groups, *([self.group] if self.group else []))


class TreeDescriptors:
    """Both ends of a tree's link, output, handle and perhaps channel. The far ones are closed by the stack they are
    given."""

    def __init__(self, content: dict[str, Any], theirs: ExitStack, *, channel: bool) -> None:
        with ExitStack() as ours:
            self.link, far_link = packets.pair()
            theirs.enter_context(far_link)
            ours.enter_context(self.link)
            self.output, far_output = os.pipe()
            theirs.callback(os.close, far_output)
            ours.callback(os.close, self.output)
            packed = packets.pack(content)
            theirs.callback(os.close, packed)
            self.handle = process_handle()
            theirs.callback(self.handle.close_far)
            ours.callback(self.handle.close)
            self.far: tuple[int, ...] = (far_link.fileno(), far_output, packed, *self.handle.far)
            self.channel: socket.socket | None = None
            if channel:
                self.channel, far_channel = socket.socketpair()
                theirs.enter_context(far_channel)
                self.far += (far_channel.fileno(),)
            ours.pop_all()  # all of it worked: from here on they belong to the tree
        self.link.setblocking(False)
        os.set_blocking(self.output, False)


def write_order(spec: TreeSpec, kind: BoundaryKind, name: str, record: Path) -> TreeOrder:
    """Check what can be checked here, and make the control groups that the tree will live in."""
    user = _user(spec.bounds.user)
    limits = impose(spec.bounds, name)
    group = _kill_group(name) if kind is BoundaryKind.CGROUP else None
    content = {
        "argv": spec.argv,
        "env": spec.env | {MARK: name} | ({"ROTA_CHANNEL": str(CHANNEL)} if spec.channel else {}),
        "hold_ns": int(spec.hold_s * 1e9),
        "directory": spec.bounds.directory,
        "user": user,
        "rlimits": limits.rlimits,
        "group": group,
        # Who outlives the agent and sees the tree through clears away what the agent wrote down.
        "record": str(record) if kind in (BoundaryKind.CGROUP, BoundaryKind.GUARDIAN) else None,
    }
    order = TreeOrder(content=content, limits=limits, group=group)
    content["groups_to_join"] = order.groups
    return order


def _kill_group(name: str) -> str:
    place = cgroup.unified()
    if place is None:
        raise OSError("there is no unified hierarchy of control groups that we may write")
    return cgroup.make(place, name)


def _user(name: str | None) -> dict[str, Any] | None:
    """Whom the program becomes; nobody else when it is who we are."""
    if name is None:
        return None
    found = user_entry(name)
    if found is None:
        raise CannotStart(f"there is no user {name!r} on this host")
    if found.pw_uid == os.geteuid():
        return None
    if os.geteuid() != 0:
        raise CannotStart(f"only an agent of root can run programs as {name!r}")
    groups = os.getgrouplist(found.pw_name, found.pw_gid)
    return {"name": found.pw_name, "uid": found.pw_uid, "gid": found.pw_gid, "groups": groups}
