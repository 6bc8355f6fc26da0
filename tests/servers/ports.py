"""Chooses loopback ports for servers."""

import fcntl
import os
import random
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LOWEST = 15_000
_given: set[int] = set()
_turn = threading.Lock()


def free_port() -> int:
    """A port that nobody listens on, below the range that the kernel gives to outgoing connections.

    Inside that range a client that retries while its server is down may be given the server's own port, connect to
    itself, and so keep the server from coming back. No other test process of this user is given the port while this
    one lives: before its server first listens, and whenever that is down, the port looks free.
    """
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(_LOWEST, first_outgoing)
    for port in random.sample(candidates, k=min(100, len(candidates))):
        if _is_free(port) and _reserve(port):
            return port
    raise RuntimeError(f"no free port found between {_LOWEST} and {first_outgoing}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def _reserve(port: int) -> bool:
    """Lock the byte of this port, until the process ends. A lock on a byte keeps out other processes, not this one."""
    with _turn:
        if port in _given:
            return False
        try:
            fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        _given.add(port)
        return True


@cache
def _reservations() -> int:
    """The file with a byte for each port. Never closed: that would end all locks of the process on it. One file and not
    one for each port, because a process may be given thousands."""
    path = Path(tempfile.gettempdir()) / f"rota-test-ports-{os.getuid()}"
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
