"""Decide what becomes of an item after an attempt: its end, or another attempt after a pause.

Failures and timeouts use up retries. An attempt that was lost with its node uses none, but too many in a row end the
item. What was cancelled is not tried again.
"""

from __future__ import annotations

from typing import NamedTuple

from rota.model.node import UNABLE
from rota.model.states import ItemState, Outcome
from rota.model.work import Backoff, BackoffKind, Retry

LOSS_PAUSES_S = (0.0, 1.0, 5.0, 15.0, 30.0)
"""How long an item rests after it was lost once, twice and so on in a row: a host that loses all that it is given must
not use up their patience in a moment."""

UNABLE_PAUSE_S = 1.0
"""How long an item rests that a node has given back because it can execute nothing: then others know of that."""


class Next(NamedTuple):
    """The item's state after the attempt; if it is ready again, after so many seconds; and what it has behind it."""

    state: ItemState
    delay_s: float
    failures: int
    losses: int
    message: str = ""
    """Why it is over, where the attempt itself does not say so."""


def after(outcome: Outcome, cause: str, *, failures: int, losses: int, retry: Retry, chance: float) -> Next:
    """Decide, given the failures and the consecutive losses before. `chance` in [0, 1) is for the jitter."""
    match outcome:
        case Outcome.SUCCEEDED:
            return Next(ItemState.SUCCEEDED, 0.0, failures, 0)
        case Outcome.CANCELLED:
            return Next(ItemState.CANCELLED, 0.0, failures, losses)
        case Outcome.LOST if cause == UNABLE:
            return Next(ItemState.READY, UNABLE_PAUSE_S, failures, losses)
        case Outcome.LOST:
            return _after_loss(failures, losses + 1, retry)
        case Outcome.FAILED | Outcome.TIMED_OUT:
            causes = {*cause.split(), *(["timeout"] if outcome is Outcome.TIMED_OUT else [])}
            return _after_failure(causes, failures + 1, retry, chance)


def _after_loss(failures: int, losses: int, retry: Retry) -> Next:
    if losses >= retry.lost_max:
        return Next(ItemState.FAILED, 0.0, failures, losses, f"lost: its node was lost {losses} times in a row")
    return Next(ItemState.READY, LOSS_PAUSES_S[min(max(losses, 1), len(LOSS_PAUSES_S)) - 1], failures, losses)


def _after_failure(causes: set[str], failures: int, retry: Retry, chance: float) -> Next:
    may_repeat = causes.isdisjoint(retry.never) and (not retry.only or not causes.isdisjoint(retry.only))
    if failures > retry.max or not may_repeat:
        return Next(ItemState.FAILED, 0.0, failures, 0)
    return Next(ItemState.READY, pause_s(retry.backoff, failures, chance), failures, 0)


def pause_s(backoff: Backoff, failures: int, chance: float) -> float:
    """How long to wait after the n-th failure."""
    return _steady_pause_s(backoff, failures) * (1.0 - backoff.jitter * chance)


def _steady_pause_s(backoff: Backoff, failures: int) -> float:
    match backoff.kind:
        case BackoffKind.FIXED:
            return backoff.seconds[0]
        case BackoffKind.LIST:
            return backoff.seconds[min(failures, len(backoff.seconds)) - 1]
        case BackoffKind.EXPONENTIAL:
            return min(backoff.seconds[0] * backoff.factor ** min(failures - 1, 100), backoff.max_s)
