"""What attempts print, on its way to the log store: gathered, bounded, and written by a thread of its own, because a
log store may be slow and the event loop must not wait.

Output beyond the bound of an attempt is dropped, and the log says so. When the store cannot keep up, pipes are not read
for a while; when it refuses a chunk, the log says that too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue

import structlog

from rota.errors import LogGap
from rota.model.run import LogKey
from rota.model.work import LOG_MAX
from rota.ports import LogStore
from rota.runners.timers import Timers

FLUSH_S = 1.0
CHUNK = 64 * 1024
BACKLOG_MAX = 32 * 1024 * 1024
CLOSE_S = 5.0

log = structlog.get_logger()

Work = Callable[[], None]


class Scribe:
    """Writes for all attempts of a crew, in the order in which they printed."""

    over = False

    def __init__(self, logs: LogStore, loop: asyncio.AbstractEventLoop, timers: Timers, log_max: int = LOG_MAX) -> None:
        self.log_max = log_max
        self._logs = logs
        self._loop = loop
        self._timers = timers
        self._queue: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._dirty: set[Printed] = set()
        self._backlog = 0
        self._held_up: list[Work] = []
        self._is_refused = False

    def printed(self, key: LogKey) -> Printed:
        """The output of an attempt that has begun to print."""
        return Printed(self, key)

    @property
    def is_full(self) -> bool:
        """Whether so much waits to be written that no more should be read."""
        return self._backlog > BACKLOG_MAX

    def when_free(self, resume: Work) -> None:
        """Call back when there is room again."""
        self._held_up.append(resume)

    def mark(self, printed: Printed) -> None:
        """There is something that must be written within a while."""
        if not self._dirty:
            self._timers.at(self._loop.time() + FLUSH_S, self)
        self._dirty.add(printed)

    def ring(self, what: int) -> None:
        dirty, self._dirty = self._dirty, set()
        for printed in dirty:
            printed.flush()

    def write(self, printed: Printed, data: bytes) -> None:
        self._backlog += len(data)
        self._put(lambda: self._append(printed, data))

    def finish(self, printed: Printed, then: Callable[[int], None]) -> None:
        self._put(lambda: self._finish(printed, then))

    async def close(self) -> None:
        """Write what there is, but do not wait for a store that hangs."""
        self.ring(0)
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

    def _append(self, printed: Printed, data: bytes) -> None:
        self._keep(printed, data)
        self._tell(self._wrote, len(data))

    def _keep(self, printed: Printed, data: bytes) -> None:
        """Write it behind what is there. Where something is missing, the log says so."""
        try:
            self._write(printed, data)
        except LogGap as gap:
            printed.missing += printed.written - gap.have
            printed.written = gap.have
            self._keep(printed, data)
        except Exception as error:  # noqa: BLE001 - a log store is foreign code; an attempt must not end by it
            printed.missing += len(data)
            self._refused(printed, error)
        else:
            self._is_refused = False

    def _write(self, printed: Printed, data: bytes) -> None:
        if printed.missing:
            data = b"\n[rota: %d bytes are missing here: they could not be kept]\n" % printed.missing + data
        self._logs.append(printed.key, printed.written, data)
        printed.written += len(data)
        printed.missing = 0

    def _finish(self, printed: Printed, then: Callable[[int], None]) -> None:
        if printed.missing:
            self._keep(printed, b"")
        try:
            self._logs.close_log(printed.key, printed.size)
        except Exception as error:  # noqa: BLE001 - as above
            self._refused(printed, error)
        self._tell(then, printed.size)

    def _refused(self, printed: Printed, error: Exception) -> None:
        """Say it once for as long as it lasts."""
        if not self._is_refused:
            log.warning("a log store refuses output", attempt=str(tuple(printed.key)), error=str(error))
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


class Printed:
    """The output of one attempt. `written` and `missing` belong to the writing thread."""

    __slots__ = ("_kept", "_parts", "_scribe", "_size", "key", "missing", "written")

    def __init__(self, scribe: Scribe, key: LogKey) -> None:
        self._scribe = scribe
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

    def take(self, data: bytes) -> None:
        """Keep what was printed, as far as the bound allows."""
        room = self._scribe.log_max - self._kept
        if room < 0:
            return
        self._kept += len(data)
        if len(data) > room:
            data = data[:room] + b"\n[rota: output beyond %d bytes is not kept]\n" % self._scribe.log_max
        self._parts.append(data)
        self._size += len(data)
        if self._size >= CHUNK:
            self.flush()
        elif len(self._parts) == 1:
            self._scribe.mark(self)

    def flush(self) -> None:
        if self._parts:
            data, self._parts, self._size = b"".join(self._parts), [], 0
            self._scribe.write(self, data)

    def finish(self, then: Callable[[int], None]) -> None:
        """Write the rest, and call back with the number of bytes when that is done."""
        self.flush()
        self._scribe.finish(self, then)
