"""A run and its items as programs see them: one shape, with results as values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.control.runs import RunDetail
from rota.model.run import Item
from rota.model.states import ItemState, RunState, SkipReason
from rota.model.value import Json, Value, decode


class ItemView(Value, frozen=True, kw_only=True):
    """An item of a run."""

    id: int
    """What rota calls it."""
    state: ItemState
    """`waiting`, `ready`, `assigned`, `running`, or how it ended."""
    number: str | None = None
    """The client's own number of an assigned item."""
    info: Any = None
    """What the client gave with it; of a call, its arguments."""
    ended_at: datetime | None = None
    """When it ended; none while it has not."""
    result: Any = None
    """What came back."""
    message: str = ""
    """Why it failed."""
    traceback: str = ""
    """That of the function, as a text, if it raised something."""


class RunView(Value, frozen=True, kw_only=True):
    """A run, as it was when it was read."""

    id: int
    """Its number; `rota run show` takes it."""
    job: str
    """The name of the job, or of the task that was called; empty for assignments."""
    state: RunState
    """`waiting`, `running`, `succeeded`, `failed`, `cancelled` or `skipped`."""
    reason: SkipReason | None = None
    """Why it was skipped."""
    due_at: datetime
    """When it was due."""
    slot_at: datetime | None = None
    """The instant of its trigger; none if no trigger fired it."""
    ended_at: datetime | None = None
    """When it ended; none while it has not."""
    params: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    """Its parameters."""
    attempts: int = 0
    """How many attempts at its items are over."""
    items: tuple[ItemView, ...] = ()
    """Its items, each with `id`, `state`, `number`, `info`, `ended_at`, `result`, `message` and `traceback`."""

    @property
    def result(self) -> Any:
        """What came back, of a run with one item."""
        return self.items[0].result if len(self.items) == 1 else None

    @property
    def message(self) -> str:
        """Why it failed."""
        return next((it.message for it in self.items if it.message), "")


def seen(detail: RunDetail) -> RunView:
    """A run as it was read."""
    run = detail.run
    return RunView(
        id=run.id,
        job=run.called if detail.job is None else str(detail.job),
        state=run.state,
        reason=run.reason,
        due_at=run.due_at,
        slot_at=run.slot_at,
        ended_at=run.ended_at,
        params=run.params,
        attempts=len(detail.attempts),
        items=tuple(_item(it, detail) for it in detail.items),
    )


def _item(item: Item, detail: RunDetail) -> ItemView:
    live = detail.live.get(item.id)
    return ItemView(
        id=item.id,
        state=item.state if live is None else live.state,
        number=item.number,
        info=None if item.info is None else decode(item.info, object),
        ended_at=item.ended_at,
        result=item.value,
        message=item.message or "",
        traceback=item.traceback,
    )
