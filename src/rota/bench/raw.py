"""What the database itself can do: the rows of the same items inserted, claimed and finished by plain statements.

Nothing is decided, ordered or counted here, and each row is found by its key: this is the ceiling for everything that
keeps the same rows. Three transactions for each batch, as durable as the product's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rota.bench.plain import Plain, connect
from rota.model.value import Value
from rota.ports import Clock

BATCH = 500
ITEM, QUEUE, ATTEMPT = "rota_item", "rota_queue", "rota_attempt"
COPIES = {name: f"bench_{name}" for name in (ITEM, QUEUE, ATTEMPT)}
CLAIMED = ("state", "attempt", "node_id", "round", "assigned_at")

Row = Mapping[str, Any]
Progress = Callable[[str, int, int], None]


class Sample(Value, frozen=True, kw_only=True):
    """The rows that the product wrote for one item: when it was ready, and when it had ended."""

    item: dict[str, Any]
    queue: dict[str, Any]
    ended: dict[str, Any]
    attempt: dict[str, Any]


async def raw_rate(url: str, clock: Clock, sample: Sample, items: int, progress: Progress) -> float:
    done = 0

    def note(count: int) -> None:
        nonlocal done
        done += count
        progress("without rota", done, items)

    first = await connect(url)
    others = [await connect(url) for _ in range(first.parallel - 1)]
    try:
        for name, copy in COPIES.items():
            await first.copy_table(name, copy)
        batches = iter([range(start, min(start + BATCH, items + 1)) for start in range(1, items + 1, BATCH)])
        began_s = clock.monotonic()
        await asyncio.gather(*(_take(conn, sample, batches, note) for conn in [first, *others]))
        return round(items / (clock.monotonic() - began_s), 1)
    finally:
        for copy in COPIES.values():
            await first.drop_table(copy)
        for conn in [first, *others]:
            await conn.close()


async def _take(conn: Plain, sample: Sample, batches: Any, progress: Callable[[int], None]) -> None:
    for ids in batches:
        await conn.run("BEGIN")
        await _insert(conn, ITEM, [_of_item(sample.item, id_) for id_ in ids])
        await _insert(conn, QUEUE, [{**sample.queue, "item_id": id_} for id_ in ids])
        await conn.run("COMMIT")
        await _claim(conn, sample, ids)
        await _finish(conn, sample, ids)
        progress(len(ids))


async def _claim(conn: Plain, sample: Sample, ids: Sequence[int]) -> None:
    claimed = {name: sample.attempt.get(name) for name in CLAIMED} | {"state": "assigned", "node_id": 1}
    await conn.update(COPIES[QUEUE], claimed, "item_id", ids)


async def _finish(conn: Plain, sample: Sample, ids: Sequence[int]) -> None:
    changed = {name: value for name, value in sample.ended.items() if sample.item[name] != value}
    await conn.run("BEGIN")
    await conn.delete(COPIES[QUEUE], "item_id", ids)
    await conn.update(COPIES[ITEM], changed, "id", ids)
    await _insert(conn, ATTEMPT, [{**sample.attempt, "item_id": id_} for id_ in ids])
    await conn.run("COMMIT")


async def _insert(conn: Plain, table: str, rows: Sequence[Row]) -> None:
    await conn.insert(COPIES[table], list(rows[0]), [tuple(row.values()) for row in rows])


def _of_item(sample: Row, id_: int) -> Row:
    """The same item under another id, in the same place of another run of as many."""
    number = f"{id_:0{len(sample['number'])}}"
    return {**sample, "id": id_, "run_id": id_ // BATCH, "index": id_ % BATCH, "number": number}
