"""Offer items: assignments of many tenants with deadlines in random order, as fast as they are taken or at a pace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from rota.model.job import JobName, handler_name
from rota.model.value import Value
from rota.model.work import ASSIGN_MAX, GLOBAL, Assignment, Limit, NewTask, Work, quota_limit
from rota.ports import Clock, Store
from rota.transactions.assign import assign

NOOP = JobName("default", "bench", "noop")
STAMP = JobName("default", "bench", "stamp")
INFO = "x" * 118
"""120 bytes as JSON."""
LATEST_S = 600.0
CALLS_AT_ONCE = 2
PACED_AT_ONCE = 4


class BenchTenants(Value, frozen=True, kw_only=True):
    """The tenants and what they may use. With `skew_cap`, half of all items are the first tenant's, under that cap."""

    tenants: int
    capacity: int
    cap: int
    skew_cap: int | None
    concurrency: int
    batch: int

    @property
    def names(self) -> list[str]:
        return [f"bench-{number}" for number in range(1, self.tenants + 1)]

    @property
    def quotas(self) -> dict[str, int]:
        """The cap of each quota, by the name of its limit."""
        caps = {quota_limit(name, "default"): self.cap for name in self.names}
        if self.skew_cap is not None:
            caps[quota_limit(self.names[0], "default")] = self.skew_cap
        return caps

    @property
    def caps(self) -> dict[str, int]:
        return {GLOBAL: self.capacity, **self.quotas}

    @property
    def limits(self) -> list[Limit]:
        return [Limit(name=name, cap=cap) for name, cap in self.caps.items()]


class Offer:
    """Assigns items of a crowd to a store, and remembers the runs that came of it."""

    def __init__(self, store: Store, clock: Clock, crowd: BenchTenants) -> None:
        self._store = store
        self._clock = clock
        self._crowd = crowd
        self._prefix = clock.token()[:8]
        self._made = 0
        self.run_ids: list[int] = []

    async def at_once(self, items: int, progress: Callable[[int], None] = lambda done: None) -> None:
        """All of them, as fast as the store takes them."""
        calls = self._calls(items, await self._store.now())
        done = 0

        async def caller() -> None:
            nonlocal done
            for wanted in calls:
                await self._assign(wanted)
                done += len(wanted.tasks)
                progress(done)

        await asyncio.gather(*(caller() for _ in range(CALLS_AT_ONCE)))

    async def paced(self, per_s: int, seconds: float, every_s: float = 0.01) -> float:
        """So many a second in many small calls, a few at a time; says how many a second it became."""
        now, began_s = await self._store.now(), self._clock.monotonic()
        size, calls = max(round(per_s * every_s), 1), round(seconds / every_s)
        numbers = iter(range(calls))

        async def caller() -> None:
            for number in numbers:
                await self._clock.sleep(max(began_s + number * every_s - self._clock.monotonic(), 0.0))
                await self._assign(self._assignment(STAMP, self._tenant(number), size, now))

        await asyncio.gather(*(caller() for _ in range(PACED_AT_ONCE)))
        return size * calls / (self._clock.monotonic() - began_s)

    async def to_each(self, task: JobName) -> None:
        """As many items to each tenant as it may have at a time."""
        now = await self._store.now()
        for name, cap in zip(self._crowd.names, self._crowd.quotas.values(), strict=True):
            for start in range(0, cap, ASSIGN_MAX):
                await self._assign(self._assignment(task, name, min(cap - start, ASSIGN_MAX), now))

    async def one(self) -> None:
        await self._assign(self._assignment(STAMP, self._tenant(self._made), 1, await self._store.now()))

    def _calls(self, items: int, now: datetime) -> Iterator[Assignment]:
        made = number = 0
        while made < items:
            size = min(self._crowd.batch, items - made)
            yield self._assignment(NOOP, self._tenant(number), size, now)
            made, number = made + size, number + 1

    def _tenant(self, number: int) -> str:
        """Each in turn; with a skew every second call is the first one's."""
        names = self._crowd.names
        if self._crowd.skew_cap is None or len(names) == 1:
            return names[number % len(names)]
        return names[0] if number % 2 else names[1 + (number // 2) % (len(names) - 1)]

    def _assignment(self, task: JobName, tenant: str, size: int, now: datetime) -> Assignment:
        first = self._made
        self._made += size
        work = Work(tenant=tenant, handler=handler_name(task), concurrency=self._crowd.concurrency)
        return Assignment(
            key=f"{self._prefix}-{first}",
            work=work,
            tasks=tuple(NewTask(number=f"{self._prefix}-{n:09}", info=INFO) for n in range(first, first + size)),
            end_at=now + timedelta(seconds=60 + LATEST_S * self._clock.chance()),
        )

    async def _assign(self, wanted: Assignment) -> None:
        run = await assign(self._store, wanted)
        self.run_ids.append(run.id)
