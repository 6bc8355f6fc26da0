"""The states of runs, items, attempts and nodes, and the one table of legal moves between them."""

from __future__ import annotations

from enum import StrEnum


class RunState(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"

    @property
    def live(self) -> bool:
        """Whether the run may still do something."""
        return self in (RunState.WAITING, RunState.RUNNING)


class TaskState(StrEnum):
    """The states of a task of a run that has several. It runs from when its items are made until all have ended."""

    WAITING = "waiting"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class ItemState(StrEnum):
    WAITING = "waiting"
    READY = "ready"
    ASSIGNED = "assigned"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class Outcome(StrEnum):
    """How an attempt ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"


class JobState(StrEnum):
    ENABLED = "enabled"
    PAUSED = "paused"
    DELETED = "deleted"


class SkipReason(StrEnum):
    MISFIRE = "misfire"
    OVERLAP = "overlap"
    CALENDAR = "calendar"


class Cause(StrEnum):
    """Why a run exists; with its key it identifies the run within its job."""

    SLOT = "slot"
    MANUAL = "manual"
    ASSIGN = "assign"
    RERUN = "rerun"
    NOTICE = "notice"


RUN_MOVES: dict[RunState | None, frozenset[RunState]] = {
    None: frozenset({RunState.WAITING, RunState.RUNNING, RunState.SKIPPED}),
    RunState.WAITING: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.RUNNING: frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED}),
    **dict.fromkeys((RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.SKIPPED), frozenset()),
}

ITEM_MOVES: dict[ItemState | None, frozenset[ItemState]] = {
    None: frozenset({ItemState.WAITING, ItemState.READY}),
    ItemState.WAITING: frozenset({ItemState.READY, ItemState.CANCELLED, ItemState.SKIPPED}),
    ItemState.READY: frozenset({ItemState.ASSIGNED, ItemState.CANCELLED}),
    ItemState.ASSIGNED: frozenset(
        {ItemState.RUNNING, ItemState.READY, ItemState.SUCCEEDED, ItemState.FAILED, ItemState.CANCELLED}
    ),
    ItemState.RUNNING: frozenset({ItemState.SUCCEEDED, ItemState.FAILED, ItemState.CANCELLED, ItemState.READY}),
    **dict.fromkeys((ItemState.SUCCEEDED, ItemState.FAILED, ItemState.CANCELLED, ItemState.SKIPPED), frozenset()),
}

UNSTARTED = (ItemState.WAITING, ItemState.READY)
"""Items that no node has been given: they can be cancelled without stopping a process."""
