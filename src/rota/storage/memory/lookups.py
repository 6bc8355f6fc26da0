"""What is asked of the store in memory outside transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rota.model import tables
from rota.model.cluster import Role
from rota.model.dispatch import Pulse
from rota.model.plan import JobFilter, RunFilter
from rota.model.records import drain_of
from rota.model.states import ItemState, RunState
from rota.model.tables import AlarmRow, AttemptRow, DeliveryRow, EventRow, JobRow, QueueRow, RunRow
from rota.storage.memory.rows import MemoryRows
from rota.transactions.rows import FoundNode, Values

READY = str(ItemState.READY)


class MemoryLookups:
    """The questions that are asked outside transactions."""

    def __init__(self, rows: MemoryRows) -> None:
        self._rows = rows

    def upcoming(self, within_us: int, limit: int) -> tuple[int, int, list[tuple[int, int]]]:
        now_us, held = self._rows.now_us(), self._rows.every(tables.HELD)
        soon = [
            (row.next_fire_at, row.id)
            for row in self._rows.every(tables.JOB)
            if row.next_fire_at is not None
            and row.next_fire_at <= now_us + within_us
            and not any(it.tenant in ("", row.tenant) and it.project in ("", row.project) for it in held)
        ]
        (placed,) = self._rows.read(tables.COUNTER, ["placed"])
        return now_us, placed.next, [(job_id, at) for at, job_id in sorted(soon)[:limit]]

    def job_page(self, wanted: JobFilter) -> list[JobRow]:
        rows = [
            row
            for row in self._rows.all(tables.JOB)
            if row.id > wanted.after_id
            and (wanted.ids is None or row.id in wanted.ids)
            and row.state in wanted.states
            and wanted.tenant in (None, row.tenant)
            and wanted.project in (None, row.project)
        ]
        return rows[: wanted.limit]

    def run_page(self, wanted: RunFilter, job_ids: Sequence[int] | None) -> list[RunRow]:
        rows = [row for row in self._rows.every(tables.RUN) if job_ids is None or row.job_id in job_ids]
        last = None if wanted.before_id is None else self._rows.get(tables.RUN, wanted.before_id)
        if last is not None:
            rows = [row for row in rows if _age(row) < _age(last)]
        if wanted.states:
            rows = [row for row in rows if row.state in wanted.states]
        return sorted(rows, key=_age, reverse=True)[: wanted.limit]

    def live_runs(self, tenant: str, after_id: int, limit: int) -> Sequence[int]:
        jobs = {row.id for row in self._rows.every(tables.JOB) if row.tenant == tenant}
        rows = [row for row in self._rows.every(tables.RUN) if row.ended_at is None and row.id > after_id]
        mine = [row.id for row in rows if row.job_id in jobs or self._is_going(row, f"{tenant}/")]
        return sorted(mine)[:limit]

    def _is_going(self, run: RunRow, prefix: str) -> bool:
        items = self._rows.find(tables.ITEM, "run", [run.id])
        return run.job_id == 0 and run.key.startswith(prefix) and any(it.ended_at is None for it in items)

    def unstarted(self, run_ids: Sequence[int]) -> Sequence[int]:
        running = [it.id for it in self._rows.read(tables.RUN, run_ids) if it.state == RunState.RUNNING]
        return [run_id for run_id in running if self._is_unstarted(run_id)]

    def _is_unstarted(self, run_id: int) -> bool:
        live = [self._rows.get(tables.QUEUE, item.id) for item in self._rows.find(tables.ITEM, "run", [run_id])]
        return all(it is not None and it.attempt == 0 for it in live)

    def kept_runs(self, run_ids: Sequence[int]) -> Sequence[int]:
        return [it.id for it in self._rows.read(tables.RUN, run_ids)]

    def loads(self, item_ids: Sequence[int], run_ids: Sequence[int]) -> tuple[Values, Values]:
        items = [(*row, None) for row in self._rows.read(tables.ITEM, item_ids)]
        return items, self._rows.read(tables.RUN, run_ids)

    def attempts_of(self, run_id: int) -> list[AttemptRow]:
        items = {row.id for row in self._rows.find(tables.ITEM, "run", [run_id])}
        rows = [row for row in self._rows.every(tables.ATTEMPT) if row.item_id in items]
        return sorted(rows, key=lambda it: (it.ended_at, it.item_id, it.attempt))

    def last_lines(self, run_id: int | None, job_id: int | None, limit: int) -> list[EventRow]:
        mine = [it for it in self._rows.every(tables.EVENT) if run_id in (None, it.run_id)]
        rows = sorted((it for it in mine if job_id in (None, it.job_id)), key=lambda it: (it.at, it.id))
        return rows[::-1][:limit]

    def queued(
        self, item_ids: Sequence[int] | None, node_id: int | None, expired_us: int | None, *, limit: int
    ) -> list[QueueRow]:
        found = [
            it
            for it in self._rows.all(tables.QUEUE)
            if (item_ids is None or it.item_id in item_ids) and node_id in (None, it.node_id)
        ]
        if expired_us is not None:
            until_us = self._rows.now_us() + expired_us
            found = [it for it in found if it.node_id is None and it.expires_at and it.expires_at <= until_us]
        return found[:limit]

    def asked_to_cancel(self, item_ids: Sequence[int]) -> Sequence[int]:
        return [it.item_id for it in self._rows.read(tables.QUEUE, item_ids) if it.cancel_at is not None]

    def queue_counts(self) -> list[tuple[int, str, int]]:
        counts = Counter((it.lane_id, it.state) for it in self._rows.every(tables.QUEUE))
        return [(lane_id, state, count) for (lane_id, state), count in counts.items()]

    def line(self) -> list[tuple[int, int]]:
        now_us = self._rows.now_us()
        able = [it for it in self._rows.every(tables.QUEUE) if it.state == READY and it.not_before_at <= now_us]
        line = sorted(able, key=lambda it: (it.start_by_at, it.not_before_at, it.item_id))
        return [(it.item_id, it.lane_id) for it in line]

    def seats_taken(self) -> dict[int, int]:
        return dict(Counter(it.node_id for it in self._rows.every(tables.QUEUE) if it.node_id is not None))

    def pulse(self, node_id: int) -> Pulse:
        (row,) = self._rows.read(tables.DISPATCH, [1])
        granted = [it.round for it in self._rows.every(tables.GRANT) if it.node_id == node_id]
        return Pulse(
            now_us=self._rows.now_us(),
            holder=row.holder,
            next_us=row.next_at,
            arrived_us=min((it.at for it in self._rows.every(tables.ARRIVAL)), default=None),
            granted=max(granted, default=0),
        )

    def grants(self, node_id: int, after_round: int) -> list[tuple[int, int, str]]:
        rows = [it for it in self._rows.every(tables.GRANT) if it.node_id == node_id and it.round > after_round]
        return sorted((it.round, it.at, it.data) for it in rows)

    def members(self, *, gone: bool) -> tuple[int, list[FoundNode]]:
        listed = [drain_of(it) for it in self._rows.every(tables.DRAINED)]
        drained = {it.name for it in listed if Role.EXECUTOR in it.roles}
        found = []
        for node in self._rows.every(tables.NODE):
            lease = self._rows.get(tables.LEASE, node.id)
            if gone or lease is not None:
                found.append(FoundNode(node, lease, node.name in drained))
        return self._rows.now_us(), found

    def alarms(self, *, unsorted: bool, open_: bool, limit: int) -> list[AlarmRow]:
        oldest = sorted(self._rows.every(tables.ALARM), key=lambda it: (it.at, it.id))
        if unsorted:
            return [it for it in oldest if it.sorted_at is None][:limit]
        return [it for it in oldest if it.is_open][:limit] if open_ else oldest[::-1][:limit]

    def deliveries(self, limit: int, *, pending: bool) -> list[tuple[DeliveryRow, AlarmRow]]:
        both = [(it, self._rows.get(tables.ALARM, it.alarm_id)) for it in self._rows.every(tables.DELIVERY)]
        found = [(it, alarm) for it, alarm in both if alarm is not None]
        found.sort(key=lambda it: (it[1].at, it[1].id, it[0].rule))
        if not pending:
            return found[::-1][:limit]
        names = sorted({it.rule for it, _ in found})
        theirs = {name: [it for it in found if it[0].rule == name and it[0].ended_at is None] for name in names}
        return [it for name in names for it in theirs[name][:limit]]


def _age(row: RunRow) -> tuple[int, int]:
    return row.created_at, row.id
