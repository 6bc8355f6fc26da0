"""Process boundaries: every process of an attempt starts inside one, and none outlives it.

          agent ── control socket ── zygote            one per agent: small, single-threaded, forks on request
            │                           │ fork
            └─── one socket per tree ── supervisor     one per tree: the dead-man's switch; init of a PID namespace,
                                        │ fork, exec   or a guardian outside the tree
                                        program        the user's code, with whatever it starts

The agent uses the names of `__all__`. What each kind of boundary promises is data, in `promises`. The modules that run
in the zygote and the supervisors (`zygote`, `supervisor`, `boundaries`, `program_start`, `kernel`, `dead_mans_switch`,
`packets`, `waiting`, `cgroup`, `processes`, `procfs`, `ps`) import the standard library, `rota.system` and each other
only, so that forking them stays cheap. They read this file too, so it loads the agent's side when that is asked for.

Without Linux (`rota.system`) a pipe shows the end of a process instead of a pidfd, `ps` lists processes instead of
/proc, and the link is a stream instead of packets.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.execution.isolation.availability import Availability, available, strongest
    from rota.execution.isolation.errors import BoundaryFailed, CannotStart, DeadlinePassed
    from rota.execution.isolation.process_tree import ProcessTree, TreeEnd
    from rota.execution.isolation.process_trees import ProcessTrees
    from rota.execution.isolation.promises import PROMISES, BoundaryKind, Promise, promise
    from rota.execution.isolation.sweeping import FormerAgent, SweepReport, sweep
    from rota.execution.isolation.tree_order import TreeSpec

__all__ = [
    "PROMISES",
    "Availability",
    "BoundaryFailed",
    "BoundaryKind",
    "CannotStart",
    "DeadlinePassed",
    "FormerAgent",
    "ProcessTree",
    "ProcessTrees",
    "Promise",
    "SweepReport",
    "TreeEnd",
    "TreeSpec",
    "available",
    "promise",
    "strongest",
    "sweep",
]

_MODULES = ("availability", "errors", "process_tree", "process_trees", "promises", "sweeping", "tree_order")


def __getattr__(name: str) -> object:
    """A name of the agent's side."""
    if name in __all__:
        for module in _MODULES:
            loaded = import_module(f"rota.execution.isolation.{module}")
            if hasattr(loaded, name):
                return getattr(loaded, name)
    raise AttributeError(f"module 'rota.execution.isolation' has no attribute {name!r}")
