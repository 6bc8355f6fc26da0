"""One attempt inside a worker."""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from rota.client.context import Context, Told
from rota.execution.worker.interrupt import Interruptible
from rota.execution.worker_protocol import AttemptOrder, WorkerTask
from rota.model.moment import moment


class WorkerItem:
    """What a worker knows about an attempt while it runs."""

    __slots__ = (
        "cancelled",
        "interruptible",
        "kept",
        "number",
        "order",
        "pending",
        "printed",
        "started_s",
        "stop",
        "task",
    )

    def __init__(self, order: AttemptOrder, task: WorkerTask) -> None:
        self.order = order
        self.task = task
        self.number = order.number
        self.started_s: float | None = None
        self.cancelled = False
        self.stop: Any = None
        """What ends it early, if it can be ended."""
        self.interruptible = Interruptible()
        self.printed: deque[bytes] = deque()
        self.pending = 0
        self.kept = 0

    @property
    def params(self) -> dict[str, Any]:
        return self.order.params or {}

    @property
    def info(self) -> Any:
        return None if self.order.info is None else json.loads(self.order.info)

    def context(self) -> Context:
        order, task = self.order, self.task
        return Context(
            run_id=order.run_id,
            item_id=order.item_id,
            attempt=order.attempt,
            token=order.token,
            idempotency_key=order.key,
            job=task.name,
            task=task.task,
            index=order.index,
            slot_at=None if order.slot_us is None else moment(order.slot_us),
            params=self.params,
            number=order.item_number,
            info=self.info,
        )

    def told(self) -> Told:
        """The same for a listener. A notice about another item names that one in its parameters."""
        order, about = self.order, self.params
        return Told(
            id=int(about.get("id", about.get("uuid", order.item_id))),
            token=about.get("token", order.token),
            number=about.get("number", order.item_number),
            info=about.get("info", self.info),
            tenant=self.task.tenant,
            attempt=about.get("attempt", order.attempt),
            message=str(about.get("message", "")),
        )
