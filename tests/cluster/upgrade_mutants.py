"""Wrong ways to take over from another release, put over the product inside a node process. The judge must catch each.

| mutant          | what it does                                                                                    |
|-----------------|-------------------------------------------------------------------------------------------------|
| doubled_slots   | knows slots by another key than the release before, so that one has two runs                     |
| dropped_slots   | forgets slots that are late by seconds, as they are after a node went                            |
| forgotten_items | leaves one of the items that a node had out of the queue                                         |
| taken_items     | takes the items of a node that it does not know yet, though it lives                             |
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from rota.core import fire
from rota.core.overlap import Floor
from rota.loops.rescuer import Rescuer
from rota.model import tables
from rota.model.job import Job
from rota.model.node import Node
from rota.model.plan import NewRun
from rota.transactions import rescue
from rota.transactions.finish import Current
from rota.transactions.tx import Tx

LATE = timedelta(seconds=2)


def doubled_slots() -> None:
    settle = fire.settle_round

    def twice(job: Job, now: datetime, floor: Floor) -> tuple[Job, list[NewRun]]:
        after, runs = settle(job, now, floor)
        return after, [*runs, *(msgspec.structs.replace(run, key=f"again-{run.key}") for run in runs)]

    fire.settle_round = twice


def dropped_slots() -> None:
    settle = fire.settle_round

    def in_time(job: Job, now: datetime, floor: Floor) -> tuple[Job, list[NewRun]]:
        after, runs = settle(job, now, floor)
        return after, [run for run in runs if run.slot_at is None or run.slot_at > now - LATE]

    fire.settle_round = in_time


def forgotten_items() -> None:
    write = rescue.write_ends  # type: ignore[attr-defined]

    def without_one(tx: Tx, current: Current, *given: Any) -> None:
        write(tx, current, *given)
        tx.rows.remove(tables.QUEUE, [row.item_id for _, row in current.again[:1]])

    rescue.write_ends = without_one  # type: ignore[attr-defined]


def taken_items() -> None:
    look_after, known = Rescuer._look_after, set[int]()

    async def as_if_gone(self: Rescuer, node: Node, now: datetime, patience_s: float) -> None:
        if node.id in known:
            await look_after(self, node, now, patience_s)
        else:
            known.add(node.id)
            await self._rescue(node, now, seen_gone=True)

    Rescuer._look_after = as_if_gone  # type: ignore[method-assign]


MUTANTS: dict[str, Callable[[], None]] = {
    "doubled_slots": doubled_slots,
    "dropped_slots": dropped_slots,
    "forgotten_items": forgotten_items,
    "taken_items": taken_items,
}
