"""What this operating system has. Rota is made for Linux; elsewhere it does with what every Unix offers.

Whatever depends on the system asks here, so that everything else is the same everywhere. The standard library only:
the processes that supervise others load this too.
"""

from __future__ import annotations

import os
import sys
import time

NAME = sys.platform
IS_LINUX = NAME == "linux"
"""Whether there are pidfds, memfds, /proc, prctl, packets on Unix sockets, namespaces and control groups."""
CLOCK = time.CLOCK_BOOTTIME if IS_LINUX else time.CLOCK_MONOTONIC
"""The clock that also counts while the machine is suspended. That of macOS does; its `time.monotonic()` does not."""


def anonymous_file(name: str) -> int:
    """The descriptor of a new, empty file without a path; `name` is for those who look at open files."""
    if IS_LINUX:
        return os.memfd_create(name)
    import tempfile  # the agent's side only: it loads much

    descriptor, path = tempfile.mkstemp(prefix=f"rota-{name}-")
    os.unlink(path)  # noqa: PTH108
    return descriptor
