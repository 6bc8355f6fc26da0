"""Kills what earlier agents of this host left behind, and says of each whether its boundary is empty; and where a
process runs, and whether one that ran on this very host is gone.

Runs at the start of every executor. It touches nothing of an agent that is alive, and nothing of another PID namespace.
It says `empty` only if no process of that agent can be alive: a successor may then give its items back before its lease
is over.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from rota import system
from rota.execution.isolation import cgroup, clearing, processes, records, state_folder
from rota.execution.isolation.clearing import Cleared
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.records import AgentRecord, Process, TreeRecord
from rota.model.node import Place
from rota.model.value import Value


class FormerAgent(Value, frozen=True, kw_only=True):
    """An agent that has records here and is gone, or that we cannot see."""

    agent: AgentRecord
    empty: bool
    trees: int = 0
    """How many of its trees had to be cleared."""
    why: str = ""
    """Why it is not known to be empty."""


class SweepReport(Value, frozen=True, kw_only=True):
    """What a sweep found. Agents that are alive are only counted."""

    formers: tuple[FormerAgent, ...] = ()
    living: int = 0
    unreadable: tuple[str, ...] = ()
    """Folders that do not say whose they are; somebody must look."""

    def is_empty(self, pid: int, ticks: int, boot_id: str) -> bool:
        """Whether the agent of that pid, start and boot is gone with everything that it started, as far as written
        here."""
        whose = (pid, ticks, boot_id)
        found = [it for it in self.formers if (it.agent.agent.pid, it.agent.agent.ticks, it.agent.boot_id) == whose]
        return bool(found) and all(former.empty for former in found)


async def sweep(state_dir: Path) -> SweepReport:
    """Clear what is left of every agent in `state_dir` that is gone. Others' words are not believed: `state` raises."""
    return await asyncio.to_thread(sweep_now, state_dir)


def sweep_now(state_dir: Path) -> SweepReport:
    """The same, for a caller that may block."""
    if not state_folder.exists(state_dir):
        return SweepReport()
    with state_folder.written(state_dir):
        return _swept(state_dir)


def _swept(state_dir: Path) -> SweepReport:
    formers: list[FormerAgent] = []
    unreadable: list[str] = []
    living = 0
    records.remove_unfinished(state_dir)
    for folder in sorted(state_dir.glob("agent-*")):
        agent = records.read_agent(folder)
        if agent is None:
            unreadable += _leave_if_used(folder)
        elif _same_boot(agent) and _same_numbers(agent) and agent.agent.is_alive:
            living += 1
        else:
            formers.append(_clear_agent(agent, folder))
    return SweepReport(formers=tuple(formers), living=living, unreadable=tuple(unreadable))


def _same_boot(agent: AgentRecord) -> bool:
    return agent.boot_id == processes.boot_id()


def _same_numbers(agent: AgentRecord) -> bool:
    return agent.pid_namespace == processes.pid_namespace()


def _leave_if_used(folder: Path) -> list[str]:
    """Without its agent's line, a folder is a remainder if it is empty, and damaged if it is not."""
    with suppress(FileNotFoundError):
        if records.tree_paths(folder):
            return [str(folder)]
        records.remove_folder(folder)
    return []


def _clear_agent(agent: AgentRecord, folder: Path) -> FormerAgent:
    paths = records.tree_paths(folder)
    if not _same_boot(agent):  # nothing survives a boot
        doubts: list[str] = []
        for path in paths:
            path.unlink(missing_ok=True)
    elif not _same_numbers(agent):
        why = f"it ran in PID namespace {agent.pid_namespace}, which cannot be seen from {processes.pid_namespace()}"
        return FormerAgent(agent=agent, empty=False, why=why)
    else:
        doubts = list(filter(None, map(_clear_tree, paths)))
        doubts += [f"{group} is not empty" for group in clearing.clear_groups(agent.groups)]
        if agent.kind is BoundaryKind.GROUP:
            doubts.append("a process group does not hold those who leave it")
    if not agent.groups:
        records.remove_folder(folder)
    return FormerAgent(agent=agent, empty=not doubts, trees=len(paths), why="; ".join(doubts))


def _clear_tree(path: Path) -> str:
    """Clear one tree; why it is not surely empty. A record that was cut short is of a tree that never started."""
    tree = records.read(path, TreeRecord)
    if tree is None:
        path.unlink(missing_ok=True)
        return ""
    is_foreign = tree.group is not None and not cgroup.is_below_own(tree.group)
    seen = clearing.clear(replace(tree, group=None) if is_foreign else tree)
    if seen is Cleared.ALIVE:
        return f"{tree.label}: some of it is still alive after SIGKILL; sweep again"
    # A supervisor that outlived its agent removes the record itself, when it has seen the tree empty.
    saw_it_through = not path.exists()
    path.unlink(missing_ok=True)
    if seen is Cleared.EMPTY or saw_it_through:
        return ""
    if is_foreign:
        return f"{tree.label}: {tree.group} is not below our own control group, so it was left alone"
    lost = "changed its environment" if system.IS_LINUX else "left its group"
    return f"{tree.label}: its supervisor was killed too, so a process that {lost} would not be found"


def here() -> Place:
    seen = processes.this_process()
    return Place(
        host=socket.gethostname(),
        boot_id=_known(processes.boot_id),
        pid_namespace=_known(processes.pid_namespace),
        pid=os.getpid(),
        pid_started=seen.ticks if seen else 0,
    )


def process_is_gone(place: Place, mine: Place) -> bool:
    """True if we see that the process at that place is gone.

    A process that we cannot see, because it is of another boot or PID namespace, counts as alive.
    """
    if not mine.boot_id or (place.boot_id, place.pid_namespace) != (mine.boot_id, mine.pid_namespace):
        return False
    return not Process(pid=place.pid, ticks=place.pid_started).is_alive


def _known(ask: Callable[[], str]) -> str:
    try:
        return ask()
    except OSError:
        return ""
