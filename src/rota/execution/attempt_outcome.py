"""Turns the ways in which processes end into outcomes of attempts: a message for people, a cause for retry policies."""

from __future__ import annotations

import signal

import msgspec

from rota.errors import CannotStart, RotaError
from rota.execution.isolation.process_tree import TreeEnd
from rota.model.node import UNABLE
from rota.model.run import TRACEBACK
from rota.model.states import Outcome
from rota.model.value import encode
from rota.model.work import MESSAGE_MAX, RESULT_MAX, TRACEBACK_MAX, Attempt, AttemptEnd, Bounds

SIGNAL_CODES = 128
"""What shells add to the number of a signal to make an exit code of it."""

_json = msgspec.json.Decoder()


def outcome_of_tree(end: TreeEnd, bounds: Bounds, what: str) -> AttemptEnd:
    """The outcome of a tree that ended by itself, or by something that we did not ask for."""
    if end.killed_by_switch:
        return AttemptEnd(Outcome.LOST, "", f"{what} was ended by its switch: this node could not renew its lease")
    if end.supervisor_stopped:
        text = f"{what} was killed: the process that watches over it was stopped or traced"
        return AttemptEnd(Outcome.FAILED, "supervisor", text)
    if end.supervisor_killed:
        return AttemptEnd(
            Outcome.LOST, "", f"{what} was ended from outside: the process that watches over it was killed"
        )
    if end.oom:
        return AttemptEnd(Outcome.FAILED, "memory", f"{what} ran out of memory: its limit is {bounds.memory_mb} MB")
    if end.signal is not None:
        return _by_signal(end.signal, bounds, what)
    if end.code is None:
        return AttemptEnd(Outcome.LOST, "", f"{what} ended, and nobody saw how")
    if end.code:
        return AttemptEnd(Outcome.FAILED, str(end.code), f"{what} ended with exit code {end.code}", end.code)
    return AttemptEnd(Outcome.SUCCEEDED, code=0)


def _by_signal(number: int, bounds: Bounds, what: str) -> AttemptEnd:
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"SIG{number}"
    code = SIGNAL_CODES + number
    if number == signal.SIGXCPU and bounds.cpu_s is not None:
        return AttemptEnd(
            Outcome.FAILED, f"cpu {code} {name}", f"{what} used more than {bounds.cpu_s:g} s of CPU time", code
        )
    return AttemptEnd(Outcome.FAILED, f"{code} {name}", f"{what} was ended by signal {number} ({name})", code)


def asked_to_end(attempt: Attempt, why: Outcome, how: str) -> AttemptEnd:
    """The outcome of an attempt that was asked to end, because of its timeout or a cancel."""
    if why is Outcome.TIMED_OUT:
        return AttemptEnd(why, "timeout", f"did not end within {attempt.spec.timeout_s or 0:g} s and {how}")
    return AttemptEnd(why, "cancel", f"was cancelled and {how}")


def node_stopped() -> AttemptEnd:
    """The outcome of an attempt whose runner closes."""
    return AttemptEnd(Outcome.LOST, message="this node was stopped")


def not_started(error: Exception, attempt_label: str = "") -> AttemptEnd:
    """The outcome of a tree that could not be started: failed if the order is at fault, else lost."""
    text = str(error).removeprefix(f"{attempt_label}: ")
    if isinstance(error, RotaError | OSError) and not isinstance(error, CannotStart):
        return AttemptEnd(Outcome.LOST, "", text)
    return AttemptEnd(Outcome.FAILED, "start", text)


def with_traceback(text: str) -> str | None:
    """The traceback of a failure as a result, bounded and fit for every store; none without a traceback."""
    if not text:
        return None
    clean = text[-TRACEBACK_MAX:].encode(errors="backslashreplace").decode().replace("\0", "\\x00")
    return encode({TRACEBACK: clean})


def node_unable(why: str) -> AttemptEnd:
    """The outcome of an attempt that was given to a node that can start nothing at present."""
    return AttemptEnd(Outcome.LOST, UNABLE, f"this node cannot execute anything at present: {why}")


def with_result(result: str | None) -> AttemptEnd:
    """Success with a result from user code; failure if the result is not JSON or too large."""
    if result is None:
        return AttemptEnd(Outcome.SUCCEEDED)
    try:
        data = result.encode()
        if len(data) > RESULT_MAX:
            return result_too_large(len(data))
        _json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return AttemptEnd(Outcome.FAILED, "result", f"the result is not JSON: {error}")
    return AttemptEnd(Outcome.SUCCEEDED, result=result)


def result_too_large(size: int) -> AttemptEnd:
    text = f"the result takes {size} bytes; at most {RESULT_MAX} are kept. Write it elsewhere, and return where it is"
    return AttemptEnd(Outcome.FAILED, "result", text)


def bounded_text(text: str) -> str:
    """A message from user code, bounded and fit for every store."""
    text = text if len(text) <= MESSAGE_MAX else text[: MESSAGE_MAX - 1] + "…"
    return text.replace("\0", "\\x00") if "\0" in text else text
