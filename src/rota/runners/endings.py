"""How the end of processes is put into words, and into what a retry policy can name."""

from __future__ import annotations

import signal
from typing import NamedTuple

import msgspec

from rota.errors import RotaError
from rota.model.node import UNABLE
from rota.model.run import TRACEBACK
from rota.model.states import Outcome
from rota.model.value import encode
from rota.model.work import MESSAGE_MAX, RESULT_MAX, TRACEBACK_MAX, Attempt, Bounds
from rota.runners.boundary.errors import CannotStart
from rota.runners.boundary.tree import TreeEnd

SIGNAL_CODES = 128
"""What shells add to the number of a signal to make an exit code of it."""

_json = msgspec.json.Decoder()


class Ending(NamedTuple):
    """What is reported of an attempt's end."""

    outcome: Outcome
    cause: str = ""
    message: str = ""
    code: int | None = None
    result: str | None = None
    late_s: float = 0.0
    """How long after the deadline of this node its processes still ran."""


def of_tree(end: TreeEnd, bounds: Bounds, what: str) -> Ending:
    """A tree that ended by itself, or by something that we did not ask for."""
    if end.killed_by_switch:
        return Ending(Outcome.LOST, "", f"{what} was ended by its switch: this node could not renew its lease")
    if end.disarmed:
        text = f"{what} was killed: the process that watches over it was stopped or traced"
        return Ending(Outcome.FAILED, "supervisor", text)
    if end.lost:
        return Ending(Outcome.LOST, "", f"{what} was ended from outside: the process that watches over it was killed")
    if end.oom:
        return Ending(Outcome.FAILED, "memory", f"{what} ran out of memory: its limit is {bounds.memory_mb} MB")
    if end.signal is not None:
        return _by_signal(end.signal, bounds, what)
    if end.code is None:
        return Ending(Outcome.LOST, "", f"{what} ended, and nobody saw how")
    if end.code:
        return Ending(Outcome.FAILED, str(end.code), f"{what} ended with exit code {end.code}", end.code)
    return Ending(Outcome.SUCCEEDED, code=0)


def _by_signal(number: int, bounds: Bounds, what: str) -> Ending:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"SIG{number}"
    code = SIGNAL_CODES + number
    if number == signal.SIGXCPU and bounds.cpu_s is not None:
        return Ending(
            Outcome.FAILED, f"cpu {code} {name}", f"{what} used more than {bounds.cpu_s:g} s of CPU time", code
        )
    return Ending(Outcome.FAILED, f"{code} {name}", f"{what} was ended by signal {number} ({name})", code)


def asked(attempt: Attempt, why: Outcome, how: str) -> Ending:
    """An attempt that was made to end."""
    if why is Outcome.TIMED_OUT:
        return Ending(why, "timeout", f"did not end within {attempt.time_s or 0:g} s and {how}")
    return Ending(why, "cancel", f"was cancelled and {how}")


def stopped() -> Ending:
    """An attempt whose crew is closing."""
    return Ending(Outcome.LOST, message="this node was stopped")


def unstarted(error: Exception, attempt_label: str = "") -> Ending:
    """A tree that could not be started. What the order is to blame for fails; else another node may try."""
    text = str(error).removeprefix(f"{attempt_label}: ")
    if isinstance(error, RotaError | OSError) and not isinstance(error, CannotStart):
        return Ending(Outcome.LOST, "", text)
    return Ending(Outcome.FAILED, "start", text)


def with_traceback(text: str) -> str | None:
    """What is kept of a failure besides its message."""
    if not text:
        return None
    clean = text[-TRACEBACK_MAX:].encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    return encode({TRACEBACK: clean})


def resting(why: str) -> Ending:
    """An attempt that was given to a node that can start nothing at present."""
    return Ending(Outcome.LOST, UNABLE, f"this node cannot execute anything at present: {why}")


def checked(result: str | None) -> Ending:
    """A result that came from user code: only bounded JSON goes on."""
    if result is None:
        return Ending(Outcome.SUCCEEDED)
    try:
        data = result.encode()
        if len(data) > RESULT_MAX:
            return too_large(len(data))
        _json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return Ending(Outcome.FAILED, "result", f"the result is not JSON: {error}")
    return Ending(Outcome.SUCCEEDED, result=result)


def too_large(size: int) -> Ending:
    text = f"the result takes {size} bytes; at most {RESULT_MAX} are kept. Write it elsewhere, and return where it is"
    return Ending(Outcome.FAILED, "result", text)


def bounded(text: str) -> str:
    """A message from user code that every store takes."""
    text = text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"
    return text.replace("\0", "\\x00") if "\0" in text else text
