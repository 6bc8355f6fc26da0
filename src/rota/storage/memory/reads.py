"""What is read of jobs, runs and alarms in memory, outside transactions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from rota.model import tables
from rota.model.alarm import Alarm, AlarmRule, Deliveries, Delivery
from rota.model.cluster import Hold, Placeable
from rota.model.job import Definition, Job, JobName
from rota.model.moment import micros
from rota.model.plan import JobFilter, Pending, RunFilter, Upcoming
from rota.model.readable import Readings
from rota.model.records import (
    alarm_in,
    alarm_rule_of,
    attempt_of,
    definition_of,
    event_of,
    from_us,
    hold_of,
    item_of,
    job_of,
    run_of,
)
from rota.model.run import Event, Item, Loads, Run
from rota.model.tables import DeliveryRow, JobRow, RunRow
from rota.model.work import AttemptRecord
from rota.ports import Clock
from rota.storage.memory.questions import MemoryQuestions
from rota.storage.memory.rows import MemoryRows
from rota.storage.memory.tables import LIVE_JOB, Tables
from rota.transactions.assign import derived, is_open


class MemoryRunReads:
    """Jobs, runs, items, attempts, history."""

    def __init__(self, clock: Clock, readings: Readings) -> None:
        self._clock = clock
        self._readings = readings
        self.tables = Tables()

    @property
    def _rows(self) -> MemoryRows:
        return MemoryRows(self.tables, self._clock)

    @property
    def _ask(self) -> MemoryQuestions:
        return MemoryQuestions(self._rows)

    def _now_us(self) -> int:
        return micros(self._clock.wall())

    async def now(self) -> datetime:
        return self._clock.wall()

    async def probe(self) -> None: ...

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        until_us = self._now_us() + round(within_s * 1_000_000)
        soon = [
            (row.next_fire_at, row.id)
            for row in self.tables.rows(tables.JOB)
            if row.next_fire_at is not None and row.next_fire_at <= until_us and not self._is_held(row)
        ]
        pending = tuple(Pending(job_id=job_id, next_fire_at=from_us(at)) for at, job_id in sorted(soon)[:limit])
        return Upcoming(now=self._clock.wall(), pending=pending, placed=self._placed)

    def _is_held(self, row: JobRow) -> bool:
        """Whether its tenant, its project or everything is held."""
        return any(
            it.tenant in ("", row.tenant) and it.project in ("", row.project) for it in self.tables.rows(tables.HELD)
        )

    @property
    def _placed(self) -> int:
        row = self.tables.get(tables.COUNTER, "placed")
        return 0 if row is None else row.next

    async def placeable(self, known: int) -> Placeable:
        if known == self._placed:
            return Placeable(revision=known)
        return Placeable(revision=self._placed, jobs=tuple(sorted(it.job_id for it in self.tables.rows(tables.PLACED))))

    async def busy_jobs(self, job_ids: Sequence[int]) -> frozenset[int]:
        return frozenset(it for it in job_ids if self.tables.found(tables.RUN, LIVE_JOB, it))

    async def holds(self) -> tuple[Hold, ...]:
        return tuple(hold_of(row) for row in self._rows.all(tables.HELD))

    async def named(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        return tuple(job_of(row) for row in self._rows.find(tables.JOB, "name", names))

    async def jobs(self, wanted: JobFilter) -> tuple[Job, ...]:
        rows = [
            row
            for row in self._rows.all(tables.JOB)
            if row.id > wanted.after_id
            and (wanted.ids is None or row.id in wanted.ids)
            and row.state in wanted.states
            and wanted.tenant in (None, row.tenant)
            and wanted.project in (None, row.project)
        ]
        return tuple(self._readings.all(rows, job_of)[: wanted.limit])

    async def definitions(self, versions: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], Definition]:
        rows = self._rows.read(tables.JOB_VERSION, versions)
        return {(row.job_id, row.version): made for row, made in self._readings.pairs(rows, definition_of)}

    async def run(self, run_id: int) -> Run | None:
        found = await self.runs_of([run_id])
        return found[0] if found else None

    async def runs_of(self, run_ids: Sequence[int]) -> Sequence[Run]:
        return self._derived(self._rows.read(tables.RUN, run_ids))

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        jobs = None if wanted.job is None else {row.id for row in self._rows.find(tables.JOB, "name", [wanted.job])}
        rows = [row for row in self.tables.rows(tables.RUN) if jobs is None or row.job_id in jobs]
        last = None if wanted.before_id is None else self.tables.get(tables.RUN, wanted.before_id)
        if last is not None:
            rows = [row for row in rows if _age(row) < _age(last)]
        found = self._derived(sorted(rows, key=_age, reverse=True))
        return tuple([run for run in found if not wanted.states or run.state in wanted.states][: wanted.limit])

    async def live_runs(self, tenant: str, *, after_id: int = 0, limit: int = 1000) -> tuple[int, ...]:
        jobs = {row.id: row.tenant for row in self.tables.rows(tables.JOB)}
        rows = [row for row in self.tables.rows(tables.RUN) if row.ended_at is None and row.id > after_id]
        mine = [run for run in self._derived(rows) if _tenant_of(run, jobs) == tenant and run.state.live]
        return tuple(sorted(run.id for run in mine)[:limit])

    def _derived(self, rows: Sequence[RunRow]) -> list[Run]:
        """Runs, those of assignments that nobody has closed as their items say."""
        runs = self._readings.all(rows, run_of)
        loose = [run.id for run in runs if is_open(run)]
        return derived(runs, self._ask.tally(loose) if loose else ())

    async def items(self, run_id: int) -> tuple[Item, ...]:
        return tuple(self._items_of(run_id))

    def _items_of(self, run_id: int) -> list[Item]:
        return self._readings.all([(*it.item, it.live) for it in self._ask.live_items([run_id])], item_of)

    async def loads(self, item_ids: Sequence[int], run_ids: Sequence[int] = ()) -> Loads:
        items = [(*row, None) for row in self._rows.read(tables.ITEM, item_ids)]
        return Loads(
            self._readings.all(items, item_of), self._readings.all(self._rows.read(tables.RUN, run_ids), run_of)
        )

    async def attempts(self, run_id: int) -> tuple[AttemptRecord, ...]:
        items = {row.id for row in self._rows.find(tables.ITEM, "run", [run_id])}
        rows = [row for row in self.tables.rows(tables.ATTEMPT) if row.item_id in items]
        return tuple(map(attempt_of, sorted(rows, key=lambda it: (it.ended_at, it.item_id, it.attempt))))

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        mine = (it for it in self.tables.rows(tables.EVENT) if run_id in (None, it.run_id))
        rows = sorted((it for it in mine if job_id in (None, it.job_id)), key=lambda it: (it.at, it.id))
        return tuple(map(event_of, rows[-limit:]))

    async def forgotten(self, run_ids: Sequence[int]) -> Sequence[int]:
        row = self.tables.get(tables.COUNTER, "run")
        given = 0 if row is None else row.next
        return [it for it in run_ids if it < given and self.tables.get(tables.RUN, it) is None]


class MemoryAlarmReads(MemoryRunReads):
    """Rules, what happened, and what is on its way."""

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        return tuple(self._readings.all(self._rows.all(tables.ALARM_RULE), alarm_rule_of))

    async def alarms(self, *, unsorted: bool = False, open_: bool = False, limit: int = 100) -> tuple[Alarm, ...]:
        oldest = sorted(self.tables.rows(tables.ALARM), key=lambda it: (it.at, it.id))
        if unsorted:
            oldest = [it for it in oldest if it.sorted_at is None][:limit]
        elif open_:
            oldest = [it for it in oldest if it.is_open][:limit]
        else:
            oldest = oldest[::-1][:limit]
        return tuple(self._readings.all(oldest, alarm_in))

    async def deliveries(self, *, pending: bool = True, limit: int = 500) -> Deliveries:
        found = sorted(
            (self._delivery(row) for row in self.tables.rows(tables.DELIVERY)),
            key=lambda it: (it.alarm.at, it.alarm.id, it.rule),
        )
        if not pending:
            return Deliveries(now=self._clock.wall(), deliveries=tuple(found[::-1][:limit]))
        names = sorted({it.rule for it in found})
        theirs = {name: [it for it in found if it.rule == name and it.ended_at is None] for name in names}
        first = tuple(it for name in names for it in theirs[name][:limit])
        return Deliveries(now=self._clock.wall(), deliveries=first)

    def _delivery(self, row: DeliveryRow) -> Delivery:
        alarm = self.tables.get(tables.ALARM, row.alarm_id)
        assert alarm is not None, "deliveries are forgotten with their alarm"
        return Delivery(
            rule=row.rule,
            alarm=alarm_in(alarm),
            tries=row.tries,
            not_before_at=from_us(row.not_before_at),
            ended_at=from_us(row.ended_at),
            answer=row.answer,
            arrived=bool(row.arrived),
        )


def _age(row: RunRow) -> tuple[int, int]:
    return row.created_at, row.id


def _tenant_of(run: Run, jobs: Mapping[int, str]) -> str:
    return jobs.get(run.job_id, "") if run.work is None else run.work.tenant
