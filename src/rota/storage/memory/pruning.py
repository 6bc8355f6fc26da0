"""What is old in the store in memory, and how it is forgotten."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rota.model import tables
from rota.model.tables import Change, RunRow, Table
from rota.storage.memory.rows import MemoryRows
from rota.storage.memory.tables import LIVE_KEY

_USED = Change(tables.LANE, ("id",), ("used_at",))


class MemoryPruning:
    """The questions of pruning."""

    def __init__(self, rows: MemoryRows) -> None:
        self._rows = rows

    def old_runs(self, ended_us: int, numbers_us: int, limit: int) -> list[int]:
        old = [
            row
            for row in self._rows.every(tables.RUN)
            if row.ended_at is not None
            and row.created_at < ended_us
            and row.ended_at < (ended_us if row.job_id else numbers_us)
        ]
        return [row.id for row in sorted(old, key=_age)[:limit]]

    def surplus_runs(self, runs_max: int, limit: int, known: set[int]) -> list[int]:
        ended: dict[int, list[RunRow]] = defaultdict(list)
        for row in self._rows.every(tables.RUN):
            if row.job_id and row.ended_at is not None:
                ended[row.job_id].append(row)
        found: list[int] = []
        for job_id in sorted(ended):
            newest_first = sorted(ended[job_id], key=_age, reverse=True)
            found += [row.id for row in newest_first[runs_max:] if row.id not in known]
        return found[:limit]

    def item_counts(self, run_ids: Sequence[int]) -> tuple[dict[int, int], set[int]]:
        items = self._rows.find(tables.ITEM, "run", run_ids)
        live = {item.run_id for item in items if self._rows.get(tables.QUEUE, item.id) is not None}
        return dict(Counter(item.run_id for item in items)), live

    def forget_runs(self, run_ids: Sequence[int]) -> int:
        gone, items = set(run_ids), {item.id for item in self._rows.find(tables.ITEM, "run", run_ids)}
        attempts = [(it.item_id, it.attempt) for it in self._rows.every(tables.ATTEMPT) if it.item_id in items]
        lines = [it.id for it in self._rows.every(tables.EVENT) if it.run_id in gone]
        return (
            self._removed(tables.ATTEMPT, attempts)
            + self._removed(tables.EVENT, lines)
            + self._removed(tables.ITEM, items)
            + self._removed(tables.RUN, run_ids)
        )

    def forget_grants(self, before_us: int, limit: int) -> int:
        oldest = sorted(it.at for it in self._rows.every(tables.GRANT) if it.at < before_us)[:limit]
        rows = [it for it in self._rows.every(tables.GRANT) if oldest and it.at <= oldest[-1]]
        return self._removed(tables.GRANT, [(it.node_id, it.round) for it in rows])

    def forget_lines(self, before_us: int, limit: int) -> int:
        old = [it.id for it in self._rows.every(tables.EVENT) if it.run_id is None and it.at < before_us]
        return self._removed(tables.EVENT, old[:limit])

    def forget_alarms(self, before_us: int, limit: int) -> int:
        old = sorted((it.at, it.id) for it in self._rows.every(tables.ALARM) if it.at < before_us and not it.is_open)
        ids = {id_ for _, id_ in old[:limit]}
        deliveries = [(it.rule, it.alarm_id) for it in self._rows.every(tables.DELIVERY) if it.alarm_id in ids]
        self._removed(tables.DELIVERY, deliveries)
        return self._removed(tables.ALARM, ids)

    def forget_keys(self, limit: int) -> int:
        keys = [row.key for row in self._rows.all(tables.OVERLAP)]
        idle = [key for key in keys if not self._rows.find(tables.RUN, LIVE_KEY, [key])]
        return self._removed(tables.OVERLAP, idle[:limit])

    def forget_nodes(self, before_us: int, limit: int) -> int:
        busy = {it.node_id for it in self._rows.every(tables.QUEUE)}
        left = [it for it in self._rows.all(tables.NODE) if it.left_at is not None and it.left_at < before_us]
        gone = [it.id for it in left[:limit]]
        count = self._removed(tables.NODE, [it for it in gone if it not in busy])
        if gone:
            names = {it.name for it in self._rows.every(tables.NODE)}
            nameless = [it for it in self._rows.every(tables.NUMBER) if it.name not in names]
            count += self._removed(tables.NUMBER, [(it.group_name, it.number) for it in nameless])
        return count

    def forget_lanes(self, now_us: int, before_us: int, limit: int) -> int:
        old = [it for it in self._rows.all(tables.LANE) if it.used_at is not None and it.used_at < before_us][:limit]
        used = {it.lane_id for it in self._rows.every(tables.QUEUE)}
        self._rows.change(_USED, [(it.id, now_us) for it in old if it.id in used])
        return self._removed(tables.LANE, [it.id for it in old if it.id not in used])

    def _removed(self, table: Table[Any], keys: Iterable[Any]) -> int:
        gone = list(keys)
        self._rows.remove(table, gone)
        return len(gone)


def _age(row: RunRow) -> tuple[int, int]:
    return row.created_at, row.id
