"""A world: some nodes, one store, one coordinator, and what happens to them. It only lets things happen and looks on;
what is right is judged afterwards, by `checkers`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from logging import CRITICAL
from typing import Any

import structlog

from rota.core.advance import Advance
from rota.core.define import Apply
from rota.errors import StoreUnavailable
from rota.model.alarm import AlarmRule, Channel, ChannelKind
from rota.model.cluster import Drain, Peer, Role
from rota.model.folders import ALL, LIVE
from rota.model.job import Definition, Misfire, MisfirePolicy, Overlap, Task
from rota.model.moment import micros
from rota.model.states import ItemState
from rota.model.trigger import Every, Schedule
from rota.model.value import decode
from rota.model.work import GLOBAL, Backoff, Limit, Rate, Retry, quota_limit
from rota.sim.history import History, HostWindow, Line, StuckItem, Survey
from rota.sim.link import SimLink, at_once
from rota.sim.loop import SimClock, SimLoop, StoreClock, dice, simulate
from rota.sim.node import SimNode
from rota.sim.plan import CALM_S, SECONDS, SWAPPED_S, FaultKind, Mode, PlannedFault, Scenario, SimJob
from rota.sim.surroundings import KeptDefinitions, Network
from rota.sim.witness import WitnessStore
from rota.transactions.alarms import set_alarm_rule
from rota.transactions.cancel import cancel
from rota.transactions.change import change
from rota.transactions.limits import set_limits
from rota.transactions.members import drain, undrain

LOOK_S = 2.0
"""How often somebody looks at everybody."""
TICK_S = 0.0005
"""How often two nodes that change places are looked at."""
RULE = AlarmRule(name="ops", channel=Channel(kind=ChannelKind.MAIL, to=("ops@example.com",)), merge_s=5.0)
"""Somebody wants to know of everything."""
RETRY = Retry(max=2, backoff=Backoff(seconds=(0.5,)), lost_max=10)

_STORE = frozenset(
    {FaultKind.CUT_STORE, FaultKind.MUTE_STORE, FaultKind.DEAF_STORE, FaultKind.OUTAGE_STORE, FaultKind.LOST_REPLIES}
)
_COORDINATOR = frozenset({FaultKind.CUT_COORDINATOR, FaultKind.MUTE_COORDINATOR, FaultKind.OUTAGE_COORDINATOR})
_BOTH = frozenset({FaultKind.SLOW, FaultKind.SLOW_REPLIES, FaultKind.NOTICES})


def happened(scenario: Scenario) -> History:
    with _silent():
        return simulate(lambda loop: World(loop, scenario).run(), seed=scenario.seed)


class World:
    def __init__(self, loop: SimLoop, scenario: Scenario) -> None:
        self._loop = loop
        self._scenario = scenario
        self._history = History(scenario=scenario)
        self.clock = StoreClock(loop, scenario.seed, name="store")
        self._store = WitnessStore(self.clock, self._history, loop if scenario.interleaved else None)
        self._store.realm.clock = SimClock(loop, scenario.seed, name="coordinator")
        self._network, self._definitions = Network(), KeptDefinitions()
        shared = (self._store, self._history, self._network, self._definitions)
        self._nodes = [SimNode(loop, scenario, n, *shared) for n in range(scenario.nodes + 1)]
        """The last one is to spare."""
        self._last: dict[int, SimNode] = {}
        self._people: set[asyncio.Task[None]] = set()
        self._counted = 0

    async def run(self) -> History:
        await _insist(self._limit)
        await _insist(lambda: self._store.transact(set_alarm_rule, RULE))
        self._keep(0.0)
        first = self._kept(0.0)
        await _insist(lambda: self._store.transact(change, [it.full_name for it in first], Apply(definitions=first)))
        for at_s in {job.from_s for job in self._scenario.jobs} - {0.0}:
            self._loop.call_at(at_s, self._keep, at_s)
        chance = dice(self._scenario.seed, "world")
        for node in self._nodes[:-1]:
            self._loop.call_at(chance.random(), node.start)
        for fault in self._scenario.faults:
            self._loop.call_at(fault.at_s, self._begin, fault)
        await self._pass(SECONDS)
        self._close()
        return self._history

    async def _limit(self) -> None:
        caps, rates = self._scenario.caps, self._scenario.rates
        names = {name: GLOBAL if name == GLOBAL else quota_limit(name, "default") for name in caps}
        found = {name: Rate(max=most, period_s=period_s) for name, (most, period_s) in rates.items()}
        await self._store.transact(
            set_limits, [Limit(name=names[it], cap=cap, rate=found.get(it)) for it, cap in caps.items()]
        )

    def _keep(self, at_s: float) -> None:
        """People write down the jobs that come now; the nodes define them. Their numbers are their places, for they are
        written down, and so defined, in that order."""
        self._definitions.keep(self._kept(at_s))

    def _kept(self, at_s: float) -> tuple[Definition, ...]:
        return tuple(_definition(job, n) for n, job in enumerate(self._scenario.jobs) if job.from_s == at_s)

    async def _pass(self, until_s: float) -> None:
        """Let time pass, looking on."""
        while self._loop.time() < until_s:
            await self.clock.sleep(LOOK_S)
            self._count_takeovers()
            if self._loop.time() >= CALM_S and self._scenario.mode is Mode.LIVENESS:
                self._look()

    def _look(self) -> None:
        up = [node for node in self._nodes if node.is_up]
        jobs = range(1, len(self._scenario.jobs) + 1)
        owners = {job_id: [node.name for node in up if node.owns(job_id)] for job_id in jobs}
        peers = {node.name: node.participation.keeper.peer for node in up if node.participation is not None}
        told = {name: (peer.held, peer.limit) for name, peer in peers.items()}
        untold = [it for node in up for it in self._untold(node)]
        listed = {it.host for it in self._history.drained if it.at_s <= self._loop.time() < it.until_s}
        drained = [node.name for node in up if node.name in listed]
        busy = sorted(at_once(self._store.busy_jobs(jobs)))
        names = [node.name for node in up]
        self._history.seen.append(Survey(self._loop.time(), owners, told, names, untold, drained, busy))

    def _untold(self, node: SimNode) -> Iterator[str]:
        """What the coordinator does not say of a scheduler, though its configuration does."""
        entries, wanted = self._store.realm.entries, node.configured
        entry, listed = entries.get(f"{LIVE}/{node.name}"), entries.get(f"{ALL}/{node.name}")
        peer = None if entry is None else decode(entry.value, Peer)
        if peer is None or (peer.name, peer.faults, peer.alarm) != (node.name, wanted.faults, wanted.alarm):
            yield f"{LIVE}/{node.name} says {peer}"
        if listed is None:
            yield f"{ALL}/{node.name} is missing"

    def _count_takeovers(self) -> None:
        """Jobs that were fired by another than before, because that one could not."""
        named = {node.name: node for node in self._nodes}
        for it in self._history.fired[self._counted :]:
            last = self._last.get(it.job_id)
            if last is not None and last.name != it.node and last.is_impaired:
                self._history.counts.takeovers += 1
            self._last[it.job_id] = named[it.node]
        self._counted = len(self._history.fired)

    def _close(self) -> None:
        history = self._history
        history.end_s, history.end_us = self._loop.time(), micros(self.clock.wall())
        items = at_once(self._store.queued(limit=10_000))
        now = self.clock.wall()
        for it in items:
            since_s = history.end_s - (now - it.not_before_at).total_seconds()
            if it.state is not ItemState.WAITING:
                history.stuck.append(StuckItem(it.item_id, since_s, it.state))
        history.counts.chance = self._loop.throw()
        for node in self._nodes:
            node.crash()

    def _begin(self, fault: PlannedFault) -> None:
        self._history.lines.append(Line(self._loop.time(), str(fault)))
        if fault.kind in self._acts:
            self._acts[fault.kind](self, fault)
            return
        for link in self._links(fault):
            link.begin(fault)
            self._loop.call_at(fault.until_s, link.end, fault)

    def _links(self, fault: PlannedFault) -> list[SimLink]:
        nodes = self._nodes if fault.node < 0 else [self._nodes[fault.node]]
        links = []
        if fault.kind in _STORE | _BOTH:
            links += [node.store_link for node in nodes]
        if fault.kind in _COORDINATOR | _BOTH:
            links += [node.coordinator_link for node in nodes]
        return links

    def node_of(self, fault: PlannedFault) -> SimNode:
        return self._nodes[fault.node]

    def _crash(self, fault: PlannedFault) -> None:
        node = self.node_of(fault)
        node.crash()
        self._loop.call_at(fault.until_s, node.start)

    def _stop(self, fault: PlannedFault) -> None:
        node = self.node_of(fault)
        node.stop()
        self._loop.call_at(fault.until_s, self._restart, node)

    def _restart(self, node: SimNode) -> None:
        """Whoever has not left by now is killed."""
        node.crash()
        node.start()

    def _swap(self, fault: PlannedFault) -> None:
        node, spare = self._nodes[fault.node], self._nodes[-1]
        if node.is_up and not spare.is_up:
            self._change_places(node, spare, fault.at_s + SWAPPED_S)
            self._loop.call_at(fault.until_s, self._change_places, spare, node, fault.until_s + SWAPPED_S)

    def _change_places(self, going: SimNode, coming: SimNode, until_s: float) -> None:
        """At the instant at which one takes part, the other is gone: nobody sees one more or one less."""
        coming.start()
        if f"live/{coming.name}" in self._store.realm.entries or self._loop.time() >= until_s:
            going.crash()
            self.end_session(going)
        else:
            self._loop.call_later(TICK_S, self._change_places, going, coming, until_s)

    def _drain(self, fault: PlannedFault) -> None:
        name = self.node_of(fault).name
        self._do(lambda: self._store.transact(drain, [Drain(name=name)]))
        self._history.drained.append(HostWindow(name, fault.at_s, fault.until_s))
        self._loop.call_at(fault.until_s, self._undrain, name, fault.until_s)

    def _undrain(self, name: str, at_s: float) -> None:
        if not any(it.host == name and it.until_s > at_s for it in self._history.drained):
            self._do(lambda: self._store.transact(undrain, [name], tuple(Role)))

    def _cancel(self, fault: PlannedFault) -> None:
        live = [it.run_id for it in at_once(self._store.queued(limit=10_000)) if it.job_id == round(fault.much) + 1]
        self._do(lambda: self._store.transact(cancel, sorted(set(live)), rule=Advance()))

    def _do(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """What a person does: at once, or, where transactions wait for each other, as soon as may be."""
        if not self._scenario.interleaved:
            at_once(work())
            return
        task = self._loop.create_task(_insist(work))
        self._people.add(task)
        task.add_done_callback(self._people.discard)

    def _pause_node(self, fault: PlannedFault) -> None:
        node = self.node_of(fault)
        node.freeze(fault, whole=True)
        self._history.frozen.append(HostWindow(node.name, fault.at_s, fault.until_s))

    def end_session(self, node: SimNode) -> None:
        entry = self._store.realm.entries.get(f"live/{node.name}")
        if entry is not None and entry.session in self._store.realm.sessions:
            self._history.counts.expired_sessions += 1
            self._store.realm.end(entry.session)

    def _half_enter(self, fault: PlannedFault) -> None:
        self.end_session(self.node_of(fault))
        self.node_of(fault).coordinator_link.waiting = fault

    _acts: dict[FaultKind, Callable[[World, PlannedFault], None]] = {  # noqa: RUF012 - never changed
        FaultKind.CRASH: _crash,
        FaultKind.RESTART: _crash,
        FaultKind.STOP: _stop,
        FaultKind.SWAP: _swap,
        FaultKind.DRAIN: _drain,
        FaultKind.CANCEL: _cancel,
        FaultKind.PAUSE_AGENT: lambda world, it: world.node_of(it).freeze(it, whole=False),
        FaultKind.PAUSE_NODE: _pause_node,
        FaultKind.EXPIRE: lambda world, it: world.end_session(world.node_of(it)),
        FaultKind.HALF_ENTERED: _half_enter,
        FaultKind.STEP_NODE: lambda world, it: world.node_of(it).clock.step(it.much),
        FaultKind.DRIFT: lambda world, it: world.node_of(it).clock.drift(it.much),
        FaultKind.STEP_STORE: lambda world, it: world.clock.step(it.much),
    }


async def _insist(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Do what a person does, again if the store did not take it."""
    while True:
        with suppress(StoreUnavailable):
            await work()
            return


def _definition(job: SimJob, number: int) -> Definition:
    return Definition(
        tenant=job.tenant,
        name=f"job-{number}",
        schedule=Schedule(rule=Every(every_s=job.every_s)),
        misfire=Misfire(policy=MisfirePolicy.ONCE, grace_s=10.0),
        overlap=Overlap(policy=job.overlap, live_max=2, queue_max=1),
        tasks=(Task(name="main", runner="shell", config={"work_s": job.work_s}, retry=RETRY),),
    )


@contextmanager
def _silent() -> Iterator[None]:
    """A cluster under faults has much to say, and nobody listens."""
    was = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**was)
