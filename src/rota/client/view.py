"""A run and its items as programs see them: one shape, with results as values."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rota.control import RunDetail
from rota.model.run import Item
from rota.model.states import ItemState, RunState, SkipReason
from rota.model.value import Json, Value, decode


class ItemView(Value, frozen=True, kw_only=True):
    """An item of a run."""

    id: int
    state: ItemState
    number: str | None = None
    """The client's own number of an assigned item."""
    info: Any = None
    """What the client gave with it; of a call, its arguments."""
    ended_at: datetime | None = None
    result: Any = None
    """What came back."""
    message: str = ""
    """Why it failed."""
    traceback: str = ""


class RunView(Value, frozen=True, kw_only=True):
    """A run."""

    id: int
    job: str
    """The name of the job, or of the task that was called; empty for assignments."""
    state: RunState
    reason: SkipReason | None = None
    due_at: datetime
    slot_at: datetime | None = None
    ended_at: datetime | None = None
    params: dict[str, Json] = {}  # noqa: RUF012 - msgspec copies an empty default for each value
    attempts: int = 0
    """How many are over."""
    items: tuple[ItemView, ...] = ()

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
