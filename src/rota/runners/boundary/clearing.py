"""Kill what a tree without supervisor left behind, and say whether it was seen empty. Blocks; call it in a thread.

A process is killed only when it is surely of that tree: by its kernel object (pidfd) after pid and start were
compared, by its control group, or because the tree's own random name is in its environment. Never by a number alone.
Elsewhere than on Linux: if it is in the process group whose leader has the pid and start that were written down.
"""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from enum import StrEnum

from rota import system
from rota.runners.boundary import cgroup, processes, procfs
from rota.runners.boundary.promises import BoundaryKind
from rota.runners.boundary.records import Process, TreeRecord
from rota.runners.boundary.waiting import Patience

MARK = "ROTA_TREE"
"""The environment variable with the tree's name."""
_OWN_END_S = 2.0
_PATIENCE_S = 5.0
_PAUSE_S = 0.005
_LOOK_S = 0.02
"""The pause between two looks where each is a run of `ps`."""


class Cleared(StrEnum):
    """How sure we are that nobody of a tree is alive: quite; as far as can be seen; not at all."""

    EMPTY = "empty"
    UNSURE = "unsure"
    ALIVE = "alive"


def clear(tree: TreeRecord, *, just_lost: bool = False) -> Cleared:
    """Leave nobody of the tree alive. `just_lost`: its supervisor has ended a moment ago, so that its numbers are not
    used again yet."""
    if not system.IS_LINUX:
        ended = _end_by_number(tree.supervisor)
        cleared = tree.main is None or _clear_process_group(tree.main, just_lost=just_lost)
        return Cleared.UNSURE if ended and cleared else Cleared.ALIVE
    if tree.kind is BoundaryKind.NAMESPACE:
        return Cleared.EMPTY if _end(tree.supervisor, after_s=0.0) else Cleared.ALIVE
    ended = _end(tree.supervisor, after_s=_OWN_END_S)
    if tree.kind is BoundaryKind.CGROUP and tree.group is not None:
        # Whoever left the group, as its owner may, is found like those that never had one.
        return Cleared.EMPTY if _clear_group(tree.group) and _clear_marked(tree.name) else Cleared.ALIVE
    # Who lost both its supervisor and its environment cannot be found, so this is never certain.
    return Cleared.UNSURE if _clear_marked(tree.name) and ended else Cleared.ALIVE


def clear_groups(groups: list[str]) -> list[str]:
    """Kill whoever is in these control groups, and remove them; those that stay."""
    return [group for group in groups if not (_clear_group(group) and cgroup.remove(group))]


def _end(process: Process, after_s: float) -> bool:
    """See the process end, by itself within that time or by SIGKILL; whether it did."""
    pidfd = procfs.same_process(process.pid, process.ticks)
    if pidfd is None:
        return not processes.is_hidden(process.pid)
    try:
        if _has_ended(pidfd, after_s):
            return True
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        return _has_ended(pidfd, _PATIENCE_S)
    finally:
        os.close(pidfd)


def _end_by_number(process: Process) -> bool:
    """The same where there are no pidfds."""
    for patience_s in (_OWN_END_S, _PATIENCE_S):
        patience = Patience(patience_s)
        while process.lives:
            if not patience.pause(_LOOK_S):
                break
        else:
            return True
        with suppress(OSError):
            os.kill(process.pid, signal.SIGKILL)
    return False


def _clear_process_group(leader: Process, *, just_lost: bool) -> bool:
    """Kill whoever is in the group of that leader; whether nobody is left in it. A group without its leader may be
    another's by now, unless it was just lost."""
    patience = Patience(_PATIENCE_S)
    while members := [seen for seen in processes.everybody() if seen.group == leader.pid and seen.lives]:
        starts = [seen.ticks for seen in members if seen.pid == leader.pid]
        if not (processes.same_start(starts[0], leader.ticks) if starts else just_lost):
            return True
        with suppress(OSError):
            os.killpg(leader.pid, signal.SIGKILL)
        if not patience.pause(_LOOK_S):
            return False
    return True


def _has_ended(pidfd: int, within_s: float) -> bool:
    waiting = select.poll()
    waiting.register(pidfd, select.POLLIN)
    return bool(waiting.poll(within_s * 1000))


def _clear_group(group: str) -> bool:
    """Kill whoever is in it, whatever they fork meanwhile; whether it is empty."""
    patience = Patience(_PATIENCE_S)
    while cgroup.kill(group):
        if not patience.pause(_PAUSE_S):
            return False
    return True


def _clear_marked(name: str) -> bool:
    """Kill whoever carries the tree's name, until a whole look around finds nobody; whether it did."""
    entry = f"{MARK}={name}".encode()
    patience = Patience(_PATIENCE_S)
    while sum(_kill_if_marked(seen, entry) for seen in procfs.everybody()):
        if not patience.pause(_PAUSE_S):
            return False
    return True


def _kill_if_marked(seen: procfs.Seen, entry: bytes) -> bool:
    if not seen.lives or not procfs.environment_has(seen.pid, entry):
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
