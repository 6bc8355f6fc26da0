"""Whether a task has left processes behind: every orphan below a worker becomes its child, so that it can be asked."""

from __future__ import annotations

import os
from contextlib import suppress

from rota.runners.boundary import kernel


def adopt() -> None:
    """From now on, processes whose parents end become children of this one."""
    with suppress(OSError, AttributeError):  # not on Linux: then only direct children are seen
        kernel.adopt_orphans()


def any_left() -> bool:
    """Whether a child still runs. Those that have ended are forgotten."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        if ended is None:
            return True
        with suppress(ChildProcessError):
            os.waitpid(ended.si_pid, os.WNOHANG)
