"""The kinds of boundary and what each promises: the table that the documents and `rota cluster doctor` show."""

from __future__ import annotations

from enum import StrEnum

from rota import system
from rota.model.value import Value


class BoundaryKind(StrEnum):
    """How the processes of a tree are held together; the strongest first."""

    NAMESPACE = "namespace"
    CGROUP = "cgroup"
    GUARDIAN = "guardian"
    GROUP = "group"


class Promise(Value, frozen=True, kw_only=True):
    """What becomes of the processes of a tree in each case, in words; `full` if none survives any of them."""

    kind: BoundaryKind
    full: bool
    linux: bool = True
    """Whether it is that of Linux."""
    means: str
    agent_killed: str
    supervisor_killed: str
    both_killed: str
    daemonised: str
    other_user: str
    switch: str

    @property
    def name(self) -> str:
        return str(self.kind) if self.linux else f"{self.kind} without Linux"

    def in_short(self) -> str:
        """What somebody should know who meets it for the first time, in one line."""
        killed = f"if this node is killed: {self.agent_killed}; if its supervisors are too: {self.both_killed}"
        return f"{self.means} ({self.name}); {killed}; daemonised grandchildren: {self.daemonised}"


PROMISES: tuple[Promise, ...] = (
    Promise(
        kind=BoundaryKind.NAMESPACE,
        full=True,
        means="a PID namespace whose init is ours",
        agent_killed="all gone within 1 s, by the kernel",
        supervisor_killed="all gone within 1 s, by the kernel",
        both_killed="all gone within 1 s, by the kernel",
        daemonised="gone with the rest",
        other_user="gone with the rest",
        switch="all gone at the deadline, agent frozen or dead",
    ),
    Promise(
        kind=BoundaryKind.CGROUP,
        full=True,
        means="a group of cgroup v2, killed as a whole by a supervisor outside it",
        agent_killed="all gone within 1 s, by the supervisor",
        supervisor_killed="all gone within 1 s, by the agent",
        both_killed="survive until the next sweep, which finds all of them",
        daemonised="gone with the rest",
        other_user="gone with the rest",
        switch="all gone at the deadline, agent frozen or dead",
    ),
    Promise(
        kind=BoundaryKind.GUARDIAN,
        full=False,
        means="a supervisor that adopts every orphan of the tree",
        agent_killed="all gone within 1 s, by the supervisor",
        supervisor_killed="the main process is gone; the agent kills those that kept ROTA_TREE in their environment",
        both_killed="the main process is gone; others survive until a sweep, which finds those that kept ROTA_TREE",
        daemonised="gone with the rest",
        other_user="gone with the rest",
        switch="all gone at the deadline, agent frozen or dead",
    ),
    Promise(
        kind=BoundaryKind.GROUP,
        full=False,
        means="a process group",
        agent_killed="those still in the group are gone within 1 s",
        supervisor_killed="the main process is gone; the agent kills those that kept ROTA_TREE in their environment",
        both_killed="the main process is gone; others survive until a sweep, which finds those that kept ROTA_TREE",
        daemonised="survive",
        other_user="as any other of the tree",
        switch="those still in the group are gone at the deadline",
    ),
    Promise(
        kind=BoundaryKind.GROUP,
        full=False,
        linux=False,
        means="a process group, and a supervisor that sees by a pipe that its agent is gone",
        agent_killed="those still in the group are gone within 1 s",
        supervisor_killed="the agent kills those still in the group",
        both_killed="survive until a sweep, which finds those still in a group whose main process lives",
        daemonised="survive",
        other_user="as any other of the tree if the agent is root, else it survives",
        switch="those still in the group are gone at the deadline",
    ),
)


def warning_of(kind: BoundaryKind) -> str:
    """The warning about a boundary of the weakest kind; an empty text for the others."""
    return promise(kind).in_short() if kind is BoundaryKind.GROUP else ""


def promise(kind: BoundaryKind) -> Promise:
    lines = [line for line in PROMISES if line.kind is kind]
    return lines[0] if system.IS_LINUX else lines[-1]
