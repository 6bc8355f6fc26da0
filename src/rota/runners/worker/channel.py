"""The worker's end of the channel: what there is to tell is gathered and sent in one frame."""

from __future__ import annotations

import os
import socket
import threading
from typing import NoReturn

import msgspec

from rota.runners.wire import BATCH_BYTES, Failure, Inbox, Report, framed
from rota.runners.worker.ticks import monotonic

EXIT_CUT_OFF = 70
_READ = 64 * 1024


class Channel:
    """Frames from and to the agent. Without an agent there is nothing to live for."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._inbox = Inbox()
        self._frames: list[bytes] = []

    def next(self) -> bytes | None:
        """Wait for a frame; none when the agent has closed its end."""
        while not self._frames:
            data = self._receive()
            if not data:
                return None
            self._frames = self._inbox.feed(data)[::-1]
        return self._frames.pop()

    def ready(self) -> list[bytes] | None:
        """The frames that are here, after the link was seen readable; none when the agent has closed its end."""
        data = self._receive()
        return self._inbox.feed(data) if data else None

    def peek(self) -> list[bytes] | None:
        """The frames that are here, without waiting for any; none when the agent has closed its end."""
        try:
            data = self.link.recv(_READ, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            end(EXIT_CUT_OFF)
        return self._inbox.feed(data) if data else None

    def put_back(self, frames: list[bytes]) -> None:
        """Frames that were heard too early: `next` will give them."""
        self._frames = frames[::-1] + self._frames

    def taken(self) -> list[bytes]:
        """The frames that arrived together with the last one."""
        frames, self._frames = self._frames[::-1], []
        return frames

    def send(self, report: Report) -> None:
        try:
            self.link.sendall(framed(report))
        except OSError:
            end(EXIT_CUT_OFF)

    def _receive(self) -> bytes:
        try:
            return self.link.recv(_READ)
        except OSError:
            end(EXIT_CUT_OFF)


class Outbox:
    """What is to be told. Only the thread that serves the channel touches it, except that another one may tell of
    starts that wait for too long."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._started: dict[int, tuple[float, int]] = {}
        self._output: list[tuple[int, bytes]] = []
        self._done: list[tuple[int, float, float, str | None]] = []
        self._failed: list[Failure] = []
        self._size = 0
        self._lock = threading.Lock()
        self.left = ""
        """What was left behind by the items whose ends are told next."""
        self.files: list[tuple[str, tuple[int, int, int]]] = []
        """The files of modules that these items have loaded."""

    @property
    def has_starts(self) -> bool:
        return bool(self._started)

    def start(self, number: int, started_s: float, where: int) -> None:
        with self._lock:
            self._started[number] = (started_s, where)

    def output(self, number: int, data: bytes) -> None:
        self._output.append((number, data))
        self._grow(len(data))

    def done(self, number: int, started_s: float, result: str | None) -> None:
        self._started.pop(number, None)
        self._done.append((number, started_s, monotonic(), result))
        if result is not None:
            self._grow(4 * len(result))

    def failed(self, failure: Failure) -> None:
        self._started.pop(failure.number, None)
        self._failed.append(failure)
        self._grow(4 * len(failure.message))

    def _grow(self, size: int) -> None:
        """A character takes up to four bytes. A frame is less than two batches long; an agent takes four."""
        self._size += size
        if self._size >= BATCH_BYTES:
            self.flush()

    def flush(self, *, spent: bool = False) -> None:
        """Tell all of it now."""
        if not (self._started or self._output or self._done or self._failed or spent):
            return
        with self._lock:
            report = Report(False, None, self._taken(), self._output, self._done, self._failed, self.left)
            report = msgspec.structs.replace(report, files=self.files, spent=spent)
            self.files = []
            self._output, self._done, self._failed, self._size = [], [], [], 0
            self._channel.send(report)

    def flush_starts(self) -> None:
        """Tell of starts only, from any thread. An item that ends meanwhile is told of later, by its own thread."""
        with self._lock:
            if self._started:
                self._channel.send(Report(started=self._taken()))

    def _taken(self) -> list[tuple[int, float, int]]:
        taken, self._started = self._started, {}
        return [(number, *start) for number, start in list(taken.items())]


def end(code: int) -> NoReturn:
    """End at once: whatever the user's code has registered or left running must not keep the process."""
    os._exit(code)
