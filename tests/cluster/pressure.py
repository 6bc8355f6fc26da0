"""Six tenants who want three times what the caps allow, on two executors of which one is killed and restarted."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from tests.checkers import order
from tests.checkers.executing import START, Verdict, share_at
from tests.checkers.firing import quantiles
from tests.cluster.rounds import lanes_of, rounds_of, watch_rounds
from tests.cluster.shift import SECOND_NS, Shift, a_shift

GLOBAL_CAP = 10
TENANTS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "seven": 7}
SEATS = 16
SINGLE_MAX = 3
SETTINGS = {"ROTA_EXECUTOR_SEATS": str(SEATS), "ROTA_DISPATCH_IDLE_S": "0.03"}
SHORT_MS = (20, 60)
FIRST_ROUNDS_MAX = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the judges say, and whether the run could prove anything."""

    execution: Verdict
    order: order.Verdict
    at_cap: float
    latency_s: list[float]
    items: int
    ended: int
    lost: int
    takeovers: int
    full_after: bool
    surprises: list[str]

    @property
    def found(self) -> set[str]:
        """The kinds of violations."""
        both = {**self.execution.kinds, **self.order.kinds}
        return {kind for kind, count in both.items() if count}

    def evidence(self) -> str:
        first = [*self.execution.caps[:3], *self.execution.two_nodes[:3], *self.execution.tokens[:3]]
        for kind in self.order.kinds:
            first += getattr(self.order, kind)[:3]
        return "\n".join([str(self), *map(str, first), *self.surprises[:5]])

    def __str__(self) -> str:
        late = " ".join(f"{name}={value * 1000:.1f}ms" for name, value in quantiles(self.latency_s).items())
        return (
            f"execution {self.execution}\n  order {self.order} takeovers={self.takeovers}\n  items {self.ended} of "
            f"{self.items} ended, {self.lost} attempts lost with a node, {self.at_cap:.0%} of the time at the global "
            f"cap of {GLOBAL_CAP}\n  start minus commit of the grant {late} (n={len(self.latency_s)})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pressure:
    """What one run is made of."""

    seconds: float
    seed: int = 1
    long_ms: tuple[int, int] = (1500, 3000)
    """Half of the items are short, for many rounds; the others are long, so that the cap is full for much of the time:
    to start and to finish an item takes a moment, too."""
    turn_s: float = 0.5
    urgent_s: float = 0.3
    """How often, besides, an item arrives that comes before all that wait."""
    kill: bool = True
    mutant: str | None = None
    drained: bool = True
    """Whether all must end, and the caps are then filled once more, to see that no seat was lost."""


async def under_pressure(url: str, scene: Pressure, folder: Path) -> Outcome:
    """Run a scene and judge it."""
    async with a_shift(url, folder, settings=SETTINGS) as shift:
        await watch_rounds(shift.witness)
        await shift.control.limits.set_capacity(GLOBAL_CAP)
        for tenant, cap in TENANTS.items():
            await shift.control.limits.set_quota(tenant, cap=cap)
        await shift.start("node-0", "node-1", mutant=scene.mutant)
        await (_warm_up(shift) if scene.drained else _all_make_rounds(shift, len(shift.nodes)))
        since = time.monotonic_ns()
        async with asyncio.TaskGroup() as group:
            offered = [group.create_task(offer(shift, scene)) for offer in (_offer, _offer_urgent)]
            if scene.kill:
                group.create_task(_kill_and_restart(shift, scene.seconds / 3))
        with suppress(*([] if scene.drained else [AssertionError])):
            await shift.until_idle(scene.seconds * 3 + 20 if scene.drained else scene.seconds)
        until = max(line.mono_ns for line in shift.watcher.lines)
        full = scene.drained and await _fills_again(shift)
        items = sum(it.result() for it in offered) + 2 * sum(TENANTS.values())
        return await _judged(shift, items, since, until, full=full)


async def _offer(shift: Shift, scene: Pressure) -> int:
    """In the first third of the time, assign what the caps allow in the whole of it, more of it to larger tenants, so
    that the caps of the small ones do not make the end long. Deadlines of one turn lie between those of others, and two
    tenants of each turn share theirs, so that the load of their quotas decides."""
    rng = random.Random(scene.seed)
    mean_ms = (sum(SHORT_MS) + sum(scene.long_ms)) / 4
    turns = round(scene.seconds / 3 / scene.turn_s)
    squares = sum(cap**2 for cap in TENANTS.values())
    pairs = GLOBAL_CAP * scene.seconds * 1000 / mean_ms / 2 / turns
    owed = dict.fromkeys(TENANTS, 0.0)
    begun, given = time.monotonic(), 0
    for turn in range(turns):
        now = _moment(await shift.witness.now())
        twins, shared = rng.sample(sorted(TENANTS), 2), _window(rng, now)
        for tenant, cap in TENANTS.items():
            owed[tenant] += pairs * cap**2 / squares
            count, owed[tenant] = int(owed[tenant]), owed[tenant] % 1
            start, end = shared if tenant in twins else _window(rng, now)
            for ms in (SHORT_MS, scene.long_ms) if count else ():
                info = {"ms": rng.randint(*ms)}
                await shift.assign(tenant, count, info=info, start_at=start, end_at=end, **_how(tenant))
                given += count
        await asyncio.sleep(max(begun + (turn + 1) * scene.turn_s - time.monotonic(), 0))
    return given


async def _offer_urgent(shift: Shift, scene: Pressure) -> int:
    """Meanwhile, assign single items of which each should have started long ago, the later the longer."""
    rng = random.Random(f"{scene.seed} urgent")
    until, given = time.monotonic() + scene.seconds / 3, 0
    due = _moment(await shift.witness.now()) - timedelta(hours=1)
    while time.monotonic() < until:
        tenant, given = rng.choice(sorted(TENANTS)), given + 1
        start = due - timedelta(seconds=given)
        info = {"ms": rng.randint(*SHORT_MS)}
        await shift.assign(tenant, 1, info=info, start_at=start, end_at=start, **_how(tenant))
        await asyncio.sleep(scene.urgent_s * rng.uniform(0.5, 1.5))
    return given


def _how(tenant: str) -> dict[str, Any]:
    """Tenants of few items have a process for each, the others let items share one."""
    return {"concurrency": 1 if TENANTS[tenant] <= SINGLE_MAX else 8}


async def _warm_up(shift: Shift) -> None:
    """Have the processes started, so that the time at the cap is not that of starting them."""
    for tenant, cap in TENANTS.items():
        await shift.assign(tenant, 2 * cap, info={"ms": 300}, **_how(tenant))
    await shift.until_idle()


async def _all_make_rounds(shift: Shift, nodes: int) -> None:
    """Have each node made a round, and nothing left to do: from then on a node with a wrong idea of what the others do
    shows it in its next round, and does not happen to take over in the midst of the load and learn it."""
    for turn in range(FIRST_ROUNDS_MAX):
        await shift.assign(sorted(TENANTS)[turn % len(TENANTS)], info={"ms": 1})
        await shift.until_idle()
        ((made,),) = await shift.witness.ask("SELECT count(DISTINCT c) FROM witness_round WHERE kind = 'dispatch'")
        if made == nodes:
            return
    raise AssertionError(f"void: {FIRST_ROUNDS_MAX} items were given, and {made} of {nodes} nodes made rounds")


def _window(rng: random.Random, now: datetime) -> tuple[datetime, datetime]:
    start = now + timedelta(milliseconds=rng.choice([0, 0, 0, 300, 1000]))
    return start, start + timedelta(milliseconds=rng.randint(1, 8000))


def _moment(us: int) -> datetime:
    return datetime.fromisoformat("1970-01-01T00:00:00+00:00") + timedelta(microseconds=us)


async def _kill_and_restart(shift: Shift, after_s: float) -> None:
    await asyncio.sleep(after_s)
    node = shift.nodes["node-0"]
    node.kill_agent()
    await shift.start("node-0")


async def _fills_again(shift: Shift) -> bool:
    """Whether the caps can be filled to the brim: a seat that was not given back would be missing now."""
    held: dict[str, int] = {}
    for tenant, cap in {"seven": 7, "three": 3}.items():
        done = await shift.assign(tenant, cap + 5, info={"ms": 60_000}, **_how(tenant))
        held[tenant] = done.id

    def full() -> bool:
        lines = shift.watcher.executing().values()
        return all(sum(line.run == run for line in lines) == TENANTS[tenant] for tenant, run in held.items())

    await shift.until(full, "the caps of two tenants to be full again")
    for run in held.values():
        await shift.control.runs.cancel([run])
    await shift.until_idle()
    return True


async def _judged(shift: Shift, items: int, since: int, until: int, *, full: bool) -> Outcome:
    caps = {"global": GLOBAL_CAP, **{f"quota:{tenant}/default": cap for tenant, cap in TENANTS.items()}}
    tale = await rounds_of(shift.witness)
    nodes = await shift.witness.ask("SELECT id FROM rota_node")
    ends = await shift.witness.ask("SELECT item_id, attempt, ended_at FROM rota_attempt")
    rules = order.Rules(
        lanes=await lanes_of(shift.witness),
        caps=caps,
        seats={node: SEATS for (node,) in nodes},
        ended={(item, attempt): at for item, attempt, at in ends},
    )
    ((ended,),) = await shift.witness.ask("SELECT count(*) FROM rota_item WHERE state = 'succeeded'")
    ((lost,),) = await shift.witness.ask("SELECT count(*) FROM rota_attempt WHERE outcome = 'lost'")
    return Outcome(
        execution=shift.judged(caps),
        order=order.judge(tale.rounds, rules),
        at_cap=share_at(shift.executed(), GLOBAL_CAP, since, until),
        latency_s=await _latencies_s(shift),
        items=items,
        ended=ended,
        lost=lost,
        takeovers=tale.takeovers,
        full_after=full,
        surprises=shift.surprises(),
    )


async def _latencies_s(shift: Shift) -> list[float]:
    """From the grant of an attempt, by the store's clock, to the first line of the task."""
    offset = await shift.clock_ns()
    rows = await shift.witness.ask("SELECT item_id, attempt, assigned_at FROM rota_attempt")
    granted: Mapping[tuple[int, int], int] = {(item, attempt): at * 1000 for item, attempt, at in rows if at}
    starts = {(line.item, line.attempt): line.mono_ns for line in shift.watcher.lines if line.kind == START}
    return [(at + offset - granted[key]) / SECOND_NS for key, at in starts.items() if key in granted]
