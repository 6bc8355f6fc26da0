"""Wake the other processes that use an SQLite file: each has a socket in a folder beside it.

    rota.db-wake/PID-TOKEN    one datagram for each commit that concerns others: its topics, a line each

A word only hastens: whoever does not hear one finds the same at its next look. So nothing here waits, nothing is
repeated, and a process that cannot listen looks more often instead. The folder is closed to other users: the names of
topics are no secret, but only processes of this user, and root, may wake one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from rota import system
from rota.logger import log
from rota.ports import Clock

TEXT_MAX = 4096
"""How long a word is at most. One that would be longer says that anything may have happened."""
TOLD_MAX = 256
"""How many sockets one commit wakes at most."""
AT_ONCE = 64
"""How many words are read before other tasks have their turn."""
QUEUE_FULL = 8
"""So many words at once mean that more may have been lost: Linux lets ten wait, by default."""
ANYTHING = ("dispatch", "jobs", "entry:")
"""What to wake for when nobody knows what was said."""
PATH_MAX = 100
"""How long the address of a socket may be; Linux takes 107 bytes, macOS 103."""


class WakeSockets:
    """Tells others what was committed, and hears it from them."""

    def __init__(self, database: Path, clock: Clock) -> None:
        self._folder = Path(f"{database}-wake")
        self._clock = clock
        self._wakes: list[Callable[[str], None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._name = ""
        self._inbox: socket.socket | None = None
        self._is_refused = False

    @property
    def can_hear(self) -> bool:
        """Whether others can wake this process; opens its socket."""
        if self._inbox is None and not self._is_refused:
            try:
                self._open()
            except OSError as error:
                self._is_refused = True
                log.warning("store.not_woken", folder=str(self._folder), reason=str(error))
        return self._inbox is not None

    def listen(self, wake: Callable[[str], None]) -> None:
        """Call `wake` with each topic that is told, on the loop that runs now."""
        self._wakes.append(wake)
        if self._loop is None and self.can_hear:
            assert self._inbox is not None
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._inbox, self._hear)

    def tell(self, topics: Sequence[str]) -> None:
        """Wake this process and all others that listen; on any thread. Never waits and never fails."""
        if not topics:
            return
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # the loop is closed: this process ends
                loop.call_soon_threadsafe(self._wake, topics)
        with suppress(OSError), _Opened(self._folder) as folder:
            self._send(folder, _word(topics))

    def close(self) -> None:
        self._is_refused = True  # what is closed opens nothing again
        if self._inbox is None:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._inbox)
        self._inbox.close()
        self._inbox = self._loop = None
        with suppress(OSError), _Opened(self._folder) as folder:
            os.unlink(self._name, dir_fd=folder)

    def _open(self) -> None:
        """Bind a socket of our own. Raises OSError where that cannot be, or others could write there."""
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("this system has no local sockets")
        with suppress(FileExistsError):
            self._folder.mkdir(mode=0o700)
        with _Opened(self._folder) as folder:
            name = f"{os.getpid()}-{self._clock.token()[:16]}"
            inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                inbox.setblocking(False)
                inbox.bind(_address(self._folder, folder, name))
            except BaseException:
                inbox.close()
                raise
            self._name, self._inbox = name, inbox
            self._send(folder, b"")  # removes what processes left that are gone

    def _send(self, folder: int, word: bytes) -> None:
        others = [name for name in os.listdir(folder) if name != self._name]
        if not others:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as outbox:
            outbox.setblocking(False)
            for name in others[:TOLD_MAX]:
                try:
                    outbox.sendto(word, _address(self._folder, folder, name))
                except ConnectionRefusedError:
                    with suppress(OSError):  # its process is gone
                        os.unlink(name, dir_fd=folder)
                except OSError:
                    pass  # one whose queue is full is awake anyway; what is no socket is not ours

    def _hear(self) -> None:
        assert self._inbox is not None
        topics: dict[str, None] = {}
        heard = 0
        with suppress(BlockingIOError):
            for _ in range(AT_ONCE):
                topics |= dict.fromkeys(_topics(self._inbox.recv(TEXT_MAX)))
                heard += 1
        self._wake([*topics, *(ANYTHING if heard >= QUEUE_FULL else ())])

    def _wake(self, topics: Sequence[str]) -> None:
        for topic in dict.fromkeys(topics):
            for wake in self._wakes:
                wake(topic)


class _Opened:
    """The folder, opened if it can be trusted: it is no link, belongs to this user, and is closed to all others. Root
    tells those of any user."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        found = os.fstat(self._descriptor)
        if found.st_uid != os.geteuid() and os.geteuid() != 0:
            os.close(self._descriptor)
            raise PermissionError(f"{self._path} belongs to another user")
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.close(self._descriptor)
            raise PermissionError(f"{self._path} is open to others; remove it, or run: chmod 700 {self._path}")
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def _address(path: Path, folder: int, name: str) -> str:
    """The address of a socket. Paths may be longer than addresses; by its descriptor each folder has a short one."""
    if system.IS_LINUX:
        return f"/proc/self/fd/{folder}/{name}"
    address = str(path / name)
    if len(os.fsencode(address)) > PATH_MAX:
        raise OSError(f"{address} is too long for the address of a socket")
    return address


def _word(topics: Sequence[str]) -> bytes:
    word = "\n".join(topics).encode()
    return word if len(word) <= TEXT_MAX else b"*"


def _topics(word: bytes) -> Sequence[str]:
    """What a word says. One that says nothing only asks whether somebody listens."""
    if not word:
        return ()
    try:
        text = word.decode()
    except UnicodeDecodeError:
        return ANYTHING
    return ANYTHING if text == "*" else text.split("\n")
