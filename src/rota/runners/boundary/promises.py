"""The kinds of boundary and what each promises: the table that the documents and `rota cluster doctor` show."""

from __future__ import annotations

from enum import StrEnum

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
    means: str
    agent_killed: str
    supervisor_killed: str
    both_killed: str
    daemonised: str
    other_user: str
    switch: str


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
        other_user="gone with the rest if the agent runs as root; else a program that gained another user survives",
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
        other_user="as guardian",
        switch="those still in the group are gone at the deadline",
    ),
)


def promise(kind: BoundaryKind) -> Promise:
    return next(line for line in PROMISES if line.kind is kind)
