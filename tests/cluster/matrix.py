"""One run of the fault matrix: three nodes of one placement, each behind proxies of its own; one fault after the other,
each followed by calm; then the judges.

    store server ── proxy a ── node a ── proxy a ── coordinator server (none: the store coordinates)
                 ── proxy b ── node b ── proxy b ──
                 ── proxy c ── node c ── proxy c ──      (the clock of node c is off)

A fault without effect makes the run void. What is measured: how late the slots were that fell due from the fault until
the next one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil

from rota.clock import SystemClock
from rota.config import CoordinatorConfig
from rota.control import Control
from rota.model.cluster import Peer
from rota.model.job import Task
from rota.model.trigger import Every as EveryRule
from rota.model.value import decode
from rota.model.work import Retry
from rota.ports import Coordinator, Store
from rota.wiring import open_coordinator, open_store
from tests.checkers import executing
from tests.checkers.firing import Row, Span, Verdict, judge, quantiles
from tests.checkers.slots import SECOND, Every
from tests.checkers.starts import Starts, first_starts
from tests.cluster.processes import NodeProcess, lease
from tests.cluster.rig import through
from tests.cluster.watcher import Watcher
from tests.cluster.witness import Witness
from tests.factories import a_definition, allow
from tests.servers.process import PrivateServer
from tests.servers.proxy import FaultProxy

NAMES = ("a", "b", "c")
SESSION_S = 4.0
LEASE_S, MARGIN_S = 3.0, 0.5
SKEW_S = 7.0
CALM_S = 7.0
START_S = 40.0
DRAIN_S = 60.0
STALL_LOOK_S = 0.05
CAP = 8
THAW_NS = 600_000_000
"""How long a machine that was frozen as a whole may run on after it thaws (docs/failure.md)."""
PERIODS_S = (1.0, 1.0, 1.5, 2.0, 2.5, 3.0)
JOBS = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a run is made of."""

    store: str
    coordinator: str | None
    placement: str
    beat_s: float = 6.0

    def __str__(self) -> str:
        return f"{self.store} + {self.coordinator or 'itself'}, {self.placement}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """What one fault did: how late slots were until the next one, and what must be explained by it."""

    fault: str
    slots: int
    late_s: dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    verdict: Verdict
    starts: Starts
    execution: executing.Verdict
    effects: Sequence[Effect]
    counts: Counter[str]
    stalled_s: float = 0.0
    """The longest that this process, which carries all connections of the nodes, did not get a processor."""
    void: list[str] = field(default_factory=list)
    surprises: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return self.verdict.clean and self.starts.clean and self.execution.clean and not self.surprises

    def table(self) -> str:
        rows = [
            f"  {it.fault:<22} n={it.slots:<5} late p50 {it.late_s['p50']:6.3f} s  max {it.late_s['max']:6.3f} s"
            for it in self.effects
        ]
        stalled = f"  this process stood still for at most {self.stalled_s:.3f} s"
        return "\n".join([f"  {self.verdict}", f"  {self.starts}", f"  execution {self.execution}", *rows, stalled])


class Cluster:
    """The running nodes and everything between them."""

    def __init__(
        self,
        kind: Kind,
        folder: Path,
        *,
        servers: dict[str, PrivateServer],
        url: str,
        store: Store,
        coordinator: Coordinator,
        witness: Witness,
        watcher: Watcher,
        lines: dict[str, FaultProxy],
        wires: dict[str, FaultProxy],
    ) -> None:
        self.kind = kind
        self.url = url
        self.servers = servers
        self.store = store
        self.coordinator = coordinator
        self.control = Control(store, SystemClock())
        self.witness = witness
        self.watcher = watcher
        self.lines = lines
        """The proxy of each node to the store."""
        self.wires = wires
        """The proxy of each node to the coordinator; the same where the store coordinates."""
        self.thaws: list[tuple[int, int]] = []
        """When whole nodes thawed, and until when that excuses what still runs."""
        self.stopped: list[executing.Stopped] = []
        """The processes of whole nodes that were frozen, and how long."""
        self.counts: Counter[str] = Counter()
        self.nodes = {
            name: NodeProcess(
                name,
                through(url, lines[name]),
                folder,
                app=watcher.app,
                settings=self._settings(name),
                skew_s=SKEW_S if name == "c" else 0,
            )
            for name in NAMES
        }

    def _settings(self, name: str) -> dict[str, str]:
        kind = self.kind
        url = f"{kind.coordinator}://127.0.0.1:{self.wires[name].port}" if kind.coordinator else ""
        return {
            **lease(LEASE_S, MARGIN_S),
            "ROTA_COORDINATOR_URL": url,
            "ROTA_COORDINATOR_SESSION_S": f"{SESSION_S:g}",
            "ROTA_PLACEMENT_KIND": kind.placement,
            "ROTA_PLACEMENT_BEAT_S": f"{kind.beat_s:g}",
            "ROTA_EXECUTOR_SEATS": "6",
        }

    async def peers(self) -> dict[str, Peer]:
        """The schedulers that live, by name."""
        with suppress(Exception):
            return {entry.name: decode(entry.value, Peer) for entry in await self.coordinator.read("live")}
        return {}

    async def until(self, condition: Callable[[], Awaitable[bool]], what: str, within_s: float = START_S) -> None:
        give_up = time.monotonic() + within_s
        while not await condition():
            if time.monotonic() > give_up:
                logs = "\n".join(f"--- {it.name}\n{it.log[-2500:]}" for it in self.nodes.values())
                raise AssertionError(f"waited {within_s:g} s for {what}\n{logs}")
            await asyncio.sleep(0.1)

    async def all_present(self) -> bool:
        """Whether every node takes part, each in its present incarnation."""
        peers = await self.peers()
        present = all(name in peers and peers[name].incarnation for name in NAMES)
        return present and all(node.running for node in self.nodes.values())

    async def leader(self) -> str:
        """The node that matters most to the placement: who leads, who has the beat, or who has most jobs."""
        peers = await self.peers()
        if self.kind.placement == "scope":
            entry = await self.coordinator.get("election/leader")
            found = "" if entry is None else entry.value
            return next((name for name in NAMES if found in (name, peers[name].address)), NAMES[0])
        if self.kind.placement == "beat":
            by_incarnation = {peer.incarnation: name for name, peer in peers.items()}
            entries = await self.coordinator.read("beat")
            return next((by_incarnation[it.value] for it in entries if it.value in by_incarnation), NAMES[0])
        return max(peers, key=lambda name: peers[name].held, default=NAMES[0])

    async def kill_scheduler(self) -> None:
        leader = await self.leader()
        await self._kill(next(name for name in NAMES if name != leader))

    async def kill_leader(self) -> None:
        await self._kill(await self.leader())

    async def _kill(self, name: str) -> None:
        self.nodes[name].kill()
        await asyncio.sleep(SESSION_S + 2)
        self.nodes[name].start()

    async def freeze_agent(self) -> None:
        node = self.nodes["b"]
        node.send(signal.SIGSTOP)
        await asyncio.sleep(LEASE_S + 2)
        node.send(signal.SIGCONT)

    async def freeze_node(self) -> None:
        """All of its processes, so that even its switches stand still."""
        agent = self.nodes["a"].pid
        family = [psutil.Process(agent), *psutil.Process(agent).children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGSTOP)
        since_ns = time.monotonic_ns()
        await asyncio.sleep(LEASE_S + 3)
        thawed_ns = time.monotonic_ns()
        self.thaws.append((thawed_ns - 100_000_000, thawed_ns + THAW_NS))
        self.stopped += [executing.Stopped(process.pid, since_ns, thawed_ns) for process in family]
        for process in family:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGCONT)

    async def cut_store(self) -> None:
        await self._cut(self.lines["b"])

    async def cut_coordinator(self) -> None:
        await self._cut(self.wires["a"])

    async def _cut(self, proxy: FaultProxy) -> None:
        before = proxy.held
        await proxy.black_hole()
        await asyncio.sleep(SESSION_S + 3)
        self.counts["held"] += proxy.held - before
        proxy.abort()
        await proxy.pass_through()

    async def restart_store(self) -> None:
        await asyncio.to_thread(self.servers["store"].restart)

    async def restart_coordinator(self) -> None:
        await asyncio.to_thread(self.servers["coordinator"].restart)

    def faults(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """All faults of the matrix, in the order in which they come."""
        found = {
            "kill a scheduler": self.kill_scheduler,
            "kill the leader": self.kill_leader,
            "freeze an agent": self.freeze_agent,
            "freeze a whole node": self.freeze_node,
            "cut from the store": self.cut_store,
            "restart the store": self.restart_store,
        }
        if self.kind.coordinator:
            found |= {"cut from coordinator": self.cut_coordinator, "restart coordinator": self.restart_coordinator}
        return found


class Stalls:
    """Notices for how long this process stands still: what it carries stands still as long."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def watch(self) -> None:
        while True:
            began_s = time.monotonic()
            await asyncio.sleep(STALL_LOOK_S)
            self.longest_s = max(self.longest_s, time.monotonic() - began_s - STALL_LOOK_S)


async def run(kind: Kind, folder: Path, only: Sequence[str] = ()) -> Outcome:
    """A whole run: start, faults one after the other, calm, judges."""
    async with a_cluster(kind, folder) as cluster:
        for node in cluster.nodes.values():
            node.start()
        await cluster.until(cluster.all_present, "all nodes to take part")
        stalls = Stalls()
        watching = asyncio.ensure_future(stalls.watch())
        try:
            outcome = await _faults(cluster, only)
        finally:
            watching.cancel()
        return replace(outcome, stalled_s=stalls.longest_s)


async def _faults(cluster: Cluster, only: Sequence[str]) -> Outcome:
    began = await _define(cluster)
    await asyncio.sleep(CALM_S)
    marks: list[tuple[str, int]] = [("nothing (skewed clock)", began)]
    for name, deed in cluster.faults().items():
        if only and name not in only:
            continue
        marks.append((name, await cluster.witness.now()))
        await deed()
        await cluster.until(cluster.all_present, f"all nodes to take part after: {name}")
        cluster.counts[name] += 1
        await asyncio.sleep(CALM_S)
    return await _judged(cluster, began, marks)


async def _define(cluster: Cluster) -> int:
    """Apply the jobs; some leave a line at once, some take a while."""
    await cluster.control.limits.set_capacity(CAP)
    retry = Retry(lost_max=100)
    tasks = [
        Task(name="main", runner="python", config={"handler": handler}, retry=retry, timeout_s=60.0)
        for handler in ("mark", "doze", "mark")
    ]
    wanted = [
        a_definition(
            f"job-{n}",
            rule=EveryRule(every_s=PERIODS_S[n % len(PERIODS_S)] * (3 if n % 3 == 1 else 1)),
            overlap=allow(10_000),
            tasks=(tasks[n % 3],),
        )
        for n in range(JOBS)
    ]
    began = await cluster.witness.now()
    await cluster.control.jobs.apply(wanted)
    return began


async def _judged(cluster: Cluster, began: int, marks: Sequence[tuple[str, int]]) -> Outcome:
    end = await _caught_up(cluster)
    rows = await cluster.witness.rows()
    lines = await cluster.witness.lines()
    ids = await cluster.witness.job_ids()
    spans = {
        ids[name]: [Span(Every(round(_period(name) * SECOND)), lines[name][0].at)]
        for name in ids
        if name.startswith("job-")
    }
    verdict = judge(spans, rows, end)
    starts, execution = await _executed(cluster, end)
    surprises = [
        f"{node.name}: {line}"
        for node in cluster.nodes.values()
        for line in node.log.splitlines()
        if "loop.failed" in line
    ] + [f"{node.name} ended by itself" for node in cluster.nodes.values() if node.own_ends or not node.running]
    return Outcome(
        verdict=verdict,
        starts=starts,
        execution=execution,
        effects=_effects(rows, marks, end),
        counts=cluster.counts,
        void=_void(cluster, marks),
        surprises=surprises,
    )


def _period(name: str) -> float:
    number = int(name.removeprefix("job-"))
    return PERIODS_S[number % len(PERIODS_S)] * (3 if number % 3 == 1 else 1)


async def _caught_up(cluster: Cluster) -> int:
    """Wait until what is due is fired; returns the store's instant at which it was."""
    now = 0

    async def is_fired() -> bool:
        nonlocal now
        now = await cluster.witness.now()
        overdue = f"SELECT count(*) FROM rota_job WHERE next_fire_at < {now - SECOND}"
        return not (await cluster.witness.ask(overdue))[0][0]

    await cluster.until(is_fired, "what is due to be fired", DRAIN_S)
    return now


async def _executed(cluster: Cluster, end: int) -> tuple[Starts, executing.Verdict]:
    fired = "FROM rota_run WHERE cause = 'slot' AND state <> 'skipped'"

    async def over() -> bool:
        live = f"SELECT count(*) {fired} AND ended_at IS NULL AND created_at <= {end}"
        return not (await cluster.witness.ask(live))[0][0]

    await cluster.until(over, "what was fired to end", DRAIN_S)
    told, gone, until = cluster.watcher.lines, list(cluster.watcher.gone), time.monotonic_ns()
    owed = [it for (it,) in await cluster.witness.ask(f"SELECT id {fired} AND created_at <= {end}")]
    may = [it for (it,) in await cluster.witness.ask(f"SELECT id {fired} AND created_at > {end}")]
    bad = await cluster.witness.ask("SELECT item_id, attempt FROM rota_attempt WHERE outcome <> 'succeeded'")
    cluster.counts["lost"] = len(bad)
    execution = executing.judge(told, gone, until, {executing.GLOBAL: CAP}, stopped=cluster.stopped)
    frozen = {it.pid for it in cluster.stopped}
    thawed = {(line.item, line.attempt) for line in told if line.pid in frozen}
    kept = executing.Verdict(
        attempts=execution.attempts,
        two_nodes=[
            it
            for it in execution.two_nodes
            if it.ns > THAW_NS or not {(it.item, it.first), (it.item, it.second)} & thawed
        ],
        caps=[it for it in execution.caps if not _is_excused(cluster, it)],
        tokens=execution.tokens,
    )
    return first_starts(owed, may, told, set(bad)), kept


def _is_excused(cluster: Cluster, excess: executing.Excess) -> bool:
    """What a node that was frozen as a whole still runs, for a moment after it thaws."""
    return any(since <= excess.at_ns + excess.ns <= until + 1_000_000_000 for since, until in cluster.thaws)


def _effects(rows: Sequence[Row], marks: Sequence[tuple[str, int]], end: int) -> list[Effect]:
    """How late slots were between one fault and the next."""
    found = []
    for (name, since), until in zip(marks, [*(at for _, at in marks[1:]), end], strict=True):
        late = [
            (row["witness_at"] - row["slot_at"]) / SECOND
            for row in rows
            if since <= row["slot_at"] < until and row["slots"] == 1
        ]
        found.append(Effect(fault=name, slots=len(late), late_s=quantiles(late)))
    return found


def _void(cluster: Cluster, marks: Sequence[tuple[str, int]]) -> list[str]:
    """Why this run proves nothing."""
    reasons = [f"{name} did nothing" for name, _ in marks[1:] if not cluster.counts[name]]
    if any(name.startswith("cut") for name, _ in marks) and not cluster.counts["held"]:
        reasons.append("nothing was held back by a cut")
    offset = min(cluster.nodes["c"].offsets_s, key=lambda it: abs(it - SKEW_S))
    if abs(offset - SKEW_S) > 0.5:
        reasons.append(f"the clock of c was {offset:+.3f} s off, not {SKEW_S:+g} s")
    return reasons


@asynccontextmanager
async def a_cluster(kind: Kind, folder: Path) -> AsyncIterator[Cluster]:
    """Servers of their own, because they will be restarted; proxies; nodes that are not started yet."""
    async with AsyncExitStack() as stack:
        servers, url = await _servers(stack, kind)
        store = open_store(url, SystemClock(), actor="operator")
        stack.push_async_callback(store.close)
        await store.migrate()
        config = CoordinatorConfig()
        if kind.coordinator:
            config = CoordinatorConfig(url=f"{kind.coordinator}://127.0.0.1:{servers['coordinator'].port}")
        coordinator = open_coordinator(config, store, SystemClock())
        stack.push_async_callback(coordinator.close)
        witness = await stack.enter_async_context(Witness(url))
        await witness.watch()
        watcher = stack.enter_context(Watcher())
        lines = {name: await _proxy(stack, servers["store"]) for name in NAMES}
        wires = {name: await _proxy(stack, servers["coordinator"]) for name in NAMES} if kind.coordinator else lines
        cluster = Cluster(
            kind,
            folder,
            servers=servers,
            url=url,
            store=store,
            coordinator=coordinator,
            witness=witness,
            watcher=watcher,
            lines=lines,
            wires=wires,
        )
        stack.callback(lambda: [node.kill() for node in cluster.nodes.values()])
        yield cluster


async def _proxy(stack: AsyncExitStack, server: PrivateServer) -> FaultProxy:
    return await stack.enter_async_context(FaultProxy("127.0.0.1", server.port))


async def _servers(stack: AsyncExitStack, kind: Kind) -> tuple[dict[str, PrivateServer], str]:
    from tests.conftest import installed
    from tests.servers.etcd import EtcdServer
    from tests.servers.mariadb import MariadbServer
    from tests.servers.postgres import PostgresServer
    from tests.servers.zookeeper import ZooKeeperServer

    database = installed(PostgresServer if kind.store == "postgres" else MariadbServer)
    stack.enter_context(database)
    servers: dict[str, PrivateServer] = {"store": database}
    if kind.coordinator:
        servers["coordinator"] = installed(ZooKeeperServer if kind.coordinator == "zookeeper" else EtcdServer)
        stack.enter_context(servers["coordinator"])
    return servers, database.url(await database.create_database())
