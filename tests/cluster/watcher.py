"""Watches the processes that run the tasks, and reads what they wrote.

Every such process holds a connection. Its peer's number is told by the kernel, in this process's own PID namespace; its
end is the end of the connection, which all that it forked hold as well. A thread of its own dates it, so that a busy
event loop does not.
"""

from __future__ import annotations

import json
import selectors
import shutil
import socket
import struct
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from tests.checkers.executing import END, START, Gone, Line, parse
from tests.cluster import tasks

_PEER = struct.Struct("3i")


class Watcher:
    """The folder of the app, and who is alive in it."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rota-tasks-"))  # short, for a socket's path must be
        self._folder.chmod(0o777)  # tasks may run as another user
        self.app = self._folder / "tasks.py"
        shutil.copy(tasks.__file__, self.app)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._folder / tasks.SOCKET.name))
        self._listener.listen(1000)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.alive: dict[int, float] = {}
        """The processes that live, and since when."""
        self.gone: list[Gone] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join(10)
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)  # a task that is about to die may still write

    @property
    def lines(self) -> list[Line]:
        """What the tasks wrote, in the order of its instants."""
        return parse(self._text(tasks.LINES))

    @property
    def told(self) -> list[dict[str, Any]]:
        """What the listeners of the app were told, in order."""
        return [json.loads(line) for line in self._text(tasks.TOLD).splitlines()]

    def open_gate(self, name: str) -> None:
        """Let the naps end that wait for this gate."""
        (self._folder / name).touch()

    def started(self) -> set[tuple[int, int]]:
        """The attempts that have started."""
        return {(line.item, line.attempt) for line in self.lines if line.kind == START}

    def executing(self) -> dict[int, Line]:
        """The items that execute now, by the start line of their attempt."""
        lines = self.lines
        over = {(line.item, line.attempt) for line in lines if line.kind == END}
        running = [line for line in lines if line.kind == START and (line.item, line.attempt) not in over]
        return {line.item: line for line in running if line.pid in self.alive}

    def _text(self, path: Path) -> str:
        found = self._folder / path.name
        return found.read_text() if found.exists() else ""

    def _watch(self) -> None:
        links: dict[socket.socket, int] = {}
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._stopping.is_set():
                for key, _ in selector.select(0.1):
                    if key.fileobj is self._listener:
                        link, pid = self._accept()
                        links[link] = pid
                        selector.register(link, selectors.EVENT_READ)
                    else:
                        link = key.fileobj  # type: ignore[assignment]
                        selector.unregister(link)
                        self._end(link, links.pop(link))
            for link in links:
                link.close()

    def _accept(self) -> tuple[socket.socket, int]:
        link, _ = self._listener.accept()
        pid, _, _ = _PEER.unpack(link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        self.alive[pid] = time.monotonic()
        with suppress(OSError):  # it may be gone already: then its end is seen next
            link.sendall(str(pid).encode())
        return link, pid

    def _end(self, link: socket.socket, pid: int) -> None:
        """A process sends nothing, so whatever comes from it is its end."""
        self.gone.append(Gone(pid, time.monotonic_ns()))
        self.alive.pop(pid, None)
        link.close()
