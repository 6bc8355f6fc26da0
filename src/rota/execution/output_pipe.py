"""Read what processes print, in pieces, without ever waiting for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from rota.execution.log_writer import LogWriter

PIECE = 64 * 1024
DRAIN_MAX = 2 * 1024 * 1024
"""More than a pipe holds. Of a process that keeps writing, no more than this is read in one go."""


class OutputPipe:
    """The read end of a tree's output."""

    def __init__(
        self, descriptor: int, loop: asyncio.AbstractEventLoop, log_writer: LogWriter, take: Callable[[bytes], None]
    ) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._log_writer = log_writer
        self._take = take
        self._open = True
        loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        left = DRAIN_MAX
        while self._open and left > 0 and (size := self._piece()):
            left -= size

    def close(self) -> None:
        self.drain()
        if self._descriptor >= 0:
            self._stop_listening()
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        if self._log_writer.is_full:
            self._loop.remove_reader(self._descriptor)
            self._log_writer.when_free(self._resume)
        else:
            self._piece()

    def _resume(self) -> None:
        if self._open:
            self._loop.add_reader(self._descriptor, self._read)

    def _piece(self) -> int:
        try:
            data = os.read(self._descriptor, PIECE)
        except BlockingIOError:
            return 0
        if data:
            self._take(data)
        else:
            self._stop_listening()
        return len(data)

    def _stop_listening(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._descriptor)
