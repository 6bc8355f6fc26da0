"""The worker's end of the channel: reports are collected and sent in one frame."""

from __future__ import annotations

import os
import socket
import threading
from typing import NoReturn

import msgspec

from rota.execution.worker.clock import monotonic
from rota.execution.worker_protocol import BATCH_BYTES, Failure, FrameReader, WorkerReport, framed

EXIT_CUT_OFF = 70
_READ = 64 * 1024


class AgentChannel:
    """Frames from and to the agent. The worker ends when the agent is gone."""

    def __init__(self, link: socket.socket) -> None:
        self.link = link
        self._inbox = FrameReader()
        self._frames: list[bytes] = []

    def next(self) -> bytes | None:
        """Wait for a frame; return none when the agent has closed its end."""
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
        """Keep frames that were read too early: `next` will return them."""
        self._frames = frames[::-1] + self._frames

    def taken(self) -> list[bytes]:
        """The frames that arrived together with the last one."""
        frames, self._frames = self._frames[::-1], []
        return frames

    def send(self, report: WorkerReport) -> None:
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
    """What is to be reported. Only the thread that serves the channel uses it; `flush_starts` may be called from any
    thread."""

    def __init__(self, channel: AgentChannel) -> None:
        self._channel = channel
        self._started: dict[int, tuple[float, int]] = {}
        self._output: list[tuple[int, bytes]] = []
        self._done: list[tuple[int, float, float, str | None]] = []
        self._failed: list[Failure] = []
        self._size = 0
        self._lock = threading.Lock()
        self.left = ""
        """What the items left behind whose ends are reported next."""
        self.files: list[tuple[str, tuple[int, int, int]]] = []
        """The files of the modules that these items have loaded."""

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
        """Flush when a batch is full. A character takes up to four bytes; a frame is below two batches, the agent takes
        four."""
        self._size += size
        if self._size >= BATCH_BYTES:
            self.flush()

    def flush(self, *, spent: bool = False) -> None:
        if not (self._started or self._output or self._done or self._failed or spent):
            return
        with self._lock:
            report = WorkerReport(False, None, self._taken(), self._output, self._done, self._failed, self.left)
            report = msgspec.structs.replace(report, files=self.files, spent=spent)
            self.files = []
            self._output, self._done, self._failed, self._size = [], [], [], 0
            self._channel.send(report)

    def flush_starts(self) -> None:
        """Send starts only, from any thread. The end of an item is sent later, by the thread that serves the
        channel."""
        with self._lock:
            if self._started:
                self._channel.send(WorkerReport(started=self._taken()))

    def _taken(self) -> list[tuple[int, float, int]]:
        taken, self._started = self._started, {}
        return [(number, *start) for number, start in list(taken.items())]


def end(code: int) -> NoReturn:
    """Exit at once, without exit handlers: nothing that user code registered or left running may keep the process."""
    os._exit(code)
