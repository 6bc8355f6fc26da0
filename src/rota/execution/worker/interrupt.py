"""Make a plain function end by an exception: from another thread, or from a handler of a signal in its own thread."""

from __future__ import annotations

import ctypes
import opcode
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from rota.client.context import Stopped

_raise_in = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)

_BRIEF = ("NOP", "RESUME", "JUMP", "POP_JUMP", "POP_TOP", "STORE_FAST")
"""Instructions that wait for nothing, so that another follows at once."""
_BRIEF_CODES = frozenset(code for name, code in opcode.opmap.items() if name.startswith(_BRIEF))


class Interruptible:
    """One call of a function in a thread.

    Another thread may call `interrupt` at any time, also before the call: the function gets `Stopped` when it next runs
    a line of Python. What the thread does after the call never gets it.
    """

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
            self._close()  # the exception may have been raised inside `_close`
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
                _raise_in(self._thread, ctypes.py_object())  # take back an exception that was not raised yet
            self._thread = None


def raise_in_frame(frame: FrameType | None, error: BaseException, is_wanted: Callable[[], bool]) -> None:
    """Raise an exception in what a signal has interrupted, where a `try` around that place sees it.

    A handler of a signal calls this with the frame that it was given. The interpreter looks for signals when a loop
    jumps back, and takes what a handler raises there for an error of another instruction: a `try` that begins or ends
    with the loop would not see it, and its `finally` would not run (Python 3.11 to 3.13). There the next instruction
    raises the exception instead, if `is_wanted` still holds then.
    """
    if frame is None or frame.f_lasti < 0 or frame.f_code.co_code[frame.f_lasti] not in _BRIEF_CODES:
        raise error
    interrupted, tracing, own = frame, sys.gettrace(), (frame.f_trace, frame.f_trace_opcodes)

    def trace(*_: object) -> None:
        sys.settrace(tracing)
        interrupted.f_trace, interrupted.f_trace_opcodes = own
        if is_wanted():
            raise error

    frame.f_trace, frame.f_trace_opcodes = trace, True
    # Do not trace other frames: an exception raised in a generator that is being thrown away would get lost.
    sys.settrace(lambda *_: None)
