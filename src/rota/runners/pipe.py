"""Read what processes print, in pieces, without ever waiting for it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from rota.runners.scribe import Scribe

PIECE = 64 * 1024
DRAIN_MAX = 2 * 1024 * 1024
"""More than a pipe holds: who still writes so much after its end is not listened to."""


class Pipe:
    """The read end of a tree's output."""

    def __init__(
        self, descriptor: int, loop: asyncio.AbstractEventLoop, scribe: Scribe, take: Callable[[bytes], None]
    ) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._scribe = scribe
        self._take = take
        self._open = True
        loop.add_reader(descriptor, self._read)

    def drain(self) -> None:
        """Take all that is in the pipe now."""
        left = DRAIN_MAX
        while self._open and left > 0 and (size := self._piece()):
            left -= size

    def close(self) -> None:
        """Take the rest and let go."""
        self.drain()
        if self._descriptor >= 0:
            self._stop_listening()
            os.close(self._descriptor)
            self._descriptor = -1

    def _read(self) -> None:
        if self._scribe.is_full:
            self._loop.remove_reader(self._descriptor)
            self._scribe.when_free(self._resume)
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
