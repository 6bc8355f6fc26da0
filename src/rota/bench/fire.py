"""How late is a herd: many cron jobs that are all due in the same second, fired by one node.

Lateness counts until the commit of a run was acknowledged, by the store's clock.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

from rota.bench.plain import Progress
from rota.config import SchedulerConfig
from rota.control import Control
from rota.core.advance import Advance
from rota.errors import Refused
from rota.loops.scheduler import Scheduler
from rota.loops.signals import Signals
from rota.model.job import Definition, Task
from rota.model.plan import Committed, JobFilter, RunFilter
from rota.model.run import Run
from rota.model.trigger import Cron, Schedule
from rota.model.value import Value
from rota.ports import Clock, Store
from rota.transactions.cancel import cancel

PROJECT = "bench"
CHUNK = 1000


class FireFigures(Value, frozen=True, kw_only=True):
    """What a herd measured."""

    jobs: int
    lateness_p50_s: float
    lateness_p99_s: float
    lateness_max_s: float
    lost: int
    doubled: int


async def fire_herd(
    store: Store, clock: Clock, jobs: int, progress: Progress, *, patience_s: float = 60.0
) -> FireFigures:
    """Make the jobs, let one scheduler fire them, count and clean up."""
    control = Control(store, clock)
    if await store.jobs(JobFilter(limit=1)):
        raise Refused("this store has jobs: a benchmark needs a store of its own, for example sqlite:///bench.db")
    slot_at = (await store.now()).replace(microsecond=0) + timedelta(seconds=5 + jobs // 500)  # time to make them first
    definitions = list(_herd(jobs, slot_at, clock.token()[:8]))
    for start in range(0, jobs, CHUNK):
        await control.jobs.apply(definitions[start : start + CHUNK])
        progress("making jobs", min(start + CHUNK, jobs), jobs)
    if await store.now() >= slot_at:
        raise Refused("this store is too slow to make so many jobs before they are due; try fewer")
    lateness = await _fire(store, clock, jobs, slot_at, progress, patience_s)
    runs = await _runs_of(store, slot_at)
    lost, doubled = await _judge(store, definitions, runs)
    for start in range(0, len(runs), CHUNK):  # their items wait for an executor, and would wait for ever
        await store.transact(cancel, [run.id for run in runs[start : start + CHUNK]], rule=Advance())
        progress("cleaning up", min(start + CHUNK, len(runs)), len(runs))
    await control.jobs.delete([it.full_name for it in definitions])
    return _figures(jobs, lateness, lost, doubled)


def _herd(jobs: int, slot_at: datetime, batch: str) -> Iterator[Definition]:
    rule = Cron(expression=f"{slot_at.second} {slot_at.minute} {slot_at.hour} * * *")
    for number in range(jobs):
        yield Definition(
            project=PROJECT,
            name=f"herd-{batch}-{number}",
            schedule=Schedule(rule=rule),
            tasks=(Task(name="main", runner="shell", config={"argv": ["true"]}),),
        )


async def _fire(
    store: Store, clock: Clock, jobs: int, slot_at: datetime, progress: Progress, patience_s: float
) -> list[float]:
    lateness: list[float] = []
    read, since = await store.now(), clock.monotonic()
    all_fired = asyncio.Event()

    def note(done: Committed) -> None:
        now = read + timedelta(seconds=clock.monotonic() - since)
        fired = [run for run in done.runs if run.slot_at == slot_at]
        lateness.extend([(now - slot_at).total_seconds()] * len(fired))
        progress("firing", len(lateness), jobs)
        if len(lateness) >= jobs:
            all_fired.set()

    signals = Signals()
    signals.fired.on(note)
    scheduler = Scheduler(store, clock, SchedulerConfig(), signals=signals)
    gc.collect()
    gc.freeze()  # as a node does when it starts: a collection would walk all jobs that were made here
    task = asyncio.create_task(scheduler.run())
    try:
        async with asyncio.timeout((slot_at - read).total_seconds() + patience_s):
            await all_fired.wait()
    except TimeoutError:
        pass  # what did not fire is counted as lost
    scheduler.stop()
    await task
    gc.unfreeze()
    return lateness


async def _runs_of(store: Store, slot_at: datetime) -> list[Run]:
    found: list[Run] = []
    before_id: int | None = None
    while page := await store.runs(RunFilter(before_id=before_id, limit=CHUNK)):
        found += [run for run in page if run.slot_at == slot_at]
        before_id = page[-1].id
        if page[-1].created_at < slot_at:
            break  # the rest is older
    return found


async def _judge(store: Store, definitions: list[Definition], runs: list[Run]) -> tuple[int, int]:
    """Count from the store's rows, not from what the scheduler said."""
    found = await store.named([it.full_name for it in definitions])
    fired = Counter(run.job_id for run in runs)
    times = [fired[job.id] for job in found]
    return len(definitions) - sum(count >= 1 for count in times), sum(count > 1 for count in times)


def _figures(jobs: int, lateness: list[float], lost: int, doubled: int) -> FireFigures:
    ranked = sorted(lateness) or [float("nan")]

    def at(share: float) -> float:
        return round(ranked[min(int(len(ranked) * share), len(ranked) - 1)], 4)

    return FireFigures(
        jobs=jobs, lateness_p50_s=at(0.5), lateness_p99_s=at(0.99), lateness_max_s=at(1), lost=lost, doubled=doubled
    )
