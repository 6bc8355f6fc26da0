"""How fast is a cluster: items assigned, dispatched under caps, executed by real nodes, finished; each state durable.

    refuse a store in use ─> look at the machine ─> make history ─> set limits ─> throughput ─> latency
        ─> starts on an idle cluster ─> the ceiling ─> clean

Throughput and latency have nodes of their own, so that what the first ones say about themselves is about one phase.
The ceiling is measured in the same database, when the nodes are gone.
"""

from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import make_url

from rota.bench import judge
from rota.bench.fleet import FleetPlan
from rota.bench.history import top_up
from rota.bench.offer import NOOP, STAMP, Offer
from rota.bench.phases import DispatchWish, Phases, Progress
from rota.bench.plain import connect
from rota.bench.raw import raw_rate
from rota.control import Control
from rota.control.jobs import Action
from rota.errors import Refused
from rota.execution.machine_load import WINDOW_S, MachineLoad
from rota.model.moment import micros
from rota.model.plan import JobFilter
from rota.model.value import Value
from rota.model.work import CAPACITY, GLOBAL, Limit
from rota.ports import Clock, Store
from rota.transactions.limits import set_limits

LOOP = 1_000_000
SLEEPS, SLEEP_S = 200, 0.005
BUSY_MAX = 0.10
LATE_MS_MAX = 5.0


class Calibration(Value, frozen=True, kw_only=True):
    """How quick and how quiet the machine is while nothing is measured: a figure from a busy machine is void."""

    loop_ms: float
    """How long a plain loop of a million steps takes."""
    sleep_late_ms: float
    """How late one of a hundred sleeps of 5 ms ends."""
    busy: float
    """The share of its processors that others use."""

    @property
    def void(self) -> str:
        """Why figures from this machine mean nothing; empty if they do."""
        if self.busy > BUSY_MAX:
            return f"others use {self.busy:.0%} of the processors"
        if self.sleep_late_ms > LATE_MS_MAX:
            return f"a sleep ends {self.sleep_late_ms:g} ms late"
        return ""


class DispatchFigures(Value, frozen=True, kw_only=True):
    """What was measured, and with what. No value: it was not measured, or cannot be."""

    store: str
    void: str
    """Why these figures mean nothing; empty if they do."""
    calibration: Calibration
    history: int
    """How many ended items the store had before."""
    items: int
    tenants: int
    nodes: int
    seats: int
    capacity: int
    cap: int
    skew_cap: int | None
    batch: int
    concurrency: int
    items_per_s: float
    raw_items_per_s: float
    ratio: float
    queries_per_item: float | None
    lost: int
    doubled: int
    over_cap: int
    skewed_at_cap: float | None
    offered_per_s: float | None
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    latency_max_ms: float | None
    idle_start_p50_ms: float | None
    idle_start_p99_ms: float | None
    idle_start_max_ms: float | None


async def measure(store: Store, url: str, clock: Clock, wish: DispatchWish, progress: Progress) -> DispatchFigures:
    """Measure it all, and remove what that left in the store."""
    url = _whole(url)
    await _refuse_used(store)
    gc.collect()
    gc.freeze()  # as a node does: else pauses of this process would be measured too
    offer = Offer(store, clock, wish.crowd)
    calibration = await calibrate(clock)
    conn = await connect(url)
    try:
        history = await top_up(conn, wish.history, micros(await store.now()), progress)
        await store.transact(set_limits, wish.crowd.limits)
        with tempfile.TemporaryDirectory(prefix="rota-bench-") as folder:
            plan = FleetPlan(url=url, nodes=wish.nodes, seats=wish.seats, folder=folder)
            phases = Phases(store, clock, plan, conn, offer, wish, progress)
            found = {"history": history, **await phases.throughput(), **await phases.latency()}
        found["raw_items_per_s"] = await raw_rate(url, clock, phases.sample, wish.items, progress)
    finally:
        await judge.clear(conn, offer.run_ids)
        await conn.close()
        await store.transact(set_limits, [Limit(name=GLOBAL, cap=CAPACITY)], removed=list(wish.crowd.quotas))
        made = [Action(job.definition.full_name, "delete") for job in await store.named([NOOP, STAMP])]
        await Control(store, clock).jobs.prune(made)  # not by hand: the next benchmark makes them again
    return _figures(url, wish, found | {"void": calibration.void, "calibration": calibration})


def _whole(url: str) -> str:
    """The same store from any folder."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite" or parsed.database is None:
        return url
    return parsed.set(database=str(Path(parsed.database).absolute())).render_as_string(hide_password=False)


async def _refuse_used(store: Store) -> None:
    """What else happens in a store would be measured too."""
    found = []
    if await store.statistics():
        found.append("unfinished items")
    if (await store.nodes()).nodes:
        found.append("nodes at work")
    if any(job.next_fire_at is not None for job in await store.jobs(JobFilter(limit=1_000_000))):
        found.append("jobs that fire by themselves")
    if found:
        raise Refused(f"this store has {' and '.join(found)}; a benchmark needs a store of its own")


def _figures(url: str, wish: DispatchWish, found: dict[str, Any]) -> DispatchFigures:
    crowd = msgspec.structs.asdict(wish.crowd)
    return DispatchFigures(
        store=make_url(url).get_backend_name(),
        items=wish.items,
        nodes=wish.nodes,
        seats=wish.seats,
        ratio=round(found["items_per_s"] / found["raw_items_per_s"], 3),
        **crowd,
        **found,
    )


async def calibrate(clock: Clock) -> Calibration:
    """Look at the machine for two seconds, before anything is started."""
    load = MachineLoad(clock.monotonic)
    await clock.sleep(WINDOW_S)
    busy = load.cpu()
    late_ms = sorted([await _late_ms(clock) for _ in range(SLEEPS)])
    began_s = clock.monotonic()
    for _ in range(LOOP):
        pass
    return Calibration(
        loop_ms=round((clock.monotonic() - began_s) * 1000, 1),
        sleep_late_ms=round(late_ms[SLEEPS * 99 // 100], 2),
        busy=round(busy, 3),
    )


async def _late_ms(clock: Clock) -> float:
    began_s = clock.monotonic()
    await clock.sleep(SLEEP_S)
    return (clock.monotonic() - began_s - SLEEP_S) * 1000
