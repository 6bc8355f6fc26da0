"""Why a tree did not start. In each case nothing of it ran.

Refused
├── CannotStart       the order is at fault: no such program, directory or user
├── DeadlinePassed    this node's lease is over: nothing may start until it is renewed
└── BoundaryFailed    this node is at fault: no process could be made, or no boundary of that kind is to be had
    └── ZygoteGone    the process that makes them died meanwhile
"""

from __future__ import annotations

from rota.errors import Refused


class CannotStart(Refused):
    """The program cannot be started as ordered; the message says which step failed and why."""


class DeadlinePassed(Refused):
    """The deadline of the switch has passed, so nothing may start."""


class BoundaryFailed(Refused):
    """This node could not make the boundary; another might."""


class ZygoteGone(BoundaryFailed):
    """The process that makes supervisors died; a new one may do it."""
