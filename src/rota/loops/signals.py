"""The signals of one node: what its parts tell each other, by name.

    signals.fired.on(act)      node.py says who acts on what, once, when it puts the node together
    signals.fired.emit(done)   the part to which it happened tells it; whoever listens acts at once, in that order

A signal only hastens: whoever acts on one would find the same at its next look.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

from rota.model.plan import Committed
from rota.model.work import Attempt

P = ParamSpec("P")


class Signal(Generic[P]):
    """One thing that can happen."""

    __slots__ = ("_acts",)

    def __init__(self) -> None:
        self._acts: list[Callable[P, object]] = []

    def on(self, act: Callable[P, object]) -> None:
        self._acts.append(act)

    def emit(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for act in self._acts:
            act(*args, **kwargs)


class Signals:
    """All that can happen on a node and concerns more than one of its parts."""

    def __init__(self) -> None:
        self.fired = Signal[[Committed]]()
        """The scheduler has fired a batch."""
        self.jobs_changed = Signal[[]]()
        """The scheduler has seen that jobs which want an owner came or went."""
        self.ownership_changed = Signal[[]]()
        """Placement gave jobs to this scheduler, or took some away."""
        self.acquired = Signal[[int, int]]()
        """A sweep has won so many jobs, and this scheduler now has so many."""
        self.session_began = Signal[[]]()
        """This scheduler has joined the others under a new session."""
        self.session_lost = Signal[[]]()
        """Its session is over: others may have its jobs."""
        self.coordinator_given_up = Signal[[]]()
        """The coordinator is lost, and the configuration says that the process then ends."""
        self.repaired = Signal[[str]]()
        """Something was lost or wrong in the coordinator and has been put right."""
        self.unwritten = Signal[[]]()
        """Attempts have begun or ended, which is to be written."""
        self.attempt_began = Signal[[Attempt, float]]()
        """An attempt has begun, at that instant of the monotonic clock."""
        self.attempt_warned = Signal[[Attempt, str]]()
        """An attempt takes longer than it was expected to."""
        self.committed = Signal[[]]()
        """A finisher has written ends of attempts."""
        self.all_in_hand = Signal[[]]()
        """A node that drains is given nothing more, and has all that it was given in hand."""
