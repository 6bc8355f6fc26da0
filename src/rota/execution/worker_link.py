"""The agent's end of a worker's channel: sends without waiting, receives in bounded memory, trusts nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import msgspec

from rota.execution.worker_protocol import (
    REPORT_MAX,
    FrameReader,
    Orders,
    ProtocolViolation,
    Setup,
    WorkerReport,
    framed,
)

_READ = 64 * 1024
_decode = msgspec.msgpack.Decoder(WorkerReport).decode


class WorkerLink:
    """Frames to and from one worker.

    `on_report` gets each report; it raises KeyError for a number that was never given, ProtocolViolation for what is
    impossible. `on_closed` is called once, when nothing more will come: with the reason if the worker broke the
    protocol.
    """

    def __init__(
        self,
        link: socket.socket,
        loop: asyncio.AbstractEventLoop,
        on_report: Callable[[WorkerReport], None],
        on_closed: Callable[[str | None], None],
    ) -> None:
        self._link = link
        self._loop = loop
        self._on_report = on_report
        self._on_closed = on_closed
        self._inbox = FrameReader(REPORT_MAX)
        self._unsent = bytearray()
        self._is_closed = False
        link.setblocking(False)
        loop.add_reader(link, self._readable)

    def send(self, message: Setup | Orders) -> None:
        frame = framed(message)
        if self._unsent:
            self._unsent += frame
            return
        sent = self._sent(frame)
        if sent < len(frame) and not self._is_closed:
            self._unsent += frame[sent:]
            self._loop.add_writer(self._link, self._writable)

    def end(self) -> None:
        """Close our direction: nothing more will be sent."""
        try:
            self._link.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it is gone already

    def close(self) -> None:
        """Read what is left, and close the socket."""
        while not self._is_closed and self._readable():
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
        """Read what is there; false if there was nothing."""
        try:
            data = self._link.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        try:
            for frame in self._inbox.feed(data):
                self._on_report(_decode(frame))
        except (ProtocolViolation, msgspec.MsgspecError, KeyError, UnicodeError, RecursionError) as error:
            self._stop(f"the worker wrote to its channel what it must not: {error}")
            return False
        if not data:
            self._stop()
        return bool(data)

    def _stop(self, why: str | None = None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._link)
        self._loop.remove_writer(self._link)
        self._unsent.clear()
        self._on_closed(why)
