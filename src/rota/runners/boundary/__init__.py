"""Process boundaries: every process of an attempt starts inside one, and none outlives it.

          agent ── control socket ── zygote            one per agent: small, single-threaded, forks on request
            │                           │ fork
            └─── one socket per tree ── supervisor     one per tree: the dead-man's switch; init of a PID namespace,
                                        │ fork, exec   or a guardian outside the tree
                                        program        the user's code, with whatever it starts

The agent uses the names of `__all__`. What each kind of boundary promises is data, in `promises`. The modules that run
in the zygote and the supervisors (`zygote`, `supervisor`, `enclosures`, `program`, `kernel`, `switch`, `wire`,
`waiting`, `cgroup`, `processes`, `procfs`, `ps`) import the standard library, `rota.system` and each other only, so
that forking them stays cheap. They read this file too, so it loads the agent's side when that is asked for.

What differs without Linux asks `rota.system`: the lifeline is a pipe, processes are seen by `ps`, the link is a stream.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.runners.boundary.errors import BoundaryFailed, CannotStart, DeadlinePassed
    from rota.runners.boundary.kinds import Availability, available, strongest
    from rota.runners.boundary.order import TreeSpec
    from rota.runners.boundary.promises import PROMISES, BoundaryKind, Promise, promise
    from rota.runners.boundary.sweeping import Former, Swept, sweep
    from rota.runners.boundary.tree import Tree, TreeEnd
    from rota.runners.boundary.yard import Yard

__all__ = [
    "PROMISES",
    "Availability",
    "BoundaryFailed",
    "BoundaryKind",
    "CannotStart",
    "DeadlinePassed",
    "Former",
    "Promise",
    "Swept",
    "Tree",
    "TreeEnd",
    "TreeSpec",
    "Yard",
    "available",
    "promise",
    "strongest",
    "sweep",
]

_MODULES = ("errors", "kinds", "order", "promises", "sweeping", "tree", "yard")


def __getattr__(name: str) -> object:
    """A name of the agent's side."""
    if name in __all__:
        for module in _MODULES:
            loaded = import_module(f"rota.runners.boundary.{module}")
            if hasattr(loaded, name):
                return getattr(loaded, name)
    raise AttributeError(f"module 'rota.runners.boundary' has no attribute {name!r}")
