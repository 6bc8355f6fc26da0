"""Decide what becomes of items that nobody will finish: those of a node that is gone, and those whose client did not
report in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from rota.core.retry import Next, after
from rota.model.dispatch import ItemEnd
from rota.model.moment import micros
from rota.model.states import Outcome
from rota.model.work import Queued, Retry


def rescued(items: Iterable[Queued], is_over: Callable[[float], bool], *, seen_gone: bool) -> list[Queued]:
    """Which items of a node are taken from it. `is_over` says whether its lease has been over for so many seconds: an
    item with `hold_s` is left to its node for so much longer, unless its processes are seen gone."""
    return [it for it in items if seen_gone or is_over(it.hold_s)]


def lost(item: Queued, node: str, retry: Retry | None, *, free: bool) -> ItemEnd:
    """The end of an attempt whose node was lost. `free`: it had not begun, so that the loss costs nothing. An item that
    this release cannot read (`retry` is none) is ready again, however often it was lost: who can read it decides."""
    losses = -1 if free else item.losses
    policy = Retry(lost_max=item.losses + 2) if retry is None else retry
    following = after(Outcome.LOST, "", failures=item.failures, losses=losses, retry=policy, chance=0.0)
    return _end(item, Outcome.LOST, following, f"its node {node} was lost", node=node)


def expired(item: Queued, retry: Retry, chance: float) -> ItemEnd:
    """The end of an attempt that its client did not finish in time."""
    following = after(
        Outcome.TIMED_OUT, "timeout", failures=item.failures, losses=item.losses, retry=retry, chance=chance
    )
    return _end(item, Outcome.TIMED_OUT, following, "its client did not finish it in time", expires_at=item.expires_at)


def _end(
    item: Queued, outcome: Outcome, following: Next, message: str, *, node: str = "", expires_at: datetime | None = None
) -> ItemEnd:
    return ItemEnd(
        item_id=item.item_id,
        attempt=item.attempt,
        run_id=item.run_id,
        job_id=item.job_id,
        lane_id=item.lane_id,
        outcome=outcome,
        state=following.state,
        delay_s=following.delay_s,
        failures=following.failures,
        losses=following.losses,
        node=node,
        node_id=item.node_id,
        round=item.round,
        assigned_us=None if item.assigned_at is None else micros(item.assigned_at),
        started_us=None if item.started_at is None else micros(item.started_at),
        message=following.message or message,
        expired_us=None if expires_at is None else micros(expires_at),
    )
