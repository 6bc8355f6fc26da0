"""Give a store a past: items that ended long ago, as a cluster has them that works every day.

A figure from an empty database says little: plans of statements change with what the tables hold. What is made here
stays, so that later runs find it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rota.bench.plain import Plain
from rota.model import tables
from rota.model.states import Cause, ItemState, Outcome, RunState
from rota.model.tables import AttemptRow, ItemRow, RunRow
from rota.model.value import encode
from rota.model.work import Work

TENANT = "bench-history"
PART = 5000
INFO = encode("x" * 118)
LASTED_US = 1000
Progress = Callable[[str, int, int], None]


async def top_up(conn: Plain, wanted: int, now_us: int, progress: Progress, *, run_items: int = PART) -> int:
    """Make so many ended items that the store has at least `wanted`, so many to a run; returns how many it has."""
    had = await _ended(conn)
    missing = max(wanted - had, 0)
    for made in range(0, missing, PART):
        count = min(PART, missing - made)
        await _make_part(conn, count, now_us, run_items)
        progress("making history", made + count, missing)
    return had + missing


async def analyse(conn: Plain) -> None:
    """Let the database look at its tables."""
    await conn.analyse([_name(table) for table in (tables.RUN, tables.ITEM, tables.ATTEMPT, tables.QUEUE)])


async def _ended(conn: Plain) -> int:
    (count,) = (await conn.rows(f"SELECT count(*) FROM {_name(tables.ATTEMPT)}"))[0]  # noqa: S608 - no input in it
    return int(count)


async def _make_part(conn: Plain, count: int, now_us: int, run_items: int) -> None:
    """Runs with items that have all succeeded, each at its first attempt."""
    await conn.run("BEGIN")
    runs = -(-count // run_items)
    run_id, id_ = await _reserved(conn, "run", runs), await _reserved(conn, "row", count)
    await _insert(conn, tables.RUN, [_run(run_id + n, now_us + n) for n in range(runs)])
    items = [_item(id_ + n, run_id + n // run_items, n % run_items, now_us) for n in range(count)]
    await _insert(conn, tables.ITEM, items)
    await _insert(conn, tables.ATTEMPT, [_attempt(it.id, now_us) for it in items])
    await conn.run("COMMIT")


async def _insert(conn: Plain, table: tables.Table[Any], rows: list[Any]) -> None:
    await conn.insert(_name(table), table.columns, rows)


def _name(table: tables.Table[Any]) -> str:
    return f"rota_{table.name}"


async def _reserved(conn: Plain, counter: str, count: int) -> int:
    """The first of so many numbers that nobody else gets."""
    await conn.run(f"UPDATE rota_counter SET next = next + {count} WHERE name = '{counter}'")  # noqa: S608 - no input in it
    (after,) = (await conn.rows(f"SELECT next FROM rota_counter WHERE name = '{counter}'"))[0]  # noqa: S608 - no input in it
    return int(after) - count


def _run(id_: int, now_us: int) -> RunRow:
    return RunRow(
        id=id_,
        job_id=0,
        version=0,
        cause=str(Cause.ASSIGN),
        key=f"{TENANT}/{id_}",
        overlap_key="",
        state=str(RunState.SUCCEEDED),
        reason=None,
        slot_at=None,
        last_slot_at=None,
        slots=1,
        due_at=now_us,
        created_at=now_us,
        ended_at=now_us,
        cancel_at=None,
        params="{}",
        work=encode(Work(tenant=TENANT)),
    )


def _item(id_: int, run_id: int, index: int, now_us: int) -> ItemRow:
    return ItemRow(
        id=id_,
        run_id=run_id,
        task="main",
        index=index,
        state=str(ItemState.SUCCEEDED),
        not_before_at=now_us,
        start_by_at=now_us,
        tenant=TENANT,
        number=f"h-{id_:012}",
        info=INFO,
        ended_at=now_us + LASTED_US,
        result=None,
        message="",
    )


def _attempt(item_id: int, now_us: int) -> AttemptRow:
    return AttemptRow(
        item_id=item_id,
        attempt=1,
        node="bench",
        round=1,
        assigned_at=now_us,
        started_at=now_us,
        ended_at=now_us + LASTED_US,
        outcome=str(Outcome.SUCCEEDED),
        code=None,
        message="",
        log_bytes=0,
    )
