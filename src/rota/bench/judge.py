"""Judge by the tables, not by what nodes said: what was lost, done twice, or over a cap, and how late tasks began.

Before, `top_up` gives a store a past: items that ended long ago, as a cluster has them that works every day. A figure
from an empty database says little: plans of statements change with what the tables hold. What is made here stays, so
that later runs find it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rota.bench.plain import ATTEMPT, ITEM, QUEUE, Plain, Progress
from rota.model import tables
from rota.model.states import Cause, ItemState, Outcome, RunState
from rota.model.tables import AttemptRow, ItemRow, RunRow
from rota.model.value import encode
from rota.model.work import GLOBAL, Work, quota_limit

RUNS_AT_ONCE = 200
TENANT = "bench-history"
PART = 5000
INFO = encode("x" * 118)
LASTED_US = 1000


class Made(NamedTuple):
    """An attempt at an item; no times if there was none."""

    item_id: int
    state: str
    tenant: str
    not_before_at: int
    result: str | None
    assigned_at: int | None
    ended_at: int | None


async def waiting(conn: Plain) -> int:
    return await _count(conn, QUEUE)


async def _count(conn: Plain, table: str) -> int:
    return int((await conn.rows(f"SELECT count(*) FROM {table}"))[0][0])  # noqa: S608 - no input in it


async def attempts(conn: Plain, run_ids: Sequence[int]) -> list[Made]:
    found: list[Made] = []
    for start in range(0, len(run_ids), RUNS_AT_ONCE):
        listed = ", ".join(map(str, run_ids[start : start + RUNS_AT_ONCE]))
        sql = (
            "SELECT i.id, i.state, i.tenant, i.not_before_at, i.result, a.assigned_at, a.ended_at "  # noqa: S608 - no input in it
            f"FROM {ITEM} i LEFT JOIN {ATTEMPT} a ON a.item_id = i.id WHERE i.run_id IN ({listed})"
        )
        found += [Made(*row) for row in await conn.rows(sql)]
    return found


def lost(made: Iterable[Made], items: int) -> int:
    """Items that did not succeed."""
    return items - len({it.item_id for it in made if it.state == ItemState.SUCCEEDED})


def doubled(made: Iterable[Made]) -> int:
    """Items with more than one attempt."""
    return sum(times > 1 for times in Counter(it.item_id for it in made).values())


def over_caps(made: Iterable[Made], caps: Mapping[str, int]) -> int:
    """By how many items the worst limit was exceeded at its worst instant."""
    return max((max(at for at, _ in _levels(spans)) - caps[name] for name, spans in _spans(made).items()), default=0)


def share_at_cap(made: Iterable[Made], name: str, cap: int) -> float:
    """For which share of the time, from its first to its last, a limit was used to nine tenths or more."""
    levels = list(_levels(_spans(made)[name]))
    whole = levels[-1][1] - levels[0][1]
    full = sum(after[1] - before[1] for before, after in pairwise(levels) if before[0] >= 0.9 * cap)
    return full / whole if whole else 0.0


def begun_after_ms(made: Iterable[Made]) -> list[float]:
    """From when an item was due until the first line of its task, by what that line returned; in order of size."""
    return sorted(int(it.result) / 1e6 - it.not_before_at / 1e3 for it in made if it.result is not None)


def at_share(ranked: Sequence[float], share: float) -> float | None:
    """The value below which that share of the values lies."""
    return round(ranked[min(int(len(ranked) * share), len(ranked) - 1)], 2) if ranked else None


def _spans(made: Iterable[Made]) -> dict[str, list[tuple[int, int]]]:
    """From when until when each attempt held its seats, by limit."""
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for it in made:
        if it.assigned_at is not None and it.ended_at is not None:
            for name in (GLOBAL, quota_limit(it.tenant, "default")):
                spans[name].append((it.assigned_at, it.ended_at))
    return spans


def _levels(spans: Iterable[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """How many seats are held from each instant on. At the same instant seats are given back first."""
    level = 0
    for at, change in sorted(event for begin, end in spans for event in ((begin, 1), (end, -1))):
        level += change
        yield level, at


async def clear(conn: Plain, run_ids: Sequence[int]) -> None:
    for start in range(0, len(run_ids), RUNS_AT_ONCE):
        listed = ", ".join(map(str, run_ids[start : start + RUNS_AT_ONCE]))
        of_items = f"item_id IN (SELECT id FROM {ITEM} WHERE run_id IN ({listed}))"  # noqa: S608 - no input in it
        of_runs, runs = f"run_id IN ({listed})", f"id IN ({listed})"
        left = {ATTEMPT: of_items, QUEUE: of_items, "rota_event": of_runs, ITEM: of_runs, "rota_run": runs}
        for table, where in left.items():
            await conn.run(f"DELETE FROM {table} WHERE {where}")  # noqa: S608 - no input in it


async def top_up(conn: Plain, wanted: int, now_us: int, progress: Progress, *, run_items: int = PART) -> int:
    """Make so many ended items that the store has at least `wanted`, so many to a run; returns how many it has."""
    had = await _count(conn, ATTEMPT)
    missing = max(wanted - had, 0)
    for made in range(0, missing, PART):
        count = min(PART, missing - made)
        await _make_part(conn, count, now_us, run_items)
        progress("making history", made + count, missing)
    return had + missing


async def analyse(conn: Plain) -> None:
    await conn.analyse(["rota_run", ITEM, ATTEMPT, QUEUE])


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
    await conn.insert(f"rota_{table.name}", table.columns, rows)


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
