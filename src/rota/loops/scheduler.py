"""Fire what is due.

    look ──> the jobs that are due before the next look, as a heap by instant
      ^                     │ sleep until the first is due
      │                     v
      └──look again──  fire a batch: one transaction; each job comes back with its next instant

Placement says whose turn a job is; the transaction decides who fired it. A job that is another's turn is fired here
only when it is overdue by more than a session and a second, whoever owns it. A job that another node holds costs one
short retry; whatever was overlooked, the next look finds.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from rota.config import SchedulerConfig
from rota.core.fire import Fire
from rota.errors import StoreUnavailable
from rota.logger import log
from rota.loops.loop import Loop
from rota.loops.signals import Signals
from rota.loops.store_time import StoreTime
from rota.model.plan import Committed, Pending
from rota.model.states import RunState, SkipReason
from rota.ports import Clock, Store
from rota.transactions.fire import fire

RETRY_S = 0.05
HOLD_S = 60.0
ROWS_OF_A_RUN = 2
"""The item of a job with one task, and a line of history."""
Due = tuple[datetime, int]
Moved = dict[int, datetime | None]
"""Jobs that were decided on, and when they are due next."""


class Ownership(Protocol):
    """Says which jobs this scheduler should fire. To be wrong costs a failed update, or a while."""

    def owns(self, job_id: int, at: datetime) -> bool:
        """Whether this scheduler fires the slot of a job that is due at an instant."""


@dataclass(eq=False, repr=False)
class Scheduler(Loop):
    """Fires due jobs. Being late, doubled, frozen or wrong about the time costs latency, never a slot."""

    store: Store
    clock: Clock
    config: SchedulerConfig
    ownership: Ownership | None = None
    """None: it owns every job, being alone, or where nobody coordinates."""
    signals: Signals = field(default_factory=Signals)
    overdue_s: float = 5.0
    _placed: int = 0
    _held: dict[int, float] = field(default_factory=dict)
    fired: int = 0
    """Runs that this scheduler has started, or lets wait for their turn."""
    missed: int = 0
    """Slots that it found too late."""
    skipped: int = 0
    """Slots that an overlap policy or a calendar left out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._overdue = timedelta(seconds=self.overdue_s)

    async def once(self) -> float:
        """Look once, then fire what falls due until it is time to look again."""
        look_s = self._look_s
        seen = await self.store.upcoming(within_s=look_s * 1.5, limit=self.config.look_max)
        self._notice(seen.placed)
        moment = StoreTime(self.clock, seen.now)
        heap: list[Due] = [(self._turn_at(it), it.job_id) for it in seen.pending if not self._is_held(it.job_id)]
        heapq.heapify(heap)
        retried: set[int] = set()
        full = len(seen.pending) == self.config.look_max and len(heap) > 0
        while heap and not self._stopping and moment.elapsed() < self._look_s:
            wait_s = (heap[0][0] - moment.now()).total_seconds()
            if wait_s > 0:
                usual_s = min(wait_s, self.config.look_s - moment.elapsed())
                await self.rest(min(wait_s, self._look_s - moment.elapsed()), usual_s=usual_s)
                if moment.elapsed() < self._look_s and heap[0][0] - moment.now() > timedelta(milliseconds=1):
                    return 0.0
                continue
            due = _take(heap, moment.now())
            await self._fire(due, heap, retried, moment)
        return 0.0 if full else max(self.config.look_s - moment.elapsed(), 0.0)

    @property
    def _look_s(self) -> float:
        """How long a look is good for: longer while nobody tells of jobs that have changed."""
        return self.quietly(self.config.look_s)

    def _notice(self, placed: int) -> None:
        """Tell placement when jobs came or went."""
        if placed != self._placed:
            self._placed = placed
            self.signals.jobs_changed.emit()

    def _turn_at(self, it: Pending) -> datetime:
        """When a job is to be fired here: at its instant, or so much later if it is another's turn."""
        mine = self.ownership is None or self.ownership.owns(it.job_id, it.next_fire_at)
        return it.next_fire_at if mine else it.next_fire_at + self._overdue

    async def _fire(self, job_ids: Sequence[int], heap: list[Due], retried: set[int], moment: StoreTime) -> None:
        """Fire in batches, some at a time. Jobs that a batch left out come again soon: at once if it had too much to
        do, once more if somebody else held them."""
        limit = asyncio.Semaphore(self.config.batches_at_once)

        async def batch(ids: Sequence[int]) -> Moved:
            async with limit:
                return await self._fire_batch(ids)

        batches = list(_batches(job_ids, self.config.batch_max))
        if len(batches) > 1:  # else each would hold the counter until it commits, and the others would wait for it
            await self.store.reserve_rows(ROWS_OF_A_RUN * len(job_ids))
        for ids, moved in zip(batches, await asyncio.gather(*map(batch, batches)), strict=True):
            for job_id, next_fire_at in moved.items():
                if next_fire_at is not None:
                    due = Pending(job_id=job_id, next_fire_at=next_fire_at)
                    heapq.heappush(heap, (self._turn_at(due), job_id))
            left = {job_id for job_id in ids if job_id not in moved and not self._is_held(job_id)}
            for job_id in left if moved else left - retried:
                heapq.heappush(heap, (moment.now() + timedelta(seconds=RETRY_S), job_id))
            retried |= left

    async def _fire_batch(self, ids: Sequence[int]) -> Moved:
        """Fire one batch; says when each job that was decided on is due next. One that cannot be decided on is found by
        halving, and held back, so that it does not hold up the others."""
        try:
            done = await self.store.transact(fire, ids, Fire())
        except StoreUnavailable:
            raise
        except Exception as fault:  # noqa: BLE001 - whatever is wrong with one job, the others must fire
            if len(ids) == 1:
                self._hold_back(ids[0], fault)
                return {}
            half = len(ids) // 2
            return {**await self._fire_batch(ids[:half]), **await self._fire_batch(ids[half:])}
        for job_id in done.unread:
            self._leave_to_others(job_id)
        self._count(done)
        self.signals.fired.emit(done)
        return {change.now.id: change.now.next_fire_at for change in done.plan.jobs}

    def _count(self, done: Committed) -> None:
        for run in done.runs:
            if run.state is not RunState.SKIPPED:
                self.fired += 1
            elif run.reason is SkipReason.MISFIRE:
                self.missed += run.slots
            else:
                self.skipped += run.slots

    def _hold_back(self, job_id: int, fault: Exception) -> None:
        self._held[job_id] = self.clock.monotonic() + HOLD_S
        reason = f"{type(fault).__name__}: {fault}"
        log.error("job.held_back", job_id=job_id, again_in_s=HOLD_S, reason=reason)

    def _leave_to_others(self, job_id: int) -> None:
        """This release cannot read the job. It is told of once; a node that can read it fires it, overdue or not."""
        if job_id not in self._held:
            log.error("job.unreadable", job_id=job_id)
        self._held[job_id] = self.clock.monotonic() + HOLD_S

    def _is_held(self, job_id: int) -> bool:
        return self._held.get(job_id, 0.0) > self.clock.monotonic()


def _take(heap: list[Due], now: datetime) -> list[int]:
    due = []
    while heap and heap[0][0] <= now:
        due.append(heapq.heappop(heap)[1])
    return due


def _batches(job_ids: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(job_ids), size):
        yield job_ids[start : start + size]
