"""Send words to the nodes that a commit concerns.

    commit ──> who is concerned ──their addresses are known──> one datagram each, at once
                     └──not known, or not lately──> read them (and the key) once, then send

The commit waits for none of it, and nothing here fails. A node gets at most one word in a while; what was committed
meanwhile is told with the next.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog

from rota.model.records import to_us
from rota.ports import Clock
from rota.storage.sql.word.signing import signed

KNOWN_S = 1.0
"""For how long addresses are remembered: a node that has joined since then is not told, and looks by itself."""
GAP_S = 0.05
"""The least time between two words to one node: who has work to do looks by itself."""
TOLD_MAX = 64
"""How many nodes one commit wakes at most."""
ALL = ("dispatch", "jobs")
"""Topics that concern every node."""
PREFIX = "node:"

log = structlog.get_logger()


class Addresses(NamedTuple):
    """The key of the cluster, if any node has made one, and where which node hears words."""

    key: bytes | None
    nodes: Mapping[int, str]


class WordSender:
    """Wakes other nodes. `own` is the address of this one, which needs no word."""

    def __init__(self, read: Callable[[], Awaitable[Addresses]], clock: Clock) -> None:
        self._read = read
        self._clock = clock
        self.own = ""
        self._key: bytes | None = None
        self._places: dict[int, tuple[socket.AddressFamily, tuple[object, ...]]] = {}
        self._known_until_s = 0.0
        self._owed: set[int] = set()
        self._owes_all = False
        self._sent_s: dict[int, float] = {}
        self._sending: asyncio.Task[None] | None = None

    def tell(self, topics: Sequence[str]) -> None:
        """Wake whom these concern, soon."""
        self._owed |= {int(it.removeprefix(PREFIX)) for it in topics if it.startswith(PREFIX)}
        self._owes_all = self._owes_all or any(it in ALL for it in topics)
        if (self._owed or self._owes_all) and (self._sending is None or self._sending.done()):
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def close(self, patience_s: float) -> None:
        """Let what is owed go out, for a moment: a process that ends has often just committed something."""
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=patience_s)
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        try:
            while self._owed or self._owes_all:
                await self._look_up()
                wait_s = self._send_due()
                if wait_s:
                    await self._clock.sleep(wait_s)
        except Exception as fault:  # noqa: BLE001 - whatever is wrong, the nodes look by themselves
            self._owed, self._owes_all = set(), False
            log.debug("store.word_not_sent", reason=str(fault))

    async def _look_up(self) -> None:
        if self._clock.monotonic() < self._known_until_s:
            return
        found = await self._read()
        loop = asyncio.get_running_loop()
        places: dict[int, tuple[socket.AddressFamily, tuple[object, ...]]] = {}
        for node_id, address in found.nodes.items():
            host, _, port = address.rpartition(":")
            if address == self.own or len(places) == TOLD_MAX:
                continue
            with suppress(OSError, ValueError, UnicodeError):  # a name that is not known here
                first = (await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_DGRAM))[0]
                places[node_id] = first[0], first[4]
        self._key, self._places = found.key, places
        self._sent_s = {node_id: at_s for node_id, at_s in self._sent_s.items() if node_id in places}
        self._known_until_s = self._clock.monotonic() + KNOWN_S

    def _send_due(self) -> float:
        """Send what may be sent now; says when the next may be. Nodes that are not known any more are owed nothing."""
        owed = set(self._places) if self._owes_all else self._owed & self._places.keys()
        self._owes_all = False
        now_s = self._clock.monotonic()
        due = {it for it in owed if now_s >= self._sent_s.get(it, -GAP_S) + GAP_S}
        self._owed = owed - due
        if self._key is not None:
            for node_id in due:
                self._sent_s[node_id] = now_s
                _send_to(*self._places[node_id], signed(self._key, to_us(self._clock.wall())))
        return max(min((self._sent_s.get(it, 0.0) for it in self._owed), default=now_s - GAP_S) + GAP_S - now_s, 0.0)


def _send_to(family: socket.AddressFamily, place: tuple[object, ...], word: bytes) -> None:
    with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as outbox:
        outbox.setblocking(False)
        outbox.sendto(word, place)
