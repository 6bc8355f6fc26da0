"""What the agent hands over for a new tree: the order in writing, one end of everything that connects them, and the
limits of what its processes may use.

A control group bounds the tree as a whole and says afterwards whether the bound was met. Where we may make none, a
resource limit bounds each process: running into it is the program's own business, except for CPU time, which ends it by
SIGXCPU.
"""

from __future__ import annotations

import math
import os
import signal
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from rota import system
from rota.errors import CannotStart
from rota.execution import descriptors
from rota.execution.isolation import cgroup, packets
from rota.execution.isolation.clearing import MARK
from rota.execution.isolation.process_handle import process_handle
from rota.execution.isolation.program_start import CHANNEL
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.users import user_entry
from rota.model.value import Value
from rota.model.work import Bounds

_MEBIBYTE = 1024 * 1024
_CPU_GRACE_S = 1


class TreeLimits(Value, frozen=True, kw_only=True):
    """The bounds of one tree in force."""

    rlimits: dict[str, tuple[int, int]]
    memory: tuple[str, int] | None = None
    processes: tuple[str, int] | None = None

    @property
    def groups(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(group for group, _ in filter(None, (self.memory, self.processes))))

    def exceeded(self, ended_by: int | None) -> tuple[str, ...]:
        crowded = self.processes is not None and cgroup.counter(self.processes[0], "pids.events", "max") > 0
        met = {"memory": self._out_of_memory(), "cpu": ended_by == signal.SIGXCPU, "processes": crowded}
        return tuple(name for name, is_met in met.items() if is_met)

    def _out_of_memory(self) -> bool:
        if self.memory is None:
            return False
        group, version = self.memory
        return cgroup.counter(group, "memory.events" if version == 2 else "memory.oom_control", "oom_kill") > 0


def impose(bounds: Bounds, name: str) -> TreeLimits:
    """Put these bounds in force for the tree of that name."""
    rlimits: dict[str, tuple[int, int]] = {} if system.IS_LINUX else {"RLIMIT_NOFILE": descriptors.given()}
    if bounds.cpu_s is not None:
        seconds = max(1, math.ceil(bounds.cpu_s))
        rlimits["RLIMIT_CPU"] = (seconds, seconds + _CPU_GRACE_S)
    memory = processes = None
    if bounds.memory_mb is not None:
        size = bounds.memory_mb * _MEBIBYTE
        memory = _memory_group(name, size)
        # Elsewhere than on Linux the kernel refuses or ignores such a limit.
        rlimits |= {} if memory or not system.IS_LINUX else {"RLIMIT_AS": (size, size)}
    if bounds.processes_max is not None:
        if processes := _group("pids", name):
            cgroup.write(f"{processes[0]}/pids.max", str(bounds.processes_max))
        rlimits |= {} if processes else {"RLIMIT_NPROC": (bounds.processes_max, bounds.processes_max)}
    return TreeLimits(rlimits=rlimits, memory=memory, processes=processes)


def places() -> dict[str, tuple[str, int] | None]:
    """By bound, the hierarchy that keeps it; none: a resource limit of each process does."""
    return {"memory": cgroup.controlled("memory"), "processes": cgroup.controlled("pids")}


def _memory_group(name: str, size: int) -> tuple[str, int] | None:
    if (made := _group("memory", name)) is None:
        return None
    group, version = made
    cgroup.write(f"{group}/{'memory.max' if version == 2 else 'memory.limit_in_bytes'}", str(size))
    with suppress(OSError):  # not every kernel counts swap; a tree that swaps is slow, not wrong
        if version == 2:
            cgroup.write(f"{group}/memory.swap.max", "0")
            cgroup.write(f"{group}/memory.oom.group", "1")
        else:
            cgroup.write(f"{group}/memory.memsw.limit_in_bytes", str(size))
    return made


def _group(controller: str, name: str) -> tuple[str, int] | None:
    """The tree's group in that controller's hierarchy; memory and processes may share one."""
    if (place := cgroup.controlled(controller)) is None:
        return None
    try:
        return cgroup.make(place[0], name), place[1]
    except OSError:
        return None


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
