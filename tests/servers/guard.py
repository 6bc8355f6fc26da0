"""Runs one server and ends it, with all its descendants, as soon as the process that asked for it is gone.

    python guard.py UID FOLDER COMMAND…

It reads signal names from its standard input, one on a line, and sends them to the server; `kill` means: kill
everything. The end of that input means that the asking process is going: when it is gone, FOLDER is removed as well.
The exit code is 0 when the server ended by itself or on a signal asked for, else 1.

A guard, and not PDEATHSIG from the tests: that signal fires when the *thread* that started the server ends, and tests
start servers from short-lived threads. The guard has one thread, so against its own death it does use PDEATHSIG.
It never decides when a server is ready and never restarts one. It imports the standard library only, to start fast.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
from enum import Enum
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
GOING_S = 10.0
"""A process that ends closes its pipes first; so much later it is surely gone."""


class End(Enum):
    """Why the server is over."""

    BY_ITSELF = 0
    KILLED = 1
    FORSAKEN = 2


def main(uid: int, folder: Path, command: list[str]) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    # Orphans of the server (PostgreSQL's backends leave its process group) become children of the guard, to be killed.
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    asker = os.pidfd_open(os.getppid())
    server = subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # our own output is a pipe that is read for one line only
        user=uid,
        group=uid if uid != os.getuid() else os.getgid(),
        extra_groups=[] if os.getuid() == 0 else None,
        # Runs after the change of uid, which would clear it. Safe here, for the guard has no other thread.
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),  # noqa: PLW1509
    )
    print(server.pid, flush=True)
    end = _relay_signals(server, asker)
    _kill_descendants()
    if _is_gone(asker, GOING_S if end is End.FORSAKEN else 0):
        shutil.rmtree(folder, ignore_errors=True)
    return 0 if end is End.BY_ITSELF else 1


def _relay_signals(server: subprocess.Popen[bytes], asker: int) -> End:
    """Pass signals on until it is over."""
    running = os.pidfd_open(server.pid)
    orders = b""
    while True:
        ready, _, _ = select.select([sys.stdin.fileno(), asker, running], [], [])
        if running in ready:
            return End.BY_ITSELF
        chunk = os.read(sys.stdin.fileno(), 4096) if sys.stdin.fileno() in ready else b""
        if not chunk:
            return End.FORSAKEN
        *names, orders = (orders + chunk).split(b"\n")
        if b"kill" in names:
            return End.KILLED
        for name in names:
            signal.pidfd_send_signal(running, signal.Signals[name.decode()])


def _kill_descendants() -> None:
    """Kill and reap children until there are none; each killed parent hands its own children to us."""
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    while True:
        for pid in children.read_text().split():
            os.kill(int(pid), signal.SIGKILL)  # ours and not yet reaped, so the number cannot be another's
        try:
            os.wait()
        except ChildProcessError:
            return


def _is_gone(pidfd: int, wait_s: float) -> bool:
    return bool(select.select([pidfd], [], [], wait_s)[0])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
