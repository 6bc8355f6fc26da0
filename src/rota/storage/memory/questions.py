"""What transactions ask of the store in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rota.model import tables
from rota.model.cluster import Role
from rota.model.dispatch import Ready, Seated, TargetRow
from rota.model.node import NodeState
from rota.model.states import Cause, ItemState, RunState
from rota.model.tables import QueueRow, RunRow
from rota.storage.memory.lookups import MemoryLookups
from rota.storage.memory.pruning import MemoryPruning
from rota.storage.memory.tables import LIVE_JOB, LIVE_KEY
from rota.transactions.rows import AssignmentFacts, CrowdCount, FiredWith, LiveItem, NamedRun, Tally

ONLINE = str(NodeState.ONLINE)
READY, ASSIGNED, RUNNING = (str(it) for it in (ItemState.READY, ItemState.ASSIGNED, ItemState.RUNNING))


class MemoryQuestions(MemoryPruning, MemoryLookups):
    """The questions of one transaction."""

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
        return [NamedRun(it.id, it.job_id, it.state, it.overlap_key, self._is_started(it)) for it in rows]

    def _is_started(self, run: RunRow) -> bool:
        return any(it.live in (ASSIGNED, RUNNING) for it in self.live_items([run.id]))

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
        return [
            Ready(
                it.item_id,
                it.run_id,
                it.job_id,
                it.lane_id,
                it.start_by_at,
                it.not_before_at,
                it.attempt,
                it.failures,
                it.losses,
                it.avoid_id,
            )
            for it in self._rows.every(tables.QUEUE)
            if it.state == READY
        ]

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
