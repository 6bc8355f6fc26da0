"""What is asked of the store in memory: by transactions, outside of them, and by whoever forgets what is old."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from rota.model import tables
from rota.model.cluster import Role
from rota.model.dispatch import Pulse, Ready, Seated, TargetRow
from rota.model.node import NodeState
from rota.model.plan import JobFilter, RunFilter
from rota.model.records import drain_of
from rota.model.states import Cause, RunState
from rota.model.tables import AlarmRow, AttemptRow, Change, DeliveryRow, EventRow, JobRow, QueueRow, RunRow, Table
from rota.storage.memory.rows import LIVE_JOB, LIVE_KEY, MemoryRows
from rota.transactions.queue import ASSIGNED, READY, RUNNING, ready_of
from rota.transactions.rows import AssignmentFacts, CrowdCount, FiredWith, FoundNode, LiveItem, NamedRun, Tally, Values

ONLINE = str(NodeState.ONLINE)
_USED = Change(tables.LANE, ("id",), ("used_at",))


class MemoryQuestions:
    def __init__(self, rows: MemoryRows) -> None:
        self._rows = rows

    def due_jobs(self, tenant: str, project: str, until_us: int) -> list[int]:
        return [
            row.id
            for row in self._rows.all(tables.JOB)
            if row.next_fire_at is not None
            and row.next_fire_at <= until_us
            and tenant in ("", row.tenant)
            and project in ("", row.project)
        ]

    def crowds(self, keys: Sequence[str]) -> tuple[int, list[CrowdCount]]:
        counts = Counter((row.overlap_key, row.state) for row in self._rows.find(tables.RUN, LIVE_KEY, keys))
        return self._rows.now_us(), [CrowdCount(key, state, count) for (key, state), count in counts.items()]

    def named_runs(self, keys: Sequence[str]) -> list[NamedRun]:
        rows = sorted(self._rows.find(tables.RUN, LIVE_KEY, keys), key=lambda it: (it.created_at, it.id))
        live = self.live_items([it.id for it in rows])
        started = {it.item.run_id for it in live if it.live in (ASSIGNED, RUNNING)}
        return [NamedRun(it.id, it.job_id, it.state, it.overlap_key, it.id in started) for it in rows]

    def live_counts(self, job_ids: Sequence[int]) -> dict[int, int]:
        return dict(Counter(row.job_id for row in self._rows.find(tables.RUN, LIVE_JOB, job_ids)))

    def waiting_keys(self, job_ids: Sequence[int]) -> list[str]:
        live = self._rows.find(tables.RUN, LIVE_JOB, job_ids)
        return sorted({row.overlap_key for row in live if row.state == RunState.WAITING})

    def last_ends(self, job_id: int, since_us: int, states: Sequence[str], limit: int) -> list[str]:
        ended = [
            (row.ended_at, row.id, row.state)
            for row in self._rows.every(tables.RUN)
            if row.job_id == job_id and row.ended_at is not None and row.created_at >= since_us and row.state in states
        ]
        return [state for _, _, state in sorted(ended, reverse=True)[:limit]]

    def live_items(self, run_ids: Sequence[int]) -> list[LiveItem]:
        items = sorted(self._rows.find(tables.ITEM, "run", run_ids), key=lambda it: (it.run_id, it.task, it.index))
        queued = [self._rows.get(tables.QUEUE, item.id) for item in items]
        return [LiveItem(item, None if it is None else it.state) for item, it in zip(items, queued, strict=True)]

    def fired_with(self, run_ids: Sequence[int]) -> list[FiredWith]:
        found = []
        for run in self._rows.read(tables.RUN, run_ids):
            version = self._rows.get(tables.JOB_VERSION, (run.job_id, run.version))
            if version is not None:
                whose = (run.job_id, run.version, version.definition)
                found.append(FiredWith(*whose, run.id, run.created_at, run.due_at))
        return found

    def tally(self, run_ids: Sequence[int]) -> list[Tally]:
        found = []
        for run_id in run_ids:
            items = self._rows.find(tables.ITEM, "run", [run_id])
            ends = [item.ended_at for item in items if item.ended_at is not None]
            if len(ends) < len(items):
                found.append(Tally(run_id, frozenset(), None, is_open=True))
            elif items:
                found.append(Tally(run_id, frozenset(item.state for item in items), max(ends), is_open=False))
        return found

    def assignment(self, key: str, quota: str) -> AssignmentFacts:
        run = self._rows.find(tables.RUN, "key", [(0, str(Cause.ASSIGN), key)])
        limit = self._rows.get(tables.LIMIT, quota)
        has_quota = limit is not None and bool(limit.is_set)
        return AssignmentFacts(self._rows.now_us(), run[0] if run else None, has_quota)

    def ready(self) -> list[Ready]:
        return [ready_of(it) for it in self._rows.every(tables.QUEUE) if it.state == READY]

    def seated(self) -> list[Seated]:
        taken = (it for it in self._rows.every(tables.QUEUE) if it.state != READY)
        return [
            Seated(it.item_id, it.lane_id, it.node_id, it.attempt, it.assigned_at if it.state == ASSIGNED else None)
            for it in taken
        ]

    def queue_of(self, node_id: int) -> list[QueueRow]:
        return sorted(it for it in self._rows.every(tables.QUEUE) if it.node_id == node_id)

    def open_assignments(self, after_id: int, limit: int) -> Sequence[int]:
        return sorted(row.id for row in self._rows.find(tables.RUN, LIVE_JOB, [0]) if row.id > after_id)[:limit]

    def unsettled_runs(self) -> Sequence[int]:
        live = [it.id for it in self._rows.every(tables.RUN) if it.job_id and it.state == RunState.RUNNING]
        return [it.run_id for it in self.tally(live) if not it.is_open]

    def take_arrivals(self) -> list[tuple[str, str]]:
        rows = self._rows.all(tables.ARRIVAL)
        self._rows.remove(tables.ARRIVAL, [row.id for row in rows])
        return [(row.kind, row.data) for row in rows]

    def targets(self) -> tuple[int, list[TargetRow]]:
        now_us = self._rows.now_us()
        listed = self._rows.every(tables.DRAINED)
        drained = {it.name for it in listed if it.roles is None or str(Role.EXECUTOR) in it.roles}
        found = []
        for lease in self._rows.all(tables.LEASE):
            node = self._rows.get(tables.NODE, lease.node_id)
            lasts = lease.until_at > now_us and not lease.fenced
            if lasts and node is not None and node.state == ONLINE and node.name not in drained:
                found.append(TargetRow(node.id, node.name, node.joined, lease.busy, lease.until_at))
        return now_us, found

    def living_names(self, now_us: int) -> set[str]:
        living = [it.node_id for it in self._rows.every(tables.LEASE) if it.until_at > now_us]
        return {node.name for node in self._rows.read(tables.NODE, living)}

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
        items = self._rows.find(tables.ITEM, "run", running)
        waiting = {it.item_id for it in self._rows.read(tables.QUEUE, [it.id for it in items]) if it.attempt == 0}
        begun = {it.run_id for it in items if it.id not in waiting}
        return [run_id for run_id in running if run_id not in begun]

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
            round=row.round,
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
