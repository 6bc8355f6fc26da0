"""A node that never looks for work by itself once it rests: whatever it starts, somebody has told it of."""

import sys

from rota.loops.dispatcher import Dispatcher
from rota.model.dispatch import Pulse
from tests.cluster.node import main

FOREVER_S = 86_400.0


def rest_s(self: Dispatcher, pulse: Pulse | None = None) -> float:
    """Only what it knows to be due is a reason to look."""
    due_s = self._due_s
    return FOREVER_S if due_s is None else max(due_s - self.clock.monotonic(), 0.0)


if __name__ == "__main__":
    Dispatcher._rest_s = rest_s  # type: ignore[method-assign]
    sys.exit(main())
