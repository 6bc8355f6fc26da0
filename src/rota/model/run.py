"""Runs and items: what a firing leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from rota.model.job import JobName
from rota.model.states import Cause, ItemState, RunState, SkipReason
from rota.model.value import Json, Value, decode
from rota.model.work import Work

TRACEBACK = "traceback"
"""Under which key the result of a failed item has its traceback."""


class RunKey(NamedTuple):
    """What makes a run unique: its job, why it exists, and the key of that cause."""

    job_id: int
    cause: Cause
    key: str


class LogKey(NamedTuple):
    """Whose output it is."""

    run_id: int
    item_id: int
    attempt: int


class Item(Value, frozen=True, kw_only=True):
    """What is dispatched: one shard of a task; a plain task has one item."""

    id: int
    run_id: int
    task: str
    index: int
    state: ItemState
    not_before_at: datetime
    start_by_at: datetime
    tenant: str | None = None
    number: str | None = None
    """The client's own number of an assigned item, unique for its tenant."""
    info: str | None = None
    """JSON text that the client wants to find again."""
    ended_at: datetime | None = None
    result: str | None = None
    """JSON text: what came back, or for a failure what is known of it besides the message."""
    message: str | None = None

    @property
    def value(self) -> Json:
        """What came back, of an item that has succeeded."""
        return self._decoded if self.state is ItemState.SUCCEEDED else None

    @property
    def traceback(self) -> str:
        """Where it was raised, of an item whose function has raised something."""
        told = None if self.state is ItemState.SUCCEEDED else self._decoded
        return str(told.get(TRACEBACK, "")) if isinstance(told, dict) else ""

    @property
    def _decoded(self) -> Json:
        return None if self.result is None else decode(self.result, object)  # type: ignore[return-value]


class RunOrigin(Value, frozen=True, kw_only=True):
    """What a run is from its beginning on; of this only its state changes.

    A run that stands for several missed slots has `slots` greater than one; `slot_at` is then the first of them and
    `last_slot_at` the last.
    """

    job_id: int
    version: int
    cause: Cause
    key: str
    overlap_key: str
    state: RunState
    reason: SkipReason | None = None
    slot_at: datetime | None = None
    last_slot_at: datetime | None = None
    slots: int = 1
    due_at: datetime
    params: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value


class Run(RunOrigin, frozen=True, kw_only=True):
    """One firing of a job, recorded also when it was skipped."""

    id: int
    created_at: datetime
    ended_at: datetime | None = None
    cancel_at: datetime | None = None
    work: Work | None = None
    """For assignments: what their items share."""

    @property
    def called(self) -> str:
        """The task that was called, as its job is called; empty if this is no call."""
        if self.work is None or not self.work.call or self.work.handler is None:
            return ""
        parts = self.work.handler.split("/")
        return str(JobName(*parts)) if len(parts) == len(JobName._fields) else self.work.handler

    @property
    def unique(self) -> RunKey:
        return RunKey(self.job_id, self.cause, self.key)


class Loads(NamedTuple):
    """Items and runs that were read together. `unread`: the runs of which this release cannot read all of that."""

    items: Sequence[Item]
    runs: Sequence[Run]
    unread: frozenset[int] = frozenset()


class Event(Value, frozen=True, kw_only=True):
    """One line of the history: what changed, by whom, by the store's clock."""

    id: int
    at: datetime
    kind: str
    actor: str
    job_id: int | None = None
    run_id: int | None = None
    item_id: int | None = None
    data: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
