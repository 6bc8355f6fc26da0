"""A store that fails over under firing and dispatch load: what is done to it, what is measured, and who judges."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rota.errors import StoreError
from tests.checkers import executing
from tests.checkers.executing import START
from tests.checkers.firing import quantiles
from tests.checkers.starts import Starts, first_starts
from tests.cluster.rig import Outcome, Rig, Scene

TENANT, CAP = "acme", 4
NAPS_MS = (300, 5000)
"""Some end while a store is away, some go on."""
WAITING = 3 * CAP
"""So many items wait at most: the cap is reached all the time, and yet all have their turn soon."""
RECOVERED_S = 30.0
"""From when a server takes writes again, or a member is gone, until nodes fire and start: on a busy machine."""
CALM_S = 4.0
_QUOTA = f"quota:{TENANT}/default"

Deed = Callable[[], Awaitable[None]]


def scene(seconds: float) -> Scene:
    return Scene(seconds=seconds, seed=1, skew_s=0, jobs=12, herd=0, changers=0, direct=True, execute=True)


class Kept(NamedTuple):
    """What a store has: runs, and ends of attempts (item, attempt)."""

    runs: frozenset[int]
    ends: frozenset[tuple[int, int]]

    def without(self, other: Kept) -> Kept:
        return Kept(self.runs - other.runs, self.ends - other.ends)

    @classmethod
    async def of(cls, rig: Rig) -> Kept:
        runs = await rig.witness.ask("SELECT id FROM rota_run")
        ends = await rig.witness.ask("SELECT item_id, attempt FROM rota_attempt")
        return cls(frozenset(it for (it,) in runs), frozenset((item, attempt) for item, attempt in ends))


@dataclass(slots=True)
class Named:
    """What nodes and clients said that the store has lost (`store.lost`)."""

    runs: set[int] = field(default_factory=set)
    ends: set[tuple[int, int]] = field(default_factory=set)
    begun: set[tuple[int, int]] = field(default_factory=set)

    @classmethod
    async def of(cls, rig: Rig) -> Named:
        named = cls()
        for (text,) in await rig.witness.ask("SELECT data FROM rota_event WHERE kind = 'store.lost'"):
            data: dict[str, Any] = json.loads(text)
            named.runs |= set(data.get("runs", ()))
            named.ends |= {_attempt(it) for it in data.get("ends", ())}
            named.begun |= {_attempt(it) for it in data.get("begun", ())}
        return named

    def lacks(self, lost: Kept) -> Kept:
        return lost.without(Kept(frozenset(self.runs), frozenset(self.ends)))

    def __str__(self) -> str:
        return f"named runs={len(self.runs)} ends={len(self.ends)} begun={len(self.begun)}"


@dataclass(slots=True)
class Report:
    """What came of it."""

    name: str
    seconds: float
    outcome: Outcome
    fired_s: list[float]
    started_s: list[float]
    assigned: Starts
    execution: executing.Verdict
    at_cap: float
    """The share of the time in which the cap was reached."""
    lost: list[Kept]
    named: Named

    def told(self) -> None:
        """Print it in one line, and say whether it is good."""
        print(f"\n{self}")
        verdicts = (self.outcome.verdict, self.outcome.starts, self.outcome.execution, self.assigned, self.execution)
        assert all(it is None or it.clean for it in verdicts), f"{self.outcome.evidence()}\n{verdicts}"
        assert not self.outcome.missed.wrong
        assert not self.outcome.problems
        assert self.outcome.verdict.slots > 30, "void: hardly anything was due"
        assert self.at_cap > 0, "void: the cap was never reached"
        assert max(self.fired_s + self.started_s) <= RECOVERED_S

    def __str__(self) -> str:
        kinds = {**self.outcome.verdict.kinds, "over_cap": len(self.execution.caps), **self.assigned.kinds}
        kinds["two_nodes"] = len(self.execution.two_nodes)
        counted = " ".join(f"{kind}={count}" for kind, count in kinds.items())
        runs, ends = (sum(map(len, its)) for its in zip(*self.lost, strict=True)) if self.lost else (0, 0)
        took = f"firing {_spread(self.fired_s)}, starting {_spread(self.started_s)}"
        return (
            f"fail-over {self.name}: {self.seconds:g} s, n={len(self.fired_s)} recovered {took}; "
            f"slots={self.outcome.verdict.slots} assigned={self.assigned.owed} "
            f"{counted}; at cap {self.at_cap:.0%}; the database lost runs={runs} ends={ends}, {self.named}"
        )


@dataclass(slots=True)
class Load:
    """Items that are assigned all the time; an answer that is lost is asked for again under the same key."""

    rig: Rig
    runs: dict[str, int] = field(default_factory=dict)
    """The run of every number whose assignment was acknowledged."""
    is_over: bool = False

    async def run(self) -> None:
        while not self.is_over:
            if await self._waiting() < WAITING:
                await self._assign()
            await asyncio.sleep(0.1)
        while not await self._assign():  # a client names what was lost of its own with the first that it does again
            await asyncio.sleep(0.1)

    async def _assign(self) -> bool:
        """Returns whether it was acknowledged."""
        numbers = [f"load-{len(self.runs) + n}" for n in range(len(NAPS_MS))]
        infos = [{"tenant": TENANT, "quota": "default", "ms": ms} for ms in NAPS_MS]
        with suppress(StoreError):
            done = await self.rig.control.assignments.assign(
                TENANT, numbers, infos, handler="nap", app="default/default", key=numbers[0], lost_max=100
            )
            self.runs |= dict.fromkeys(numbers, done.id)
            return True
        return False

    async def _waiting(self) -> int:
        query = f"SELECT count(*) FROM rota_item WHERE tenant = '{TENANT}' AND ended_at IS NULL"
        return int((await self.rig.witness.ask(query))[0][0])

    async def judged(self, named: Named) -> Starts:
        """Every number that was acknowledged is there once, or was named as lost; each item began once, or again after
        an attempt that is on record as lost."""
        query = f"SELECT count(*) FROM rota_item WHERE tenant = '{TENANT}' AND state <> 'succeeded'"
        async with asyncio.timeout(90):
            while (await self.rig.witness.ask(query))[0][0]:
                await asyncio.sleep(0.2)
        rows = await self.rig.witness.ask(f"SELECT number, id FROM rota_item WHERE tenant = '{TENANT}'")
        items = {str(number): int(item) for number, item in rows}
        assert len(rows) == len(items), "a number was assigned twice"
        gone = {number for number, run in self.runs.items() if number not in items and run not in named.runs}
        assert not gone, f"assigned items are gone, and nobody said so: {sorted(gone)[:10]}"
        lines = [it._replace(run=it.item) for it in self.rig.watcher.lines if it.tenant == TENANT]
        lines = [it for it in lines if it.item in items.values()]
        bad = await self.rig.witness.ask("SELECT item_id, attempt FROM rota_attempt WHERE outcome <> 'succeeded'")
        return first_starts(list(items.values()), (), lines, {*bad, *self.rig.lost_attempts})


async def recovered_s(rig: Rig) -> tuple[float, float]:
    """How long it takes from now until nodes have fired something new, and until they have started something."""
    began, since_ns = time.monotonic(), time.monotonic_ns()
    since = await rig.witness.now()
    fired = f"SELECT count(*) FROM rota_run WHERE cause = 'slot' AND created_at > {since}"

    async def has_fired() -> bool:
        return bool((await rig.witness.ask(fired))[0][0])

    async def has_started() -> bool:
        lines = rig.watcher.lines[-100:]
        return any(it.kind == START and it.mono_ns > since_ns and it.tenant == TENANT for it in lines)

    async def took_s(has: Callable[[], Awaitable[bool]]) -> float:
        async with asyncio.timeout(2 * RECOVERED_S):
            while not await has():
                await asyncio.sleep(0.05)
        return time.monotonic() - began

    firing, starting = await asyncio.gather(took_s(has_fired), took_s(has_started))
    return firing, starting


async def under_failover(
    name: str, rig: Rig, fail_over: Deed, *, seconds: float, every_s: float, lost: list[Kept], mend: Deed | None = None
) -> Report:
    """Let servers fail every so often, then calm; judge all of it. `lost` is what `fail_over` saw the database lose."""
    await rig.control.limits.set_quota(TENANT, cap=CAP)
    await rig.start_nodes()
    await rig.define()
    await all_joined(rig)
    load, began_ns = Load(rig), time.monotonic_ns()
    took: list[tuple[float, float]] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(load.run())
        await full(rig)
        until = time.monotonic() + seconds
        await asyncio.sleep(every_s / 2)
        while not took or time.monotonic() + every_s < until:
            await fail_over()
            took.append(await recovered_s(rig))
            await asyncio.sleep(every_s)
            if mend is not None and time.monotonic() + every_s < until:
                await mend()
        load.is_over = True
    ended_ns = time.monotonic_ns()
    named = await all_named(rig, lost)
    rig.lost_runs, rig.lost_attempts = named.runs, named.ends | named.begun | _late(rig)
    await asyncio.sleep(CALM_S)
    outcome, assigned = await rig.judged(), await load.judged(named)
    lines, gone, until_ns = rig.watcher.lines, list(rig.watcher.gone), time.monotonic_ns()
    intervals = [it for it in executing.intervals(lines, gone, until_ns) if it.tenant == TENANT]
    return Report(
        name=name,
        seconds=seconds,
        outcome=outcome,
        fired_s=[it for it, _ in took],
        started_s=[it for _, it in took],
        assigned=assigned,
        execution=executing.judge(lines, gone, until_ns, {_QUOTA: CAP}),
        at_cap=executing.share_at(intervals, CAP, began_ns, ended_ns),
        lost=lost,
        named=named,
    )


async def all_joined(rig: Rig) -> None:
    async with asyncio.timeout(30):
        while not all(" node.joined" in node.log for node in rig.nodes):
            await asyncio.sleep(0.05)


async def full(rig: Rig) -> None:
    """Wait until the cap is reached."""
    async with asyncio.timeout(60):
        while sum(it.tenant == TENANT for it in rig.watcher.executing().values()) < CAP:
            await asyncio.sleep(0.05)


async def all_named(rig: Rig, lost: Collection[Kept]) -> Named:
    """Wait until everything that the database lost is named; and nothing may be that it has."""
    give_up = time.monotonic() + 30
    named = await Named.of(rig)
    while unnamed := [it for it in map(named.lacks, lost) if any(it)]:
        assert time.monotonic() < give_up, f"lost by the database, and named by nobody: {unnamed}"
        await asyncio.sleep(0.2)
        named = await Named.of(rig)
    assert not named.runs & (await Kept.of(rig)).runs, "named as lost, and still there"
    return named


def _late(rig: Rig) -> set[tuple[int, int]]:
    """Attempts that ended while the store was away, and that it does not know any more: their nodes said so."""
    named = [line for node in rig.nodes for line in node.log.splitlines() if "attempt.end_refused" in line]
    items = {int(it) for line in named for it in re.findall(r"\d+", line.partition("items=")[2].partition("]")[0])}
    return {(it.item, it.attempt) for it in rig.watcher.lines if it.item in items}


def _attempt(text: str) -> tuple[int, int]:
    item, _, attempt = text.partition(".")
    return int(item), int(attempt)


def _spread(values: list[float]) -> str:
    return " ".join(f"{key}={value:.2f}s" for key, value in quantiles(values).items())
