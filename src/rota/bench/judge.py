"""Judge by the tables, not by what nodes said: what was lost, done twice, or over a cap, and how late tasks began."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from rota.bench.plain import Plain
from rota.bench.raw import ATTEMPT, ITEM, QUEUE
from rota.model.states import ItemState
from rota.model.work import GLOBAL, quota_limit

RUNS_AT_ONCE = 200


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
    return int((await conn.rows(f"SELECT count(*) FROM {QUEUE}"))[0][0])  # noqa: S608 - no input in it


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
