"""End a plain function that runs in a thread: an exception is raised in it, when it next runs a line of Python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

from rota.client.context import Stopped

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)


class Interruptible:
    """One call. `interrupt` may come from another thread at any time, also before the call; it never hits what the
    thread does afterwards."""

    __slots__ = ("_is_wanted", "_lock", "_thread")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._is_wanted = False

    def run(self, called: Callable[[], Any]) -> Any:
        try:
            with self._lock:
                self._thread = threading.get_ident()
            try:
                if self._is_wanted:
                    raise Stopped
                return called()
            finally:
                self._close()
        except Stopped:
            self._close()  # it may have come while the call was being closed
            raise

    def interrupt(self) -> None:
        with self._lock:
            if self._thread is None:
                self._is_wanted = True
            else:
                _raise_in(self._thread, Stopped)

    def _close(self) -> None:
        with self._lock:
            if self._thread is not None:
                _raise_in(self._thread, ctypes.py_object())  # one that has not come yet shall not come
            self._thread = None
