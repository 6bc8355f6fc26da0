"""Raise an exception in what a signal has interrupted, where a `try` around that place sees it.

The interpreter looks for signals when a loop jumps back, and takes what a handler raises there for an error of another
instruction: a `try` that begins or ends with the loop would not see it, and its `finally` would not run (Python 3.11 to
3.13). So there the exception is raised by the next instruction instead.
"""

from __future__ import annotations

import opcode
import sys
from collections.abc import Callable
from types import FrameType

_BRIEF = ("NOP", "RESUME", "JUMP", "POP_JUMP", "POP_TOP", "STORE_FAST")
"""Instructions that wait for nothing, so that another follows at once."""
_CODES = frozenset(code for name, code in opcode.opmap.items() if name.startswith(_BRIEF))


def strike(frame: FrameType | None, error: BaseException, is_wanted: Callable[[], bool]) -> None:
    """Called by a handler, with the frame that it was given: raise now, or by the next instruction if it is still
    wanted then."""
    if frame is None or frame.f_lasti < 0 or frame.f_code.co_code[frame.f_lasti] not in _CODES:
        raise error
    struck, tracing, own = frame, sys.gettrace(), (frame.f_trace, frame.f_trace_opcodes)

    def trace(*_: object) -> None:
        sys.settrace(tracing)
        struck.f_trace, struck.f_trace_opcodes = own
        if is_wanted():
            raise error

    frame.f_trace, frame.f_trace_opcodes = trace, True
    sys.settrace(_leave)


def _leave(*_: object) -> None:
    """Other frames are not traced: what a generator raises that is just being thrown away would get lost."""
