"""The word that wakes the nodes of a cluster whose database tells nothing by itself (MySQL, MariaDB).

A word is "look", the instant at which it was sent, and a proof of the cluster's key. It carries no data.

    1 byte   the version
    8 bytes  microseconds since 1970, by the clock of the sender
    16 bytes HMAC-SHA256 of the nine before, cut

    commit ──> who is concerned ──their addresses are known──> one datagram each, at once
                     └──not known, or not lately──> read them (and the key) once, then send
    a datagram ──wrong length, old, heard before, wrong proof──> dropped
        └──good──> wake at once, if it has not just been done; else once, a moment later

It goes to the UDP port with the number of the node's HTTP port. The commit waits for none of it, and nothing here
fails. A node gets at most one word in a while; what was committed meanwhile is told with the next. However many come, a
node reads only so many a second; the kernel drops the rest. Nothing is ever answered, and whoever repeats a word gains
nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec
from sqlalchemy import Connection, select

from rota.logger import log
from rota.model import tables
from rota.model.records import to_us
from rota.ports import Clock
from rota.storage.sql import schema
from rota.storage.sql.dialect import Dialect
from rota.storage.sql.sets import Insert, WritePart

VERSION = b"\x01"
PROOF = 16
LENGTH = 1 + 8 + PROOF
FRESH_US = 30_000_000
"""How far the clocks of two hosts may be apart, and for how long a word is good."""
REMEMBERED_MAX = 4096
"""How many words that were heard are remembered, so that none counts twice."""


def signed(key: bytes, at_us: int) -> bytes:
    """The word of an instant."""
    said = VERSION + at_us.to_bytes(8, "big")
    return said + _proof(key, said)


class Judge:
    """Says which words are to be heeded."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._heard: OrderedDict[bytes, None] = OrderedDict()

    def is_good(self, word: bytes, now_us: int) -> bool:
        """Whether somebody who has the key sent this just now, for the first time."""
        if len(word) != LENGTH or word[:1] != VERSION:
            return False
        if abs(int.from_bytes(word[1:9], "big") - now_us) > FRESH_US:
            return False
        if not hmac.compare_digest(word[9:], _proof(self._key, word[:9])) or word in self._heard:
            return False
        self._heard[word] = None
        if len(self._heard) > REMEMBERED_MAX:
            self._heard.popitem(last=False)
        return True


def _proof(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, said, "sha256")[:PROOF]


KNOWN_S = 1.0
"""For how long addresses are remembered: a node that has joined since then is not told, and looks by itself."""
GAP_S = 0.05
"""The least time between two words to one node: who has work to do looks by itself."""
TOLD_MAX = 64
"""How many nodes one commit wakes at most."""
ALL = ("dispatch", "jobs")
"""Topics that concern every node."""
PREFIX = "node:"


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
                family, place = self._places[node_id]
                with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as outbox:
                    outbox.setblocking(False)
                    outbox.sendto(signed(self._key, to_us(self._clock.wall())), place)
        return max(min((self._sent_s.get(it, 0.0) for it in self._owed), default=now_s - GAP_S) + GAP_S - now_s, 0.0)


PER_S = 1000
"""How many datagrams are read in a second."""
AT_ONCE = 50
"""How many before other tasks have their turn."""
WAKE_GAP_S = 0.02
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
        self._next_s = self._clock.monotonic() + WAKE_GAP_S
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


KEY = "wake_key"
"""The row of `rota_meta`. The first node makes it up; who can read the store can read it."""


class _Place(msgspec.Struct):
    address: str = ""


def read_addresses(conn: Connection) -> Addresses:
    """In one statement."""
    n, m = schema.node.c, schema.meta.c
    key = select(m.value).where(m.name == KEY).scalar_subquery()
    live = schema.node.join(schema.lease, schema.lease.c.node_id == n.id)
    rows = conn.execute(select(n.id, n.joined, key.label("word_key")).select_from(live).limit(TOLD_MAX)).all()
    found = next((row.word_key for row in rows if row.word_key), None)
    places = {int(row.id): msgspec.json.decode(row.joined, type=_Place).address for row in rows}
    return Addresses(bytes.fromhex(found) if found else None, {id_: it for id_, it in places.items() if it})


def made_key(conn: Connection, dialect: Dialect, new: str) -> bytes:
    """The key of the cluster; it is `new` if there was none."""
    m = schema.meta.c
    wanted = select(m.value).where(m.name == KEY)
    found = conn.scalars(wanted).one_or_none()
    if found is None:
        dialect.write(conn, [WritePart(Insert(tables.META, missing=True), [(KEY, new)])])
        found = conn.scalars(wanted).one()
    return bytes.fromhex(found)
