"""A TCP proxy that breaks connections on demand, also in the moment that matters most: between a commit and its reply.

      client <-> FaultProxy <-> server

| call                    | connections that are open             | new connections          |
|-------------------------|---------------------------------------|--------------------------|
| pass_through()          | bytes flow; those held back go first  | are made                 |
| refuse()                | bytes flow                            | are refused              |
| black_hole()            | bytes are taken and held back         | are taken, never served  |
| delay(seconds)          | each piece arrives that much later    | same                     |
| abort()                 | are reset, once                       | are made                 |
| swallow_commits(…)      | a commit is done, its reply lost      | same                     |

The first four replace each other; `swallow_commits` and `abort` come on top, and `pass_through` ends all. A black hole
is what a cut network is to TCP: nothing arrives, nobody is told, and what was sent arrives late if it heals (use
`abort` first to lose it). The counters say how often a fault really took effect; a refused connection never reaches
the proxy, so its client must count it.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Self

from tests.servers.ports import LOOPBACK, free_port
from tests.servers.wire import Wire, wire_of_client, wire_of_server

_CHUNK = 65536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # struct linger: on, for zero seconds


class FaultProxy:
    """Stands between clients and one server. All calls belong to the event loop that started it."""

    def __init__(self, target_host: str, target_port: int, host: str = LOOPBACK) -> None:
        self.host = host
        self.target = (target_host, target_port)
        self.port = free_port()
        self.accepted = 0
        self.held = 0
        self.delayed = 0
        self.aborted = 0
        self.swallowed = 0
        self.pieces = 0
        self._listener: asyncio.Server | None = None
        self._is_stopped = False
        self._links: dict[_Link, asyncio.Task[None]] = {}
        self._flowing = asyncio.Event()
        self._delay = 0.0
        self._commits_to_swallow = 0
        self._swallow_probability = 0.0
        self._rng: random.Random | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen on `port` of 127.0.0.1 and pass everything."""
        await self.pass_through()

    async def stop(self) -> None:
        """Stop listening and reset the open connections; returns when no task is left."""
        self._is_stopped = True
        self._stop_listening()
        await asyncio.sleep(0)  # whoever was just taken in is reset by `_serve`
        await asyncio.gather(*self._reset_all(), return_exceptions=True)

    async def pass_through(self) -> None:
        """Heal: deliver what was held back, and from now on everything at once. Commits are no longer swallowed."""
        self._delay = 0.0
        self._commits_to_swallow, self._swallow_probability = 0, 0.0
        self._flowing.set()
        await self._listen()

    async def refuse(self) -> None:
        """Refuse new connections, as a machine without the server does."""
        self._delay = 0.0
        self._flowing.set()
        self._stop_listening()

    async def black_hole(self) -> None:
        """Take connections and bytes, deliver none, in either direction."""
        self._delay = 0.0
        self._flowing.clear()
        await self._listen()

    async def delay(self, seconds: float) -> None:
        """Deliver each piece of data this much later, in either direction."""
        self._delay = seconds
        self._flowing.set()
        await self._listen()

    def abort(self) -> None:
        """Reset all connections that are open now."""
        self.aborted += len(self._reset_all())

    def swallow_commits(self, how_often: float, rng: random.Random | None = None) -> None:
        """Let commits reach the server, but lose the reply and reset the client.

        An int swallows that many of the next commits; with an `rng`, `how_often` is the probability for each commit.
        """
        if rng is None and how_often != int(how_often):
            raise ValueError(f"a probability ({how_often}) needs an rng to draw from")
        self._rng = rng
        if rng is None:
            self._commits_to_swallow, self._swallow_probability = int(how_often), 0.0
        else:
            self._commits_to_swallow, self._swallow_probability = 0, how_often

    def takes_this_commit(self) -> bool:
        """Decide, for one commit, whether its reply shall be lost."""
        if self._commits_to_swallow > 0:
            self._commits_to_swallow -= 1
            return True
        return self._rng is not None and self._rng.random() < self._swallow_probability

    async def passage(self) -> None:
        """Wait for as long as the fault of the moment holds one piece of data back."""
        if self._delay:
            self.delayed += 1
            await asyncio.sleep(self._delay)
        if not self._flowing.is_set():
            self.held += 1
            await self._flowing.wait()

    async def _listen(self) -> None:
        self._is_stopped = False
        if self._listener is None:
            self._listener = await asyncio.start_server(self._serve, self.host, self.port)

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _reset_all(self) -> list[asyncio.Task[None]]:
        tasks = list(self._links.values())
        for task in tasks:
            task.cancel()
        for link in self._links:
            link.reset()
        return tasks

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:
            _reset(writer)
            return
        self.accepted += 1
        link = _Link(self, reader, writer)
        # A task of our own: asyncio logs the cancelling of the one that it runs this method in.
        task = self._links[link] = asyncio.create_task(link.run())
        await asyncio.wait([task])
        del self._links[link]
        if not task.cancelled():
            task.result()


class _Link:
    """One client's connection and ours to the server on its behalf."""

    def __init__(self, proxy: FaultProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._from_client, self._to_client = reader, writer
        self._to_server: asyncio.StreamWriter | None = None
        self._wire: Wire | None = None
        self._reply: bytes | None = None  # what the server has answered to a commit whose reply shall be lost

    async def run(self) -> None:
        """Carry bytes both ways until one side ends or the link is reset."""
        await self._proxy.passage()
        try:
            from_server, self._to_server = await asyncio.open_connection(*self._proxy.target)
        except OSError:
            _reset(self._to_client)
            return
        await _until_one_ends(self._carry_requests(self._to_server), self._carry_replies(from_server))
        for writer in (self._to_client, self._to_server):
            writer.close()
        for writer in (self._to_client, self._to_server):
            with suppress(OSError):
                await writer.wait_closed()

    def reset(self) -> None:
        """End both connections at once; the client sees a reset."""
        _reset(self._to_client)
        if self._to_server is not None:
            _reset(self._to_server)

    async def _carry_requests(self, to_server: asyncio.StreamWriter) -> None:
        opening = b""
        while chunk := await self._receive(self._from_client):
            opening += chunk
            self._wire = self._wire or wire_of_client(opening)
            if self._wire is None:
                continue
            chunk, opening = opening, b""
            for message in self._wire.cut(chunk):
                if message.asks_for_commit and self._proxy.takes_this_commit():
                    self._reply = b""
                to_server.write(message.data)
            await to_server.drain()

    async def _carry_replies(self, from_server: asyncio.StreamReader) -> None:
        greeting = b""
        while chunk := await self._receive(from_server):
            if self._wire is None:
                greeting += chunk
                self._wire = wire_of_server(greeting)
            if self._reply is None:
                self._to_client.write(chunk)
                await self._to_client.drain()
                continue
            assert self._wire is not None, "a commit was seen, so the protocol is known"
            self._reply += chunk
            if self._wire.ends_reply(self._reply):
                self._proxy.swallowed += 1
                _reset(self._to_client)
                return

    async def _receive(self, reader: asyncio.StreamReader) -> bytes:
        """The next piece of data, or nothing at the end; the end too is held back by the fault of the moment."""
        try:
            chunk = await reader.read(_CHUNK)
        except OSError:
            chunk = b""
        self._proxy.pieces += 1
        await self._proxy.passage()
        return chunk


async def _until_one_ends(*carriers: Coroutine[Any, Any, None]) -> None:
    tasks = [asyncio.ensure_future(carrier) for carrier in carriers]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, OSError):
                raise outcome


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a TCP reset instead of an orderly end."""
    if not writer.transport.is_closing():
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    writer.transport.abort()
