"""What is asked of the queue from outside: why something waits, how much there is, what may be forgotten."""

from __future__ import annotations

from datetime import datetime

from rota.model.node import Node
from rota.model.run import Item, Run
from rota.model.value import Value
from rota.model.work import Lane, Limit, Queued


class ItemStanding(Value, frozen=True, kw_only=True):
    """Where a live item stands: `ahead` items that may start too come before it, `ahead_in_quota` of its own quota."""

    item: Item
    queued: Queued
    lane: Lane
    ahead: int = 0
    ahead_in_quota: int = 0


class Standing(Value, frozen=True, kw_only=True):
    """A run and all that can hold it back."""

    now: datetime
    run: Run | None
    places: tuple[ItemStanding, ...] = ()
    running: dict[str, int] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """What executes, by the name of the limit."""
    limits: tuple[Limit, ...] = ()
    nodes: tuple[Node, ...] = ()
    seated: dict[int, int] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """Taken seats, by node."""
    before: tuple[int, ...] = ()
    """For a run that waits by its overlap policy: the runs (ids) of its key that are live and older."""


class Closed(Value, frozen=True, kw_only=True):
    """How many runs were closed, and the last that was looked at if there may be more behind it."""

    count: int
    last_id: int | None


class QuotaCount(Value, frozen=True, kw_only=True):
    tenant: str
    quota: str
    ready: int = 0
    running: int = 0


class Cancelled(Value, frozen=True, kw_only=True):
    """Items that were cancelled at once, and items that were asked to stop."""

    ended: int = 0
    asked: int = 0


class Retention(Value, frozen=True, kw_only=True):
    """What is kept: ended runs for `age_s`, and of each job at most `runs_max` of them; numbers of assigned items for
    at least `numbers_s`; lines of history of jobs and grants for `history_s`."""

    age_s: float = 30 * 86400.0
    runs_max: int = 10_000
    numbers_s: float = 7 * 86400.0
    history_s: float = 30 * 86400.0


class Pruned(Value, frozen=True, kw_only=True):
    """What was forgotten: the ids of runs, and how many other rows."""

    run_ids: tuple[int, ...] = ()
    rows: int = 0
