"""Kills what a tree without a supervisor left behind, and says whether the tree is empty. Blocks: call it in a thread.

A process is killed only if it surely belongs to the tree: by its pidfd, after pid and start time were compared, by its
control group, or because the random name of the tree is in its environment. A pid alone is never enough: the kernel
uses pids again. Without Linux: if it is in the process group whose leader has the recorded pid and start time.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from enum import StrEnum

from rota import system
from rota.execution.isolation import cgroup, processes, procfs
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.records import Process, TreeRecord
from rota.execution.isolation.waiting import Deadline, is_readable

MARK = "ROTA_TREE"
"""The environment variable with the tree's name."""
_OWN_END_S = 2.0
_PATIENCE_S = 5.0
_PAUSE_S = 0.005
_LOOK_S = 0.02
"""The pause between two looks where each is a run of `ps`."""


class Cleared(StrEnum):
    """Whether a tree is empty: surely; as far as we can see; or no, some process is still alive."""

    EMPTY = "empty"
    UNSURE = "unsure"
    ALIVE = "alive"


def clear(tree: TreeRecord, *, just_lost: bool = False) -> Cleared:
    """Kill every process of the tree. `just_lost`: its supervisor ended a moment ago, so its pids are not used again
    yet."""
    if not system.IS_LINUX:
        ended = _end_by_number(tree.supervisor)
        cleared = tree.main is None or _clear_process_group(tree.main, just_lost=just_lost)
        return Cleared.UNSURE if ended and cleared else Cleared.ALIVE
    if tree.kind is BoundaryKind.NAMESPACE:
        return Cleared.EMPTY if _end(tree.supervisor, after_s=0.0) else Cleared.ALIVE
    ended = _end(tree.supervisor, after_s=_OWN_END_S)
    if tree.kind is BoundaryKind.CGROUP and tree.group is not None:
        # A process may leave the group if its user owns it; it is found by its environment, like those without a group.
        return Cleared.EMPTY if _clear_group(tree.group) and _clear_marked(tree.name) else Cleared.ALIVE
    # A process that lost its supervisor and changed its environment cannot be found, so this is never certain.
    return Cleared.UNSURE if _clear_marked(tree.name) and ended else Cleared.ALIVE


def clear_groups(groups: list[str]) -> list[str]:
    """Kill every process in these control groups and remove the groups; returns those that could not be removed."""
    return [group for group in groups if not (_clear_group(group) and cgroup.remove(group))]


def _end(process: Process, after_s: float) -> bool:
    """Wait for the end of the process for `after_s`, then kill it; false if it is still alive."""
    pidfd = procfs.same_process(process.pid, process.ticks)
    if pidfd is None:
        return not processes.is_hidden(process.pid)
    try:
        if is_readable(pidfd, after_s):
            return True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return is_readable(pidfd, _PATIENCE_S)
    finally:
        os.close(pidfd)


def _end_by_number(process: Process) -> bool:
    """The same by pid and start time, where there are no pidfds."""
    for patience_s in (_OWN_END_S, _PATIENCE_S):
        deadline = Deadline(patience_s)
        while process.is_alive:
            if not deadline.pause(_LOOK_S):
                break
        else:
            return True
        with suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)
    return False


def _clear_process_group(leader: Process, *, just_lost: bool) -> bool:
    """Kill every process in the group of that leader; true if none is left. A group without its leader may belong to
    others by now, unless its supervisor was just lost."""
    deadline = Deadline(_PATIENCE_S)
    while members := [seen for seen in processes.all_processes() if seen.group == leader.pid and seen.is_alive]:
        starts = [seen.ticks for seen in members if seen.pid == leader.pid]
        if not (processes.same_start(starts[0], leader.ticks) if starts else just_lost):
            return True
        with suppress(OSError):
            os.killpg(leader.pid, signal.SIGKILL)
        if not deadline.pause(_LOOK_S):
            return False
    return True


def _clear_group(group: str) -> bool:
    """Kill every process in it, whatever they fork meanwhile; true if it is empty."""
    deadline = Deadline(_PATIENCE_S)
    while cgroup.kill(group):
        if not deadline.pause(_PAUSE_S):
            return False
    return True


def _clear_marked(name: str) -> bool:
    """Kill every process with the tree's name in its environment, until a whole pass finds none; true if it did."""
    entry = f"{MARK}={name}".encode()
    deadline = Deadline(_PATIENCE_S)
    while sum(_kill_if_marked(seen, entry) for seen in procfs.all_processes()):
        if not deadline.pause(_PAUSE_S):
            return False
    return True


def _kill_if_marked(seen: procfs.ProcessInfo, entry: bytes) -> bool:
    if not seen.is_alive or not procfs.environment_has(seen.pid, entry):
        return False
    pidfd = procfs.same_process(seen.pid, seen.ticks)
    if pidfd is None:
        return False
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    finally:
        os.close(pidfd)
    return True
