"""The scheduler loop in virtual time, over the memory store with faults at its port (P1, P2, P12)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from rota.config import SchedulerConfig
from rota.core.define import Apply
from rota.errors import CommitUnknown, StoreUnavailable
from rota.loops.scheduler import Scheduler
from rota.model.job import Definition, Misfire, MisfirePolicy, Overlap, OverlapPolicy
from rota.model.plan import Committed, RunFilter, Upcoming
from rota.model.run import Run
from rota.model.trigger import Every
from rota.sim.loop import EPOCH, SimClock, SimLoop, simulate
from rota.storage.memory import MemoryStore
from rota.transactions.change import change
from tests.factories import a_definition, allow, cron, put


class Unreliable:
    """A store seen through a bad network: requests and replies are slow, get lost, or find nobody there."""

    def __init__(self, store: MemoryStore, clock: SimClock, *, fault: float) -> None:
        self._store = store
        self._clock = clock
        self._fault = fault
        self.queries = 0
        self.lost_replies = 0
        self.down = False

    async def upcoming(self, **wanted: Any) -> Upcoming:
        await self._request()
        seen = await self._store.upcoming(**wanted)
        await self._clock.sleep(self._clock.chance() * 0.02)
        return seen

    async def transact(self, work: Callable[..., Committed], /, *args: Any) -> Committed:
        await self._request()
        done = await self._store.transact(work, *args)
        await self._clock.sleep(self._clock.chance() * 0.02)
        if self._clock.chance() < self._fault:
            self.lost_replies += 1
            raise CommitUnknown("the reply was lost")
        return done

    async def _request(self) -> None:
        self.queries += 1
        await self._clock.sleep(self._clock.chance() * 0.02)
        if self.down or self._clock.chance() < self._fault:
            raise StoreUnavailable("nobody answers")


async def define(store: MemoryStore, definitions: Sequence[Definition]) -> None:
    await store.transact(change, [it.full_name for it in definitions], Apply(definitions=tuple(definitions)))


async def all_runs(store: MemoryStore) -> tuple[Run, ...]:
    return await store.runs(RunFilter(limit=10**9))


def slots_of(definition: Definition, until_s: float) -> set[float]:
    """The oracle: whole periods from the epoch, told apart from the product's arithmetic."""
    rule = definition.schedule.rule
    assert isinstance(rule, Every)
    start = EPOCH.timestamp()
    first = int(start // rule.every_s) + 1
    return {n * rule.every_s for n in range(first, int((start + until_s) // rule.every_s) + 1)}


def recorded(run: Run, definition: Definition) -> list[tuple[int, float]]:
    """The slots that a run stands for."""
    rule = definition.schedule.rule
    assert isinstance(rule, Every)
    assert run.slot_at is not None
    return [(run.job_id, run.slot_at.timestamp() + n * rule.every_s) for n in range(run.slots)]


async def three_nodes(
    loop: SimLoop, seed: int, *, fault: float, seconds: float
) -> tuple[list[Definition], list[Run], int]:
    """Three schedulers, one of them often cut off, all with wrong clocks; the last 20 s are calm."""
    truth = MemoryStore(SimClock(loop, seed, name="store"), actor="test")
    misfire = Misfire(policy=MisfirePolicy.SKIP, grace_s=1)
    periods = [Every(every_s=1 + n % 5) for n in range(20)]
    definitions = [a_definition(rule=rule, overlap=allow(10**6), misfire=misfire) for rule in periods]
    await define(truth, definitions)
    stores = [
        Unreliable(truth, SimClock(loop, seed, name=f"node {n}", skew_s=7 * (n - 1)), fault=fault) for n in range(3)
    ]
    nodes = [Scheduler(store, store._clock, SchedulerConfig()) for store in stores]  # type: ignore[arg-type]
    tasks = [asyncio.create_task(node.run()) for node in nodes]
    down, clock = stores[seed % 3], SimClock(loop, seed, name="nemesis")
    while loop.time() < seconds - 20:
        down.down = not down.down
        await clock.sleep(clock.chance() * 10)
    for store in stores:
        store.down, store._fault = False, 0
    await clock.sleep(seconds - loop.time())
    for node in nodes:
        node.stop()
    await asyncio.gather(*tasks)
    return definitions, list(await all_runs(truth)), sum(store.lost_replies for store in stores)


@pytest.mark.parametrize("seed", range(8))
def test_every_slot_has_one_row_however_bad_the_network_is(seed: int) -> None:
    definitions, runs, lost_replies = simulate(lambda loop: three_nodes(loop, seed, fault=0.1, seconds=200), seed=seed)
    assert lost_replies > 10, "void: the fault had no effect"
    expected = Counter((index + 1, slot) for index, it in enumerate(definitions) for slot in slots_of(it, 198))
    actual = Counter(slot for run in runs for slot in recorded(run, definitions[run.job_id - 1]))
    late = {key for key in actual if key[1] > EPOCH.timestamp() + 198}
    assert Counter({key: count for key, count in actual.items() if key not in late}) == expected
    assert all(run.created_at >= run.due_at for run in runs), "a run was early"


def test_the_same_seed_gives_the_same_history() -> None:
    def history() -> list[tuple[object, ...]]:
        _, runs, _ = simulate(lambda loop: three_nodes(loop, 5, fault=0.1, seconds=60), seed=5)
        return [(run.id, run.job_id, run.key, run.created_at, run.state) for run in runs]

    assert history() == history()


def test_without_faults_every_run_is_punctual() -> None:
    """P2, in the model: a slot waits for one round trip, not for the next look."""
    _, runs, _ = simulate(lambda loop: three_nodes(loop, 3, fault=0, seconds=60), seed=3)
    lateness = [run.created_at - run.due_at for run in runs if run.created_at > EPOCH + timedelta(seconds=25)]
    assert lateness
    assert max(lateness) < timedelta(seconds=0.2)


def test_an_idle_scheduler_asks_at_most_twice_a_second() -> None:
    async def main(loop: SimLoop) -> int:
        clock = SimClock(loop, 1)
        store = Unreliable(MemoryStore(clock, actor="test"), clock, fault=0)
        node = Scheduler(store, clock, SchedulerConfig())  # type: ignore[arg-type]
        task = asyncio.create_task(node.run())
        await clock.sleep(100)
        node.stop()
        await task
        return store.queries

    assert 90 <= simulate(main, seed=1) <= 200


def test_a_job_that_fires_many_times_a_second_does_not_wait_for_looks() -> None:
    async def main(loop: SimLoop) -> list[Run]:
        clock = SimClock(loop, 1)
        store = MemoryStore(clock, actor="test")
        await define(store, [a_definition(rule=Every(every_s=0.1), overlap=allow(10**6))])
        node = Scheduler(store, clock, SchedulerConfig())
        task = asyncio.create_task(node.run())
        await clock.sleep(20.05)
        node.stop()
        await task
        return list(await all_runs(store))

    runs = simulate(main, seed=1)
    assert len(runs) == 200
    assert max(run.created_at - run.due_at for run in runs[:-20]) < timedelta(seconds=0.05)


def test_a_wake_ends_the_rest() -> None:
    async def main(loop: SimLoop) -> list[Run]:
        clock = SimClock(loop, 1)
        store = MemoryStore(clock, actor="test")
        node = Scheduler(store, clock, SchedulerConfig(look_s=60))
        task = asyncio.create_task(node.run())
        await clock.sleep(10.5)
        await define(store, [a_definition(rule=Every(every_s=1), overlap=allow(10**6))])
        node.wake()
        await clock.sleep(5)
        node.stop()
        await task
        return list(await all_runs(store))

    assert len(simulate(main, seed=1)) == 5


async def run_for(loop: SimLoop, store: MemoryStore, seconds: float) -> tuple[Run, ...]:
    """Let one scheduler work for so long."""
    clock = SimClock(loop, 1, name="node")
    node = Scheduler(store, clock, SchedulerConfig())
    task = asyncio.create_task(node.run())
    await clock.sleep(seconds)
    node.stop()
    await task
    return await all_runs(store)


def test_a_job_that_cannot_be_decided_on_does_not_hold_up_the_others() -> None:
    """A zone that this node does not know, as in a cluster in which one node has newer data."""

    async def main(loop: SimLoop) -> tuple[Run, ...]:
        clock = SimClock(loop, 1)
        store = MemoryStore(clock, actor="test")
        healthy = [a_definition(rule=Every(every_s=1), overlap=allow(10**6)) for _ in range(20)]
        poison = a_definition("poison", rule=cron("* * * * *", zone="Moon/Tranquility"))
        await put(store, [poison], clock.wall() + timedelta(seconds=1))
        await define(store, healthy)
        return await run_for(loop, store, 10.5)

    fired = Counter(run.job_id for run in simulate(main, seed=1))
    assert fired == dict.fromkeys(range(2, 22), 10)


def test_jobs_that_replace_each_other_all_leave_their_rows() -> None:
    async def main(loop: SimLoop) -> tuple[Run, ...]:
        store = MemoryStore(SimClock(loop, 1), actor="test")
        overlap = Overlap(policy=OverlapPolicy.REPLACE, key="newest wins")
        await define(store, [a_definition(rule=Every(every_s=5), overlap=overlap) for _ in range(20)])
        return await run_for(loop, store, 60.5)

    fired = Counter(run.job_id for run in simulate(main, seed=1))
    assert fired == dict.fromkeys(range(1, 21), 12)


def test_a_backlog_of_many_jobs_is_settled_at_once_in_several_rounds() -> None:
    async def main(loop: SimLoop) -> tuple[Run, ...]:
        clock = SimClock(loop, 1)
        store = MemoryStore(clock, actor="test")
        jobs = [a_definition(rule=Every(every_s=1), overlap=allow(10**6), backlog_max=0) for _ in range(30)]
        await define(store, jobs)
        await clock.sleep(3000)
        return await run_for(loop, store, 2)

    runs = simulate(main, seed=1)
    slots: Counter[int] = Counter()
    for run in runs:
        slots[run.job_id] += run.slots
    assert all(count >= 3001 for count in slots.values())
    assert len(slots) == 30
