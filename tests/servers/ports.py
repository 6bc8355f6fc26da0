"""Chooses loopback ports for servers."""

import random
import socket
from pathlib import Path

LOOPBACK = "127.0.0.1"
_LOWEST = 15_000


def free_port() -> int:
    """A port that nobody listens on, below the range that the kernel gives to outgoing connections.

    Inside that range a client that retries while its server is down may be given the server's own port, connect to
    itself, and so keep the server from coming back.
    """
    first_outgoing = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(_LOWEST, first_outgoing)
    for port in random.sample(candidates, k=min(100, len(candidates))):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port found between {_LOWEST} and {first_outgoing}")
