"""Records of an agent and its trees, so that a later agent can kill what this one leaves behind.

    STATE_DIR/agent-TOKEN/agent.json     who the agent is; written when its `ProcessTrees` open, removed when they close
    STATE_DIR/agent-TOKEN/tree-NAME      one live tree; written before user code starts, removed when seen gone
    STATE_DIR/agent-TOKEN/.tree-NAME, .probe-PID      not finished, or only tried; of no use to anybody later
    STATE_DIR/.agent-TOKEN/              not finished

A process is named by pid *and* start time: pids are used again. A record that cannot be read was cut short, and its
tree never started.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

import msgspec

from rota.execution.isolation import cgroup, processes, state_folder
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.waiting import wall_s
from rota.model.value import V, Value, decode

_AGENT = "agent.json"
_BEGINS_S = 3600
"""No agent takes so long to write its own record."""


class Process(Value, frozen=True, kw_only=True):
    """One process of one boot, for good."""

    pid: int
    ticks: int

    @property
    def is_alive(self) -> bool:
        """A process that we cannot see counts as alive."""
        seen = processes.find(self.pid)
        if seen is None:
            return processes.is_hidden(self.pid)
        return seen.is_alive and processes.same_start(seen.ticks, self.ticks)


class AgentRecord(Value, frozen=True, kw_only=True):
    """Which agent has these trees, and in which boot and PID namespace its pids are valid."""

    node: str
    token: str
    agent: Process
    boot_id: str
    pid_namespace: str
    kind: BoundaryKind
    group_places: tuple[str, ...] = ()

    @property
    def groups(self) -> list[str]:
        """The control groups of its trees that are there now, as far as they are below our own."""
        return cgroup.groups_of(self.token, tuple(filter(cgroup.is_below_own, self.group_places)))


class TreeRecord(Value, frozen=True, kw_only=True):
    """One tree: its supervisor, and what else it can be found by."""

    label: str
    name: str
    kind: BoundaryKind
    supervisor: Process
    main: Process | None = None
    """The leader of its process group; known elsewhere than on Linux, where it is what the tree is found by."""
    group: str | None = None


class Records:
    """The folder of one agent."""

    def __init__(self, folder: Path, agent: AgentRecord) -> None:
        self.folder = folder
        self.agent = agent
        self._count = 0

    @classmethod
    def begin(cls, state_dir: Path, node: str, kind: BoundaryKind) -> Records:
        """Write down that this process is an agent. Raises `InvalidInput` if that cannot be done."""
        token = secrets.token_hex(8)
        agent = AgentRecord(
            node=node,
            token=token,
            agent=myself(),
            boot_id=processes.boot_id(),
            pid_namespace=processes.pid_namespace(),
            kind=kind,
            group_places=cgroup.own_places(),
        )
        folder = state_dir / f"agent-{token}"
        unfinished = state_dir / f".agent-{token}"
        state_folder.prepare(state_dir)
        with state_folder.written(state_dir):
            unfinished.mkdir(mode=0o700)
            try:
                (unfinished / _AGENT).write_bytes(msgspec.json.encode(agent))
                unfinished.rename(folder)  # so a sweep never meets a folder of a living agent that does not say so
            except OSError:
                remove_folder(unfinished)
                raise
        return cls(folder, agent)

    def new_name(self) -> str:
        """A name for a tree that no other has, on this host and ever; safe as part of a path."""
        self._count += 1
        return f"{self.agent.token}.{self._count}"

    def path(self, name: str) -> Path:
        return self.folder / f"tree-{name}"

    def write(self, tree: TreeRecord) -> None:
        descriptor = os.open(self.path(tree.name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(tree))

    def rewrite(self, tree: TreeRecord) -> None:
        unfinished = self.folder / f".tree-{tree.name}"
        unfinished.write_bytes(msgspec.json.encode(tree))
        unfinished.rename(self.path(tree.name))

    def remove(self, name: str) -> None:
        self.path(name).unlink(missing_ok=True)

    def end(self) -> None:
        """Forget the agent, unless a tree of it is not known to be gone."""
        remove_folder(self.folder)


def read_agent(folder: Path) -> AgentRecord | None:
    return read(folder / _AGENT, AgentRecord)


def read(path: Path, kind: type[V]) -> V | None:
    """What was written there; none if it is gone, cut short, or not ours."""
    try:
        return decode(state_folder.read_own(path), kind)
    except (OSError, msgspec.DecodeError):
        return None


def tree_paths(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.name.startswith("tree-"))
    except FileNotFoundError:  # another sweep was here first
        return []


def remove_folder(folder: Path) -> None:
    """The agent's own line goes last: while there are trees, they must be found."""
    if not tree_paths(folder):
        with suppress(FileNotFoundError):  # two sweeps at once
            for unfinished in folder.glob(".*"):
                unfinished.unlink(missing_ok=True)
            (folder / _AGENT).unlink(missing_ok=True)
            folder.rmdir()


def remove_unfinished(state_dir: Path) -> None:
    """Remove what agents left that died while they began. One that begins now needs a moment, not hours."""
    for folder in state_dir.glob(".agent-*"):
        with suppress(FileNotFoundError):  # it is finished now, or another sweep was quicker
            if wall_s() - folder.stat().st_mtime > _BEGINS_S:
                remove_folder(folder)


def myself() -> Process:
    seen = processes.this_process()
    assert seen is not None
    return Process(pid=seen.pid, ticks=seen.ticks)
