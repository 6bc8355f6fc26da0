"""Hear words, on the UDP port with the number of the node's HTTP port.

    a datagram ──wrong length, old, heard before, wrong proof──> dropped
        └──good──> wake at once, if it has not just been done; else once, a moment later

However many come, a node reads only so many a second; the kernel drops the rest. Nothing is ever answered.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress

from rota.model.records import to_us
from rota.ports import Clock
from rota.storage.sql.word.signing import LENGTH, Judge

PER_S = 1000
"""How many datagrams are read in a second."""
AT_ONCE = 50
"""How many before other tasks have their turn."""
GAP_S = 0.02
"""The least time between two wake-ups."""
BUFFER = 32 * 1024


class WordListener:
    """Calls `wake` when somebody who has the key says so."""

    def __init__(self, inbox: socket.socket, key: bytes, clock: Clock, wake: Callable[[], None]) -> None:
        self._inbox = inbox
        self._judge = Judge(key)
        self._clock = clock
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._left = PER_S
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._next_s = 0.0
        self._loop.add_reader(inbox, self._read)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._loop.remove_reader(self._inbox)
        self._inbox.close()

    def _read(self) -> None:
        """Read some. Who floods the port waits for the next second, like everybody."""
        if "second" not in self._timers:
            self._left = PER_S
            self._later("second", 1.0, self._begin_second)
        with suppress(OSError):  # nothing is left; or the kernel tells of a reply that nobody wants
            for _ in range(min(AT_ONCE, self._left)):
                word = self._inbox.recv(LENGTH + 1)
                self._left -= 1
                if self._judge.is_good(word, to_us(self._clock.wall())):
                    self._heed()
        if not self._left:
            self._loop.remove_reader(self._inbox)

    def _begin_second(self) -> None:
        if not self._left:
            self._loop.add_reader(self._inbox, self._read)

    def _heed(self) -> None:
        wait_s = self._next_s - self._clock.monotonic()
        if wait_s <= 0:
            self._call()
        elif "call" not in self._timers:
            self._later("call", wait_s, self._call)

    def _call(self) -> None:
        self._next_s = self._clock.monotonic() + GAP_S
        self._wake()

    def _later(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        def due() -> None:
            del self._timers[name]
            act()

        self._timers[name] = self._loop.call_later(seconds, due)


def bound(host: str, port: int) -> socket.socket:
    """A socket that hears what is sent to this address. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_DGRAM)
    try:
        if host == "::" and socket.has_dualstack_ipv6():
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
        made.setblocking(False)
        made.bind((host, port))
    except BaseException:
        made.close()
        raise
    return made
