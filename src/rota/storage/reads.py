"""What is read of a store outside transactions, once for all of them: rows and questions below, values above.

Nothing is locked, and each question is one statement, which sees what is committed when it is made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from rota.model import tables
from rota.model.alarm import Alarm, AlarmRule, Deliveries, Delivery
from rota.model.cluster import Drains, Hold, Placeable
from rota.model.dispatch import Grant, Granted, Pulse
from rota.model.job import Definition, Job, JobName
from rota.model.node import Members
from rota.model.plan import JobFilter, Pending, RunFilter, Upcoming
from rota.model.readable import reads
from rota.model.records import (
    alarm_in,
    alarm_rule_of,
    attempt_of,
    definition_of,
    drain_of,
    event_of,
    from_us,
    hold_of,
    item_of,
    job_of,
    limit_of,
    queued_of,
    run_of,
)
from rota.model.run import Event, Item, Loads, Run
from rota.model.standing import QuotaCount, Standing
from rota.model.value import decode
from rota.model.work import AttemptRecord, Limit, Queued
from rota.storage.standing import items_of, members, runs_of, standing, statistics
from rota.transactions.plan import PLACED
from rota.transactions.record import LAST
from rota.transactions.tx import ProcessMemory, Tx

P = ParamSpec("P")
T = TypeVar("T")


class StoreReads(ABC):
    """The reads of `ports.Store`. A store says how questions are answered."""

    memory: ProcessMemory

    @abstractmethod
    async def look(self, work: Callable[Concatenate[Tx, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` that only reads."""

    @property
    def unread(self) -> Mapping[str, str]:
        return self.memory.readings.unread

    async def now(self) -> datetime:
        return from_us(await self.look(lambda tx: tx.rows.now_us()))

    async def generation(self) -> int:
        (row,) = await self.look(lambda tx: tx.rows.read(tables.META, ["generation"]))
        return int(row.value)

    async def raised(self) -> tuple[datetime, str] | None:
        found = await self.look(lambda tx: tx.rows.read(tables.META, [LAST]))
        if not found:
            return None
        at, _, why = found[0].value.partition(" ")
        return from_us(int(at)), why

    async def upcoming(self, *, within_s: float, limit: int) -> Upcoming:
        now_us, placed, soon = await self.look(lambda tx: tx.ask.upcoming(round(within_s * 1_000_000), limit))
        pending = tuple(Pending(job_id=job_id, next_fire_at=from_us(at)) for job_id, at in soon)
        return Upcoming(now=from_us(now_us), pending=pending, placed=placed)

    async def named(self, names: Sequence[JobName]) -> tuple[Job, ...]:
        return tuple(map(job_of, await self.look(lambda tx: tx.rows.find(tables.JOB, "name", sorted(set(names))))))

    async def jobs(self, wanted: JobFilter) -> tuple[Job, ...]:
        return await self.look(_jobs, wanted)

    async def definitions(self, versions: Sequence[tuple[int, int]]) -> Mapping[tuple[int, int], Definition]:
        found = await self.look(lambda tx: tx.rows.read(tables.JOB_VERSION, sorted(set(versions))))
        read = self.memory.readings.pairs(found, definition_of)
        return {(row.job_id, row.version): definition for row, definition in read}

    async def placeable(self, known: int) -> Placeable:
        return await self.look(_placeable, known)

    async def busy_jobs(self, job_ids: Sequence[int]) -> frozenset[int]:
        return frozenset(await self.look(lambda tx: tx.ask.live_counts(job_ids)))

    async def holds(self) -> tuple[Hold, ...]:
        return tuple(map(hold_of, await self.look(lambda tx: tx.rows.all(tables.HELD))))

    async def run(self, run_id: int) -> Run | None:
        found = await self.runs_of([run_id])
        return found[0] if found else None

    async def runs_of(self, run_ids: Sequence[int]) -> Sequence[Run]:
        return await self.look(runs_of, run_ids)

    async def runs(self, wanted: RunFilter) -> tuple[Run, ...]:
        return await self.look(_runs, wanted)

    async def live_runs(self, tenant: str, *, after_id: int = 0, limit: int = 1000) -> tuple[int, ...]:
        return tuple(await self.look(lambda tx: tx.ask.live_runs(tenant, after_id, limit)))

    async def unstarted(self, run_ids: Sequence[int]) -> frozenset[int]:
        return frozenset(await self.look(lambda tx: tx.ask.unstarted(run_ids))) if run_ids else frozenset()

    async def forgotten(self, run_ids: Sequence[int]) -> Sequence[int]:
        return await self.look(_forgotten, run_ids)

    async def items(self, run_id: int) -> tuple[Item, ...]:
        return tuple(await self.look(items_of, run_id))

    async def loads(self, item_ids: Sequence[int], run_ids: Sequence[int] = ()) -> Loads:
        return self._loaded(*await self.look(lambda tx: tx.ask.loads(item_ids, run_ids)))

    def _loaded(self, items: Sequence[tuple[Any, ...]], runs: Sequence[tuple[Any, ...]]) -> Loads:
        readings = self.memory.readings
        read, ran = readings.all(items, item_of), readings.all(runs, run_of)
        unread: set[int] = set()
        if len(read) < len(items):
            known = {item.id for item in read}
            unread |= {row[1] for row in items if row[0] not in known}
        if len(ran) < len(runs):
            unread |= {row[0] for row in runs} - {run.id for run in ran}
        return Loads(read, ran, frozenset(unread))

    async def attempts(self, run_id: int) -> tuple[AttemptRecord, ...]:
        return self._read(await self.look(lambda tx: tx.ask.attempts_of(run_id)), attempt_of)

    async def events(
        self, *, run_id: int | None = None, job_id: int | None = None, limit: int = 100
    ) -> tuple[Event, ...]:
        return self._read((await self.look(lambda tx: tx.ask.last_lines(run_id, job_id, limit)))[::-1], event_of)

    async def queued(
        self,
        *,
        item_ids: Sequence[int] | None = None,
        node_id: int | None = None,
        expired: bool = False,
        limit: int = 1000,
    ) -> tuple[Queued, ...]:
        rows = await self.look(lambda tx: tx.ask.queued(item_ids, node_id, expired=expired, limit=limit))
        return self._read(rows, queued_of)

    async def asked_to_cancel(self, item_ids: Sequence[int]) -> tuple[int, ...]:
        return tuple(await self.look(lambda tx: tx.ask.asked_to_cancel(item_ids)))

    async def pulse(self, node_id: int) -> Pulse:
        return await self.look(lambda tx: tx.ask.pulse(node_id))

    async def granted(self, node_id: int, after_round: int) -> tuple[Grant, ...]:
        rows = await self.look(lambda tx: tx.ask.grants(node_id, after_round))
        return self._read(rows, _grant)  # what is missing, its node gives back when it looks

    async def limits(self) -> tuple[Limit, ...]:
        rows = await self.look(lambda tx: tx.rows.all(tables.LIMIT))
        return self._read([row for row in rows if row.is_set], limit_of)

    async def statistics(self) -> tuple[QuotaCount, ...]:
        return await self.look(statistics)

    async def standing(self, run_id: int) -> Standing:
        return await self.look(standing, run_id)

    async def seats_taken(self) -> Mapping[int, int]:
        return await self.look(lambda tx: tx.ask.seats_taken())

    async def nodes(self, *, gone: bool = False) -> Members:
        return await self.look(members, gone=gone)

    async def drains(self) -> Drains:
        rows, now_us = await self.look(lambda tx: (tx.rows.all(tables.DRAINED), tx.rows.now_us()))
        return Drains(now=from_us(now_us), drains=tuple(map(drain_of, rows)))

    async def alarm_rules(self) -> tuple[AlarmRule, ...]:
        return self._read(await self.look(lambda tx: tx.rows.all(tables.ALARM_RULE)), alarm_rule_of)

    async def alarms(self, *, unsorted: bool = False, open_: bool = False, limit: int = 100) -> tuple[Alarm, ...]:
        return self._read(
            await self.look(lambda tx: tx.ask.alarms(unsorted=unsorted, open_=open_, limit=limit)), alarm_in
        )

    async def deliveries(self, *, pending: bool = True, limit: int = 500) -> Deliveries:
        rows, now_us = await self.look(lambda tx: (tx.ask.deliveries(limit, pending=pending), tx.rows.now_us()))
        return Deliveries(now=from_us(now_us), deliveries=self._read(rows, _delivery))

    def _read(self, rows: Sequence[Any], make: Callable[[Any], T]) -> tuple[T, ...]:
        return tuple(self.memory.readings.all(rows, make))


def _jobs(tx: Tx, wanted: JobFilter) -> tuple[Job, ...]:
    """Full pages: a shorter one is the last."""
    found: list[Job] = []
    after_id = wanted.after_id
    while len(found) < wanted.limit:
        rows = tx.ask.job_page(msgspec.structs.replace(wanted, after_id=after_id))
        found += tx.readings.all(rows, job_of)
        if len(rows) < wanted.limit:
            break
        after_id = rows[-1].id
    return tuple(found[: wanted.limit])


def _placeable(tx: Tx, known: int) -> Placeable:
    revision = next((row.next for row in tx.rows.read(tables.COUNTER, [PLACED])), 0)
    if revision == known:
        return Placeable(revision=revision)
    return Placeable(revision=revision, jobs=tuple(row.job_id for row in tx.rows.all(tables.PLACED)))


def _runs(tx: Tx, wanted: RunFilter) -> tuple[Run, ...]:
    job_ids = None if wanted.job is None else [row.id for row in tx.rows.find(tables.JOB, "name", [wanted.job])]
    found = runs_of(tx, (), tx.ask.run_page(wanted, job_ids))
    return tuple(run for run in found if not wanted.states or run.state in wanted.states)


def _forgotten(tx: Tx, run_ids: Sequence[int]) -> list[int]:
    kept = set(tx.ask.kept_runs(run_ids))
    given = next((row.next for row in tx.rows.read(tables.COUNTER, ["run"])), 0)
    return [it for it in run_ids if it < given and it not in kept]


@reads("grant of round")
def _grant(row: Any) -> Grant:
    round_, at, data = row
    return Grant(round=round_, at_us=at, items=decode(data, tuple[Granted, ...]))


def _delivery(row: Any) -> Delivery:
    return Delivery(
        rule=row.rule,
        alarm=alarm_in(row),
        tries=row.tries,
        not_before_at=from_us(row.not_before_at),
        ended_at=from_us(row.ended_at),
        answer=row.answer,
        arrived=bool(row.arrived),
    )
