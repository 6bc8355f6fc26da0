"""The agent's end of a worker's channel: sends without waiting, hears in bounded memory, believes nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec

from rota.runners.wire import REPORT_MAX, Inbox, Orders, Report, Setup, SpoiledChannel, framed

_READ = 64 * 1024
_decode = msgspec.msgpack.Decoder(Report).decode


class Link:
    """Frames to and from one worker.

    `hear` gets each report; it raises KeyError for a number that was never given, SpoiledChannel for what cannot be.
    `cut` is called once, when nothing more will be heard: with the reason if the worker broke the protocol.
    """

    def __init__(
        self,
        link: socket.socket,
        loop: asyncio.AbstractEventLoop,
        hear: Callable[[Report], None],
        cut: Callable[[str | None], None],
    ) -> None:
        self._link = link
        self._loop = loop
        self._hear = hear
        self._cut = cut
        self._inbox = Inbox(REPORT_MAX)
        self._unsent = bytearray()
        self._is_cut = False
        link.setblocking(False)
        loop.add_reader(link, self._readable)

    def send(self, message: Setup | Orders) -> None:
        frame = framed(message)
        if self._unsent:
            self._unsent += frame
            return
        sent = self._sent(frame)
        if sent < len(frame) and not self._is_cut:
            self._unsent += frame[sent:]
            self._loop.add_writer(self._link, self._writable)

    def end(self) -> None:
        """Say that nothing more will come."""
        try:
            self._link.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it is gone already

    def close(self) -> None:
        """Hear its last words and let go."""
        while not self._is_cut and self._readable():
            pass
        self._stop()
        self._link.close()

    def _sent(self, data: bytes | bytearray) -> int:
        try:
            return self._link.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # nobody reads it any more; that will be seen

    def _writable(self) -> None:
        del self._unsent[: self._sent(self._unsent)]
        if not self._unsent:
            self._loop.remove_writer(self._link)

    def _readable(self) -> bool:
        """Hear what is there; whether there was anything."""
        try:
            data = self._link.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        try:
            for frame in self._inbox.feed(data):
                self._hear(_decode(frame))
        except (SpoiledChannel, msgspec.MsgspecError, KeyError, UnicodeError, RecursionError) as error:
            self._stop(f"the worker wrote to its channel what it must not: {error}")
            return False
        if not data:
            self._stop()
        return bool(data)

    def _stop(self, why: str | None = None) -> None:
        if self._is_cut:
            return
        self._is_cut = True
        self._loop.remove_reader(self._link)
        self._loop.remove_writer(self._link)
        self._unsent.clear()
        self._cut(why)
