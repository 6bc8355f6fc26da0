"""Turns the ways in which processes end into outcomes of attempts: a message for people, a cause for retry policies.
Nothing that a worker says is believed without a bound."""

from __future__ import annotations

import signal
from typing import NamedTuple

import msgspec

from rota.errors import CannotStart, RotaError
from rota.execution.isolation.process_tree import TreeEnd
from rota.execution.live_attempt import LiveAttempt
from rota.execution.worker_protocol import Failure
from rota.model.node import UNABLE
from rota.model.run import TRACEBACK
from rota.model.states import Outcome
from rota.model.value import encode
from rota.model.work import MESSAGE_MAX, RESULT_MAX, TRACEBACK_MAX, Attempt, AttemptEnd, Bounds

SIGNAL_CODES = 128
"""What shells add to the number of a signal to make an exit code of it."""

_json = msgspec.json.Decoder()

_SUCCEEDED = AttemptEnd(Outcome.SUCCEEDED)

CODES = 1000
"""Exit codes of a program are below 256, those of HTTP below 1000."""
_LEFT_MAX = 200


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
        return _SUCCEEDED
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


class WorkerEnd(NamedTuple):
    """How a worker process ended, and what the agent had done to it."""

    tree: TreeEnd
    is_killed: bool
    """The agent killed it."""
    is_forced: bool
    """The agent killed it because one of its attempts did not stop."""
    left: str
    """What an attempt had left behind in it; that is a reason to kill it."""
    wrong: str | None
    """How it broke the protocol, or what it did not do in time."""


def outcome_in_worker(live: LiveAttempt, end: WorkerEnd, *, several: bool) -> AttemptEnd:
    """The outcome of an attempt that was in the worker when it ended; `several`: others were in it too."""
    if live.stop_reason is not None and not end.tree.killed_by_switch:
        how = "ended by SIGTERM" if end.tree.signal == signal.SIGTERM else "was killed"
        return asked_to_end(live.attempt, live.stop_reason, how)
    if end.is_forced:
        text = "its worker was killed, because another item in it did not stop when it was told to"
        return AttemptEnd(Outcome.LOST, message=text)
    if end.is_killed and end.wrong is None:
        return node_stopped()
    if end.left:
        text = f"its worker was killed, because another item had left {printable(end.left)} behind"
        return AttemptEnd(Outcome.LOST, message=text)
    outcome = _by_its_own_fault(live, end)
    if several and outcome.outcome is Outcome.FAILED:
        text = f"{outcome.message}; which of its items is to blame is not known"
        return AttemptEnd(Outcome.LOST, message=text)
    return outcome


def _by_its_own_fault(live: LiveAttempt, end: WorkerEnd) -> AttemptEnd:
    if end.wrong is not None:
        return AttemptEnd(Outcome.FAILED, "channel", bounded_text(end.wrong))
    outcome = outcome_of_tree(end.tree, live.attempt.spec.bounds, "the worker process")
    if outcome.outcome is Outcome.SUCCEEDED:
        text = "the worker process ended with exit code 0 before the function returned"
        return AttemptEnd(Outcome.FAILED, "0", text, 0)
    return outcome


def start_failure(end: WorkerEnd, bounds: Bounds, printed: bytes) -> AttemptEnd:
    """Why a worker ended before it was ready, with what it printed last."""
    found = outcome_of_tree(end.tree, bounds, "the worker process")
    text = end.wrong or f"{found.message or 'the worker process ended'} before it was ready"
    words = printed.decode(errors="replace").strip()
    outcome = found.outcome if found.outcome is Outcome.LOST and end.wrong is None else Outcome.FAILED
    return AttemptEnd(outcome, found.cause or "start", bounded_text(f"{text}: {words}" if words else text))


def reported_failure(failure: Failure) -> AttemptEnd:
    """The outcome of an attempt that its worker reports as failed."""
    code = failure.code if failure.code is not None and 0 <= failure.code < CODES else None
    cause, message = bounded_text(failure.cause), bounded_text(failure.message)
    return AttemptEnd(Outcome.FAILED, cause, message, code, with_traceback(failure.traceback))


def printable(text: str) -> str:
    """What a worker says of a task, fit for one line."""
    return "".join(char if char.isprintable() else "?" for char in text[:_LEFT_MAX])
