"""The outputs of a worker: what a task prints goes to the log of its item; what a task does to them is undone after
it."""

from __future__ import annotations

import ctypes
import io
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_SPARE = (1, 2)
_libc = ctypes.CDLL(None)
_c_stdout = ctypes.c_void_p.in_dll(_libc, "stdout" if hasattr(_libc, "stdout") else "__stdoutp")


class Outputs:
    """Descriptors 1 and 2 and the objects over them, as they were at the start and shall be for each item."""

    def __init__(self) -> None:
        self._spare = [os.dup(number) for number in _SPARE]
        self._inode = os.fstat(1).st_ino
        self._make: Callable[[], list[Any]] = lambda: [_plain(number) for number in _SPARE]
        self._streams: list[Any] = []

    def make_by(self, make: Callable[[], list[Any]]) -> None:
        """From now on the outputs are made like this, instead of plain ones that write every line at once."""
        self._make = make
        self.install()

    def install(self) -> None:
        self._streams = self._make()
        sys.stdout, sys.stderr = self._streams
        # Those of the interpreter would keep what is written to them until they are full.
        vars(sys)["__stdout__"], vars(sys)["__stderr__"] = self._streams

    def settle(self) -> None:
        """Flush all that was printed, and repair what a task has closed or replaced."""
        flush_c()
        out, err = self._streams
        try:
            out.flush()
            err.flush()
            is_whole = sys.stdout is out and sys.stderr is err and self._is_ours(1) and self._is_ours(2)
        except Exception:  # noqa: BLE001 - it is closed, or its descriptor is
            is_whole = False
        if not is_whole:
            self._repair()

    def _repair(self) -> None:
        for stream in {sys.stdout, sys.stderr}:
            with suppress(Exception):  # it may be an object of the task
                stream.flush()
        for number, spare in zip(_SPARE, self._spare, strict=True):
            if not self._is_ours(number):
                os.dup2(spare, number)
        self.install()

    def _is_ours(self, number: int) -> bool:
        try:
            return os.fstat(number).st_ino == self._inode
        except OSError:
            return False


def flush_c() -> None:
    """Flush the buffers of the C library. While other threads run, only its standard output: a thread may hold the lock
    of another file for long."""
    _libc.fflush(None if threading.active_count() == 1 else _c_stdout)


def _plain(number: int) -> io.TextIOWrapper:
    raw = open(number, "wb", buffering=io.DEFAULT_BUFFER_SIZE, closefd=False)  # noqa: SIM115 - a descriptor
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", line_buffering=True)


class OutputBytes(io.BufferedIOBase):
    """An output that hands what is written to `take`, from whatever task or thread it comes. It cannot be closed."""

    def __init__(self, take: Callable[[bytes], None], number: int) -> None:
        self._take = take
        self._number = number

    def write(self, data: Any) -> int:
        data = bytes(data)
        self._take(data)
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._number

    def close(self) -> None:
        return


class OutputText(io.TextIOBase):
    """The same for texts. Unlike the usual kind it keeps nothing back, as the next writer may be another task."""

    encoding = "utf-8"
    errors = "backslashreplace"

    def __init__(self, take: Callable[[bytes], None], number: int) -> None:
        self.buffer = OutputBytes(take, number)
        self._take = take

    def write(self, text: str) -> int:
        self._take(text.encode(errors="backslashreplace"))
        return len(text)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.buffer.fileno()

    def close(self) -> None:
        return
