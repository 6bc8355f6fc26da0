"""The agent's end of a worker's channel: sends without waiting, receives in bounded memory, trusts nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

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


@dataclass(eq=False, repr=False)
class WorkerLink:
    """Frames to and from one worker.

    `on_report` gets each report; it raises KeyError for a number that was never given, ProtocolViolation for what is
    impossible. `on_closed` is called once, when nothing more will come: with the reason if the worker broke the
    protocol.
    """

    link: socket.socket
    loop: asyncio.AbstractEventLoop
    on_report: Callable[[WorkerReport], None]
    on_closed: Callable[[str | None], None]
    _unsent: bytearray = field(default_factory=bytearray)
    _is_closed: bool = False

    def __post_init__(self) -> None:
        self._inbox = FrameReader(REPORT_MAX)
        self.link.setblocking(False)
        self.loop.add_reader(self.link, self._readable)

    def send(self, message: Setup | Orders) -> None:
        frame = framed(message)
        if self._unsent:
            self._unsent += frame
            return
        sent = self._sent(frame)
        if sent < len(frame) and not self._is_closed:
            self._unsent += frame[sent:]
            self.loop.add_writer(self.link, self._writable)

    def end(self) -> None:
        """Close our direction: nothing more will be sent."""
        try:
            self.link.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it is gone already

    def close(self) -> None:
        """Read what is left, and close the socket."""
        while not self._is_closed and self._readable():
            pass
        self._stop()
        self.link.close()

    def _sent(self, data: bytes | bytearray) -> int:
        try:
            return self.link.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)  # nobody reads it any more; that will be seen

    def _writable(self) -> None:
        del self._unsent[: self._sent(self._unsent)]
        if not self._unsent:
            self.loop.remove_writer(self.link)

    def _readable(self) -> bool:
        """Read what is there; false if there was nothing."""
        try:
            data = self.link.recv(_READ)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        try:
            for frame in self._inbox.feed(data):
                self.on_report(_decode(frame))
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
        self.loop.remove_reader(self.link)
        self.loop.remove_writer(self.link)
        self._unsent.clear()
        self.on_closed(why)
