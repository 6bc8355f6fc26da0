"""One firing run: three nodes on one store behind a proxy, jobs that fall due, faults, then calm and the judges.

With `execute`, the nodes execute what was fired, and the tasks' own lines are judged too.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from rota.clock import SystemClock
from rota.control import Control
from rota.ports import Store
from rota.wiring import open_store
from tests.checkers import executing
from tests.checkers.changes import CHANGED, CREATED, Asked, Line, told
from tests.checkers.firing import SETTLED_S, Span, Verdict, judge
from tests.checkers.misfire import Missed, missed
from tests.checkers.slots import SECOND
from tests.checkers.starts import Starts, first_starts
from tests.cluster.changer import Changer
from tests.cluster.nemesis import Faults, Nemesis
from tests.cluster.processes import NodeProcess, lease
from tests.cluster.watcher import Watcher
from tests.cluster.witness import Witness
from tests.cluster.workload import Wanted, herd, steady
from tests.servers.proxy import FaultProxy

NODES = 3
START_S = 60.0
DRAIN_S = 60.0
CATCH_UP_S = 60.0
"""After faults, until every node works again, and until what is due is fired: on a busy machine."""
CATCH_UP_MUTANT_S = 15.0
"""A mutant may never catch up: some do not move the next instant at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What one run is made of."""

    seconds: float
    seed: int
    skew_s: float
    jobs: int = 200
    herd: int = 1000
    herd_after_s: tuple[float, ...] = (20, 45)
    changers: int = 3
    calm_s: float = 4.0
    faults: Faults = field(default_factory=Faults)
    mutant: str | None = None
    direct: bool = False
    """Whether the nodes reach the store without the proxy."""
    execute: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the judges say, and what really happened to the nodes."""

    verdict: Verdict
    missed: Missed
    problems: Sequence[str]
    counts: Counter[str]
    offset_s: float
    shares: Counter[str]
    starts: Starts | None = None
    execution: executing.Verdict | None = None

    @property
    def clean(self) -> bool:
        surprised = self.counts["failed_rounds"] or self.counts["own_ends"]
        fired = self.verdict.clean and not self.missed.wrong and not self.problems and not surprised
        return fired and all(it.clean for it in (self.starts, self.execution) if it is not None)

    def void(self, *, skew_s: float, **at_least: int) -> list[str]:
        """Why this run proves nothing: which faults had no effect, which node did no work."""
        reasons = [f"{name}: {self.counts[name]} < {low}" for name, low in at_least.items() if self.counts[name] < low]
        if abs(self.offset_s - skew_s) > 0.5:
            reasons.append(f"the clock was {self.offset_s:+.3f} s off, not {skew_s:+g} s")
        return reasons + [
            f"{name} wrote {self.shares[name]} of {self.shares.total()} runs" for name in idle(self.shares)
        ]

    def evidence(self) -> str:
        """The first violations of each kind."""
        judged = [it for it in (self.verdict, self.starts, self.execution) if it is not None]
        broken = {kind: getattr(it, kind)[:5] for it in judged for kind, count in it.kinds.items() if count}
        return "\n".join([str(self), str(broken), *self.missed.wrong[:5], *self.problems[:5]])

    def __str__(self) -> str:
        faults = " ".join(f"{name}={count}" for name, count in sorted(self.counts.items()))
        shares = " ".join(f"{name}={count}" for name, count in sorted(self.shares.items()))
        return (
            f"{self.verdict}\n  late slots {self.missed.late}, against the policy {len(self.missed.wrong)}, "
            f"changes in doubt {len(self.problems)}\n  faults {faults} clock_offset={self.offset_s:+.3f}s\n"
            f"  runs written by {shares}" + (f"\n  {self.starts}\n  execution {self.execution}" if self.starts else "")
        )


class Rig:
    """The running scene."""

    def __init__(
        self,
        url: str,
        proxy: FaultProxy,
        witness: Witness,
        store: Store,
        watcher: Watcher,
        scene: Scene,
        folder: Path,
        node_urls: Sequence[str] = (),
    ) -> None:
        self.url = url
        self.proxy = proxy
        self.witness = witness
        self._scene = scene
        self.control = Control(store, SystemClock())
        self.watcher = watcher
        ways = list(node_urls) or [url if scene.direct else through(url, proxy)] * NODES
        self.nodes = [
            NodeProcess(
                f"node-{n}",
                ways[n],
                folder,
                app=watcher.app if scene.execute else None,
                settings=_settings(scene),
                skew_s=scene.skew_s if n == 0 else 0,
                mutant=scene.mutant,
            )
            for n in range(NODES)
        ]
        self.nemesis = Nemesis(self.nodes, proxy, scene.faults, scene.seed)
        self.jobs: dict[str, Wanted] = {}
        self.asked: dict[str, list[Asked]] = {}
        self.counts: Counter[str] = Counter()
        self.lost_runs: set[int] = set()
        """Runs that the store lost, as it was said: what they started was fired."""
        self.lost_attempts: set[tuple[int, int]] = set()
        """Attempts that the store lost, as it was said: what they began may begin again."""

    async def start_nodes(self) -> None:
        """Start every node and wait until each works."""
        for node in self.nodes:
            node.start()
        async with asyncio.timeout(START_S):
            while not all("node.started" in node.log for node in self.nodes):
                await asyncio.sleep(0.05)

    async def define(self) -> None:
        """Apply all jobs in one transaction."""
        since = await self.witness.now()
        at_s = since // SECOND
        flock = herd(self._scene.herd, tuple(round(at_s + after_s) % 60 for after_s in self._scene.herd_after_s))
        wanted = [*steady(self._scene.jobs), *flock]
        await self.control.jobs.apply([it.definition for it in wanted])
        until = await self.witness.now()
        self.jobs = {it.name: it for it in wanted}
        self.asked = {it.name: [Asked(CREATED, since, until, it.rule)] for it in wanted}

    async def change_jobs(self, stop: asyncio.Event) -> None:
        """Let operators change the jobs, each its own part of them; every third is hasty and asks through the proxy.

        Of the herd they change a few only, for it shall stay one.
        """
        count = self._scene.changers
        changing = [it for n, it in enumerate(self.jobs.values()) if n < self._scene.jobs or n % 20 == 0]
        mine = [changing[part::count] for part in range(count)]
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            for part, jobs in enumerate(mine):
                hasty = part % 3 == 2
                url = through(self.url, self.proxy) if hasty else self.url
                store = open_store(url, SystemClock(), actor="operator")
                stack.push_async_callback(store.close)
                witness = await stack.enter_async_context(Witness(self.url))
                rng = random.Random(f"{self._scene.seed} changer {part}")
                damaged = self._scene.mutant is not None
                changer = Changer(store, SystemClock(), witness, jobs, rng, hasty=hasty, may_be_damaged=damaged)
                group.create_task(self._until(changer, stop))

    async def _until(self, changer: Changer, stop: asyncio.Event) -> None:
        await changer.run(stop)
        self.counts += changer.counts
        self.counts["changes"] += changer.counts.total()
        for name, asked in changer.asked.items():
            self.asked[name] += asked

    async def judged(self, *, settled_s: float = SETTLED_S) -> Outcome:
        """Wait until what is due is fired, but not for ever; read everything as it is then, and judge it. A slot that
        comes late is counted by its lateness, one that never comes is lost."""
        end = await self._caught_up()
        rows, lines, ids = await self.witness.rows(), await self.witness.lines(), await self.witness.job_ids()
        spans: dict[int, Sequence[Span]] = {}
        problems: list[str] = []
        for name, asked in self.asked.items():
            tale = told(asked, lines.get(name, []))
            spans[ids[name]] = tale.spans
            problems += [f"{name}: {problem}" for problem in tale.problems]
        problems += await self._kept_versions(lines)
        verdict = judge(spans, rows, end, settled_s)
        policies = {ids[name]: job.shape.judged for name, job in self.jobs.items()}
        starts, execution = await self._executed(end) if self._scene.execute else (None, None)
        known = [] if verdict.phantom else rows
        return Outcome(
            verdict=verdict,
            missed=missed(spans, policies, known),
            problems=problems,
            counts=self.counts + self.nemesis.counts + self._surprises(),
            offset_s=self.offset_s(),
            shares=await self.witness.shares(),
            starts=starts,
            execution=execution,
        )

    async def all_work(self, before: Counter[str]) -> None:
        """Wait, but not for ever, until every node has written more than `before`, and its share of the whole."""

        async def work() -> bool:
            now = await self.witness.shares()
            return not idle(now) and all(now[node.name] > before[node.name] for node in self.nodes)

        with suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_S):
                while not await work():
                    await asyncio.sleep(0.2)

    async def _caught_up(self) -> int:
        """Wait until what is due is fired; returns the store's instant at which it was, or at which we gave up."""
        overdue = "SELECT count(*) FROM rota_job WHERE state = 'enabled' AND next_fire_at < "
        give_up = time.monotonic() + (CATCH_UP_MUTANT_S if self._scene.mutant else CATCH_UP_S)
        while True:
            now = await self.witness.now()
            if not (await self.witness.ask(f"{overdue}{now - SECOND}"))[0][0] or time.monotonic() > give_up:
                return now
            await asyncio.sleep(0.1)

    async def _executed(self, end: int) -> tuple[Starts, executing.Verdict]:
        """Wait until everything that was fired by `end` has ended; then judge what the tasks wrote."""
        fired = "FROM rota_run WHERE cause = 'slot' AND state <> 'skipped'"
        live = f"SELECT count(*) {fired} AND ended_at IS NULL AND created_at <= {end}"
        async with asyncio.timeout(DRAIN_S):
            while (await self.witness.ask(live))[0][0]:
                await asyncio.sleep(0.1)
        lines, gone, until = self.watcher.lines, list(self.watcher.gone), time.monotonic_ns()
        owed = [run for (run,) in await self.witness.ask(f"SELECT id {fired} AND created_at <= {end}")]
        may = [run for (run,) in await self.witness.ask(f"SELECT id {fired} AND created_at > {end}")]
        bad = await self.witness.ask("SELECT item_id, attempt FROM rota_attempt WHERE outcome <> 'succeeded'")
        self.counts["lost"] += len(bad)
        may, bad = [*may, *self.lost_runs], [*bad, *self.lost_attempts]
        others = {run for (run,) in await self.witness.ask("SELECT id FROM rota_run WHERE cause <> 'slot'")}
        fired_lines = [line for line in lines if line.run not in others]
        return first_starts(owed, may, fired_lines, set(bad)), executing.judge(lines, gone, until, {})

    async def _kept_versions(self, lines: Mapping[str, Sequence[Line]]) -> list[str]:
        """Every version that the history tells of is kept, and no other."""
        ids = await self.witness.job_ids()
        applied = {
            (ids[name], it.version) for name, tale in lines.items() for it in tale if it.kind in (CREATED, CHANGED)
        }
        kept = set(await self.witness.ask("SELECT job_id, version FROM rota_job_version"))
        return [f"version {it} is only in the history or only kept" for it in sorted(applied ^ kept)]

    def offset_s(self) -> float:
        """How far the clock of the first node was off, at the start at which it was read with the least delay."""
        return min(self.nodes[0].offsets_s, key=lambda it: abs(it - self._scene.skew_s))

    def _surprises(self) -> Counter[str]:
        """What nodes met that they had not foreseen: rounds that failed, and ends that nobody wanted."""
        ends = sum(node.own_ends + (not node.running) for node in self.nodes)
        return Counter({"failed_rounds": sum(node.log.count("loop.failed") for node in self.nodes), "own_ends": ends})


@asynccontextmanager
async def a_rig(
    url: str, scene: Scene, folder: Path, *, seen_at: str | None = None, node_urls: Sequence[str] = ()
) -> AsyncIterator[Rig]:
    """A migrated store under a watching database, a proxy before it, and nodes that are not started yet. If the URL is
    of several servers: `seen_at` says where the witness looks, `node_urls` where each node does."""
    first = urlsplit(url).netloc.rpartition("@")[2].partition(",")[0]
    host, _, port = first.rpartition(":")
    async with AsyncExitStack() as stack:
        store = open_store(url, SystemClock(), actor="operator")
        stack.push_async_callback(store.close)
        await store.migrate()
        witness = await stack.enter_async_context(Witness(seen_at or url))
        await witness.watch()
        proxy = await stack.enter_async_context(FaultProxy(host, int(port)))
        watcher = stack.enter_context(Watcher())
        rig = Rig(url, proxy, witness, store, watcher, scene, folder, node_urls)
        stack.callback(lambda: [node.kill() for node in rig.nodes])
        yield rig


async def under_faults(url: str, scene: Scene, folder: Path) -> Outcome:
    """Run a whole scene: faults, then calm, then the judges."""
    async with a_rig(url, scene, folder) as rig:
        await rig.start_nodes()
        await rig.define()
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(rig.change_jobs(stop))
            await rig.nemesis.run(scene.seconds)
            stop.set()
        healed = await rig.witness.shares()
        await asyncio.sleep(scene.calm_s)
        if not scene.mutant:  # which may let one node write everything
            await rig.all_work(healed)
        return await rig.judged()


def idle(shares: Counter[str]) -> list[str]:
    """The nodes that wrote less than two of a hundred runs."""
    return [f"node-{n}" for n in range(NODES) if shares[f"node-{n}"] * 50 < shares.total()]


def _settings(scene: Scene) -> dict[str, str]:
    """Without placement every node tries to fire everything: the most pressure on the transaction that decides."""
    more = lease(3, 0.5) if scene.execute else {"ROTA_EXECUTOR_SEATS": "0"}
    return {"ROTA_PLACEMENT_KIND": "none", **more}


def through(url: str, proxy: FaultProxy) -> str:
    """The same store, through the proxy; the servers of the tests speak plain text, wherever the proxy is."""
    parts = urlsplit(url)
    login, _, _ = parts.netloc.rpartition("@")
    netloc = f"{login}@{proxy.host}:{proxy.port}"
    return parts._replace(netloc=netloc, query=parts.query or "sslmode=disable").geturl()
