"""What becomes of the attempts in a worker process that has ended, and of what the worker says about them.

Plain functions: they decide the outcome from how the process ended and why. Nothing that a worker says is believed
without a bound.
"""

from __future__ import annotations

import signal
from typing import NamedTuple

from rota.execution.attempt_outcome import (
    asked_to_end,
    bounded_text,
    node_stopped,
    outcome_of_tree,
    with_traceback,
)
from rota.execution.isolation.process_tree import TreeEnd
from rota.execution.live_attempt import LiveAttempt
from rota.execution.worker_protocol import Failure
from rota.model.states import Outcome
from rota.model.work import AttemptEnd, Bounds

CODES = 1000
"""Exit codes of a program are below 256, those of HTTP below 1000."""
_LEFT_MAX = 200


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
