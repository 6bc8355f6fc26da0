"""How fast is a cluster: items assigned, dispatched under caps, executed by real nodes, finished; each state durable.

    refuse a store in use ─> look at the machine ─> make history ─> set limits ─> throughput ─> latency
        ─> starts on an idle cluster ─> the ceiling ─> clean

Throughput and latency have nodes of their own, so that what the first ones say about themselves is about one phase.
The ceiling is measured in the same database, when the nodes are gone.
"""

from __future__ import annotations

import gc
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Engine, event, make_url

from rota.bench import judge
from rota.bench.fleet import Fleet, FleetPlan
from rota.bench.judge import analyse, top_up
from rota.bench.offer import NOOP, STAMP, BenchTenants, Offer
from rota.bench.plain import ATTEMPT, ITEM, QUEUE, Plain, Progress, Sample, connect, raw_rate
from rota.control import Control
from rota.control.jobs import Action
from rota.errors import Refused
from rota.execution.machine_load import WINDOW_S, MachineLoad
from rota.model.moment import micros
from rota.model.plan import JobFilter
from rota.model.value import Value
from rota.model.work import CAPACITY, GLOBAL, Limit, quota_limit
from rota.ports import Clock, Store
from rota.transactions.limits import set_limits

LOOK_S = 0.25
PATIENCE_S = 60.0
PER_S = 1000
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


class DispatchWish(Value, frozen=True, kw_only=True):
    """What shall be measured."""

    items: int
    crowd: BenchTenants
    nodes: int
    seats: int
    seconds: float
    idle_starts: int
    history: int = 0


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
        await analyse(conn)
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


@dataclass
class Phases:
    """Measures one phase after the other, each with nodes of its own."""

    store: Store
    clock: Clock
    plan: FleetPlan
    conn: Plain
    offer: Offer
    wish: DispatchWish
    progress: Progress
    sample: Sample = field(init=False)

    async def throughput(self) -> dict[str, Any]:
        wish, clock = self.wish, self.clock
        with _counted() as sent:
            ready = await self._warm_up_offer()
            async with Fleet(self.plan, self.store, clock) as fleet:
                await self._drained(fleet, "warming up", self._warm)
                self.sample = await self._sampled(ready)
                before, began_s = len(self.offer.run_ids), clock.monotonic()
                await self.offer.at_once(wish.items, lambda done: self.progress("assigning", done, wish.items))
                await self._drained(fleet, "executing", wish.items)
                took_s = clock.monotonic() - began_s
                by_nodes = await fleet.stop()
        made = await judge.attempts(self.conn, self.offer.run_ids[before:])
        all_sent = None if by_nodes is None else by_nodes + sent["statements"]
        return {
            "items_per_s": round(wish.items / took_s, 1),
            "queries_per_item": None if all_sent is None else round(all_sent / (wish.items + self._warm), 3),
            **_judged(made, wish),
        }

    async def latency(self) -> dict[str, Any]:
        wish = self.wish
        if not wish.seconds and not wish.idle_starts:
            return _starts("latency", []) | _starts("idle_start", []) | {"offered_per_s": None}
        async with Fleet(self.plan, self.store, self.clock) as fleet:
            await self.offer.to_each(STAMP)
            await self._drained(fleet, "warming up", self._warm)
            first = len(self.offer.run_ids)
            self.progress("paced", 0, 1)
            paced = await self.offer.paced(PER_S, wish.seconds) if wish.seconds else None
            await self._drained(fleet, "paced", 1)
            second = len(self.offer.run_ids)
            for number in range(wish.idle_starts):
                await self.clock.sleep(0.5 + self.clock.chance())
                await self.offer.one()
                self.progress("single starts", number + 1, wish.idle_starts)
            await self._drained(fleet, "single starts", 1)
        loaded = await judge.attempts(self.conn, self.offer.run_ids[first:second])
        idle = await judge.attempts(self.conn, self.offer.run_ids[second:])
        return (
            _starts("latency", judge.begun_after_ms(loaded))
            | _starts("idle_start", judge.begun_after_ms(idle))
            | {"offered_per_s": None if paced is None else round(paced, 1)}
        )

    @property
    def _warm(self) -> int:
        """Enough to start every worker: as many as each tenant may have at a time."""
        return sum(self.wish.crowd.quotas.values())

    async def _warm_up_offer(self) -> dict[str, dict[str, Any]]:
        """Assign what warms the nodes up; shows the rows of one item while it is ready."""
        await self.offer.to_each(NOOP)
        queue = (await self.conn.records(f"SELECT * FROM {QUEUE} ORDER BY item_id LIMIT 1"))[0]  # noqa: S608 - no input in it
        item = (await self.conn.records(f"SELECT * FROM {ITEM} WHERE id = {queue['item_id']}"))[0]  # noqa: S608 - no input in it
        return {"item": item, "queue": queue}

    async def _sampled(self, ready: dict[str, dict[str, Any]]) -> Sample:
        id_ = ready["item"]["id"]
        ended = await self.conn.records(f"SELECT * FROM {ITEM} WHERE id = {id_}")  # noqa: S608 - no input in it
        attempt = await self.conn.records(f"SELECT * FROM {ATTEMPT} WHERE item_id = {id_}")  # noqa: S608 - no input in it
        return Sample(**ready, ended=ended[0], attempt=attempt[0])

    async def _drained(self, fleet: Fleet, what: str, items: int) -> None:
        """Wait until nothing waits any more. Gives up when nothing has moved for a while: then items are lost."""
        left, moved_s = await judge.waiting(self.conn), self.clock.monotonic()
        while left:
            fleet.check()
            now_s = self.clock.monotonic()
            if now_s - moved_s > PATIENCE_S:
                return
            self.progress(what, max(items - left, 0), items)
            await self.clock.sleep(LOOK_S if left > items / 10 else LOOK_S / 25)
            before, left = left, await judge.waiting(self.conn)
            if left != before:
                moved_s = self.clock.monotonic()
        self.progress(what, items, items)


@contextmanager
def _counted() -> Iterator[Counter[str]]:
    sent: Counter[str] = Counter()

    def note(*_: object) -> None:
        sent["statements"] += 1

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def _judged(made: list[judge.Made], wish: DispatchWish) -> dict[str, Any]:
    crowd = wish.crowd
    skewed = quota_limit(crowd.names[0], "default")
    at_cap = None if crowd.skew_cap is None else round(judge.share_at_cap(made, skewed, crowd.skew_cap), 3)
    return {
        "lost": judge.lost(made, wish.items),
        "doubled": judge.doubled(made),
        "over_cap": max(judge.over_caps(made, crowd.caps), 0),
        "skewed_at_cap": at_cap,
    }


def _starts(name: str, ranked: list[float]) -> dict[str, float | None]:
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {f"{name}_{word}_ms": judge.at_share(ranked, share) for word, share in shares.items()}


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
