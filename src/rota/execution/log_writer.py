"""Writes what attempts print to the log store, in a thread: a log store may be slow, and the event loop must not wait.

Output beyond the bound of an attempt is dropped, and its log says so. While too much waits to be written, pipes are not
read. When the store refuses a chunk, the log says how many bytes are missing.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from rota.errors import LogGap
from rota.execution.timers import Timers
from rota.logger import log
from rota.model.run import LogKey
from rota.model.work import LOG_MAX
from rota.ports import LogStore

FLUSH_S = 1.0
"""How long output may wait to be written. A worker keeps it for up to 1 s more, so a dead host loses about 2 s."""
CHUNK = 64 * 1024
"""Output is written at once when so much has gathered."""
BACKLOG_MAX = 32 * 1024 * 1024
"""How much may wait for a slow store before pipes are not read any more."""
CLOSE_S = 5.0
"""How long closing waits for a store that hangs."""

Work = Callable[[], None]

PIECE = 64 * 1024
DRAIN_MAX = 2 * 1024 * 1024
"""More than a pipe holds. Of a process that keeps writing, no more than this is read in one go."""


class LogWriter:
    """Writes for all attempts of a runner, in the order in which they output."""

    over = False

    def __init__(self, logs: LogStore, loop: asyncio.AbstractEventLoop, timers: Timers, log_max: int = LOG_MAX) -> None:
        self.log_max = log_max
        self._logs = logs
        self._loop = loop
        self._timers = timers
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._dirty: set[AttemptOutput] = set()
        self._backlog = 0
        self._held_up: list[Work] = []
        self._is_refused = False

    def output(self, key: LogKey) -> AttemptOutput:
        """The output of an attempt that has begun to print."""
        return AttemptOutput(self, key)

    @property
    def is_full(self) -> bool:
        """True while so much waits to be written that no more output should be read."""
        return self._backlog > BACKLOG_MAX

    def when_free(self, resume: Work) -> None:
        self._held_up.append(resume)

    def mark(self, output: AttemptOutput) -> None:
        """Flush this output within FLUSH_S."""
        if not self._dirty:
            self._timers.at(self._loop.time() + FLUSH_S, self)
        self._dirty.add(output)

    def on_timer(self, step: int) -> None:
        dirty, self._dirty = self._dirty, set()
        for output in dirty:
            output.flush()

    def write(self, output: AttemptOutput, data: bytes) -> None:
        self._backlog += len(data)
        self._put(lambda: self._append(output, data))

    def finish(self, output: AttemptOutput, then: Callable[[int], None]) -> None:
        self._put(lambda: self._finish(output, then))

    async def close(self) -> None:
        """Write what there is, but do not wait for a store that hangs."""
        self.on_timer(0)
        if self._thread is not None:
            self._queue.put(None)
            await self._loop.run_in_executor(None, self._thread.join, CLOSE_S)

    def _put(self, work: Work) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="rota-logs", daemon=True)
            self._thread.start()
        self._queue.put(work)

    def _work(self) -> None:
        while (work := self._queue.get()) is not None:
            work()

    def _append(self, output: AttemptOutput, data: bytes) -> None:
        self._keep(output, data)
        self._tell(self._wrote, len(data))

    def _keep(self, output: AttemptOutput, data: bytes) -> None:
        """Write it behind what is there. Where something is missing, the log says so."""
        try:
            self._write(output, data)
        except LogGap as gap:
            output.missing += output.written - gap.have
            output.written = gap.have
            self._keep(output, data)
        except Exception as error:  # noqa: BLE001 - a log store is foreign code; an attempt must not end by it
            output.missing += len(data)
            self._refused(output, error)
        else:
            self._is_refused = False

    def _write(self, output: AttemptOutput, data: bytes) -> None:
        if output.missing:
            data = b"\n[rota: %d bytes are missing here: they could not be kept]\n" % output.missing + data
        self._logs.append(output.key, output.written, data)
        output.written += len(data)
        output.missing = 0

    def _finish(self, output: AttemptOutput, then: Callable[[int], None]) -> None:
        if output.missing:
            self._keep(output, b"")
        try:
            self._logs.close_log(output.key, output.size)
        except Exception as error:  # noqa: BLE001 - as above
            self._refused(output, error)
        self._tell(then, output.size)

    def _refused(self, output: AttemptOutput, error: Exception) -> None:
        """Log it once for as long as it lasts."""
        if not self._is_refused:
            log.warning("log_store.refused", attempt=str(tuple(output.key)), error=str(error))
        self._is_refused = True

    def _tell(self, what: Callable[[int], None], number: int) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(what, number)

    def _wrote(self, size: int) -> None:
        self._backlog -= size
        if self._held_up and self._backlog <= BACKLOG_MAX // 2:
            held_up, self._held_up = self._held_up, []
            for resume in held_up:
                resume()


class AttemptOutput:
    """The output of one attempt. `written` and `missing` belong to the writing thread."""

    __slots__ = ("_kept", "_log_writer", "_parts", "_size", "key", "missing", "written")

    def __init__(self, log_writer: LogWriter, key: LogKey) -> None:
        self._log_writer = log_writer
        self.key = key
        self.written = 0
        self.missing = 0
        self._kept = 0
        self._size = 0
        self._parts: list[bytes] = []

    @property
    def size(self) -> int:
        """How long the log would be if nothing were missing at its end."""
        return self.written + self.missing

    def add(self, data: bytes) -> None:
        """Keep what was output, as far as the bound allows."""
        room = self._log_writer.log_max - self._kept
        if room < 0:
            return
        self._kept += len(data)
        if len(data) > room:
            data = data[:room] + b"\n[rota: output beyond %d bytes is not kept]\n" % self._log_writer.log_max
        self._parts.append(data)
        self._size += len(data)
        if self._size >= CHUNK:
            self.flush()
        elif len(self._parts) == 1:
            self._log_writer.mark(self)

    def flush(self) -> None:
        if self._parts:
            data, self._parts, self._size = b"".join(self._parts), [], 0
            self._log_writer.write(self, data)

    def finish(self, then: Callable[[int], None]) -> None:
        """Write the rest, and call back with the number of bytes when that is done."""
        self.flush()
        self._log_writer.finish(self, then)


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
