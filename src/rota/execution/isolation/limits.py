"""What the processes of a tree may use: control groups where we may make them, resource limits elsewhere.

A control group bounds the tree as a whole and says afterwards whether the bound was met. A resource limit bounds each
process: running into it is the program's own business, except for CPU time, which ends it by SIGXCPU.
"""

from __future__ import annotations

import math
import signal
from contextlib import suppress

from rota import system
from rota.execution import descriptors
from rota.execution.isolation import cgroup
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
        """Which bounds the tree ran into, as far as it can be known."""
        met = {"memory": self._out_of_memory(), "cpu": ended_by == signal.SIGXCPU, "processes": self._too_many()}
        return tuple(name for name, is_met in met.items() if is_met)

    def _out_of_memory(self) -> bool:
        if self.memory is None:
            return False
        group, version = self.memory
        return cgroup.counter(group, "memory.events" if version == 2 else "memory.oom_control", "oom_kill") > 0

    def _too_many(self) -> bool:
        return self.processes is not None and cgroup.counter(self.processes[0], "pids.events", "max") > 0


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
        processes = _process_group(name, bounds.processes_max)
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


def _process_group(name: str, most: int) -> tuple[str, int] | None:
    if made := _group("pids", name):
        cgroup.write(f"{made[0]}/pids.max", str(most))
    return made


def _group(controller: str, name: str) -> tuple[str, int] | None:
    """The tree's group in that controller's hierarchy; memory and processes may share one."""
    if (place := cgroup.controlled(controller)) is None:
        return None
    try:
        return cgroup.make(place[0], name), place[1]
    except OSError:
        return None
