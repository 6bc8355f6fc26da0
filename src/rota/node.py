"""Put a node together: the only place that knows which loops a node has, and who wakes whom.

    scheduler, definer ──> dispatcher ──> executor ──> runner ──> finisher ──> dispatcher
                               ^ the store tells of news where it can
    member, reconciler, ability reporter look after this node; rescuer, expirer, pruner, inspector, evictor after the
    cluster; placer and alarmer have packages of their own

It takes its world from `Ports`, so the command line (through `wiring`), the simulation and the testing kit all build
the same node. It never imports an adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rota.alarms.alarmer import Alarmer
from rota.alarms.levels import LevelWatcher
from rota.config import Config
from rota.control import Control
from rota.control.jobs import Action, sources_of
from rota.core.placement.beat import busy
from rota.definitions.loaded import Loaded
from rota.loops.advertiser import AbilityReporter, Advertiser, Apps, HostFacts, SetApps
from rota.loops.definer import Definer, Source
from rota.loops.dispatcher import QUIET_S, Dispatcher
from rota.loops.duty import Duties, Duty
from rota.loops.evictor import Evictor
from rota.loops.executor import Executor
from rota.loops.expirer import Expirer
from rota.loops.finisher import Finisher
from rota.loops.in_hand import AttemptsInHand
from rota.loops.inspector import Inspector, Ping
from rota.loops.loader import Loader
from rota.loops.loop import Loop
from rota.loops.member import Identity, Member
from rota.loops.node_process import Execution, NodeDoor, NodeProcess
from rota.loops.outage import Outage, coordinator_outage, store_outage
from rota.loops.placer.claim import ClaimPlacer
from rota.loops.placer.cluster_view import ClusterView
from rota.loops.placer.participation import Participation, participate
from rota.loops.placer.repairer import Repairer
from rota.loops.pruner import Pruner
from rota.loops.reconciler import Reconciler, Settler
from rota.loops.rescuer import Rescuer
from rota.loops.scheduler import Scheduler
from rota.loops.signals import Signals
from rota.model.cluster import Peer, Placement
from rota.model.job import Definition
from rota.model.node import Node
from rota.ports import Clock, Coordinator, Courier, LogStore, Runner, Store
from rota.version import __version__

NO_APPS = Loaded()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The world of one node. A node without a runner executes nothing; without a coordinator it places nothing; without
    a courier, a prober or definitions it has no loop that would need them."""

    store: Store
    clock: Clock
    identity: Identity
    host: HostFacts
    coordinator: Coordinator | None = None
    runner: Runner | None = None
    logs: LogStore | None = None
    courier: Courier | None = None
    prober: Ping | None = None
    """Asks who answers at an address."""
    definitions: Source | None = None
    apps: Apps = NO_APPS
    """What the definitions were when this node was made: it knows what it can run when it joins."""
    set_apps: SetApps = lambda homes: None
    """A runner that calls no apps has none to replace."""
    door: NodeDoor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """What nobody configures, but a simulation and a testing kit set for themselves."""

    finishers: int = 2
    """While one waits for its commit, the other gathers the next batch."""
    gather_s: float = 0.03
    """How long ends gather while they come quickly one after the other, where each batch is told to others. The first
    after a pause is written at once."""
    rescue_pace: float = 1.0
    """How much less often the rescuer looks than usual."""
    expire_pace: float = 1.0
    """The same of the expirer."""
    rests_until_woken: bool | None = None
    """True if the dispatcher need not look by itself; none: if the store tells of news."""


USUAL = Tuning()

LOOKS_S: dict[type[Loop], float] = {
    Scheduler: 15.0,
    Expirer: 15.0,
    Evictor: 10.0,
    Alarmer: 30.0,
    Pruner: 120.0,
    Reconciler: 60.0,
    ClaimPlacer: 120.0,
    Repairer: 300.0,
}
"""How long loops rest while nothing happens, where the store tells if something does. It bounds what was not told."""

ALONE_LOOK_S = 86_400.0
"""How long a dispatcher rests that is alone with its store: nothing can happen of which it is not told."""


class Parts:
    """The loops of one node, not running yet, and what they share. They are made in the order in which they need each
    other; `process` runs all of them."""

    def __init__(self, config: Config, ports: Ports, tuning: Tuning = USUAL) -> None:
        self._config, self._ports, self._tuning = config, ports, tuning
        self._store, self._clock, self._identity = ports.store, ports.clock, ports.identity
        self._incarnation = ports.clock.token()
        self._fires = config.node.roles != "executor"
        self._is_told = ports.store.hears or ports.store.is_called
        self._duties = Duties()
        self._loader = Loader(ports.store)
        self._advertiser = Advertiser(
            ports.store, ports.identity, config, ports.host, ports.runner, ports.apps, ports.set_apps, __version__
        )
        self.signals = Signals()
        self.in_hand = AttemptsInHand(self.signals)
        self.participation = self._participation()
        self.scheduler = self._scheduler()
        self.executor, self.finishers = self._executor(), self._finishers()
        self.dispatcher = self._dispatcher()
        self.rescuer, self.expirer = self._rescuer(), self._expirer()
        self.member = self._member()
        self.process = self._process()
        self._connect()
        self._calm([*self.process.firing, *self.process.working])

    def _process(self) -> NodeProcess:
        part = self.participation
        firing = [self.scheduler if self._fires else None, self._definer(), *(() if part is None else part.loops)]
        working = [self.dispatcher, self.rescuer, self.expirer, *self._others(), *self.finishers, self.executor]
        return NodeProcess(
            store=self._store,
            identity=self._identity,
            member=self.member,
            firing=[it for it in firing if it is not None],
            working=[it for it in working if it is not None],
            execution=self._execution(),
            participation=part,
            door=self._ports.door,
            outages=self._outages(),
            signals=self.signals,
        )

    def _connect(self) -> None:
        """Who wakes whom: what was fired, what ended, what placement decides, and what the store tells."""
        signals, dispatcher, executor = self.signals, self.dispatcher, self.executor
        signals.ownership_changed.on(self.scheduler.wake)
        signals.coordinator_given_up.on(self.process.lose_coordinator)
        for finisher in self.finishers:  # whoever comes first takes the batch
            signals.unwritten.on(finisher.wake)
        if not self._store.hears:  # nobody else will tell, and while work ends, more may have come
            signals.fired.on(lambda _: dispatcher.wake())
            signals.committed.on(dispatcher.wake)

        def heard(topic: str) -> None:
            if topic == "dispatch":
                dispatcher.wake()
            elif topic == "seats":
                dispatcher.freed()
            elif topic == "look":
                dispatcher.look()
            elif executor is not None and topic == f"node:{self._identity.id}":
                executor.look()

        self._store.listen(heard)

    def _calm(self, loops: Sequence[Loop]) -> None:
        """Let loops rest while the store tells of no news of work; any of it is some for all of them."""
        if not self._is_told:
            return
        for loop in loops:
            loop.quiet_s = LOOKS_S.get(type(loop), 0.0)

        def stir(topic: str) -> None:
            if not topic.startswith("entry:"):  # that wakes whom it concerns
                for loop in loops:
                    loop.stir()

        self._store.listen(stir)

    def _participation(self) -> Participation | None:
        coordinator, placement = self._ports.coordinator, self._config.placement
        if coordinator is None or placement.kind == "none" or not self._fires:
            return None
        return participate(
            self._store,
            coordinator,
            self._clock,
            placement,
            self._peer,
            signals=self.signals,
            busy=self._busy,
            on_lost=self._config.coordinator.on_lost,
        )

    def _peer(self) -> Peer:
        placement = self._config.placement
        return Peer(
            name=self._config.node.name,
            incarnation=self._incarnation,
            address=self._ports.host.address,
            version=__version__,
            placement=Placement(placement.kind),
            weight=placement.weight,
            faults=placement.faults,
            alarm=placement.alarm or None,
        )

    def _scheduler(self) -> Scheduler:
        return Scheduler(
            self._store,
            self._clock,
            self._config.scheduler,
            ownership=None if self.participation is None else self.participation.placer,
            signals=self.signals,
            overdue_s=self._config.coordinator.session_s + 1.0,
        )

    def _executor(self) -> Executor | None:
        if self._ports.runner is None:
            return None
        parts = (self._store, self._clock, self._config.executor, self._identity)
        return Executor(*parts, self._ports.runner, self.in_hand, self._loader, version=__version__)

    def _finishers(self) -> list[Finisher]:
        if self._ports.runner is None:
            return []
        parts = (self._store, self._clock, self._config.executor, self._identity, self.in_hand, self._loader)
        gather_s, margin_s = self._tuning.gather_s if self._store.hears else 0.0, self._config.lease.margin_s
        several = range(self._tuning.finishers)
        return [Finisher(*parts, signals=self.signals, gather_s=gather_s, margin_s=margin_s) for _ in several]

    def _execution(self) -> Execution | None:
        if self.executor is None or self._ports.runner is None:
            return None
        return Execution(runner=self._ports.runner, in_hand=self.in_hand, executor=self.executor)

    def _dispatcher(self) -> Dispatcher:
        rests = self._tuning.rests_until_woken
        return Dispatcher(
            self._store,
            self._clock,
            self._config.dispatch,
            self._identity,
            self.executor,
            hears=self._store.hears if rests is None else rests,
            is_called=self._store.is_called,
            quiet_look_s=ALONE_LOOK_S if rests else QUIET_S,
        )

    def _member(self) -> Member:
        runner, executor = self._ports.runner, self.executor
        return Member(
            self._store,
            self._clock,
            self._config.lease,
            self._identity,
            runner,
            describe=self._advertiser.describe,
            busy=self._busy,
            abandon=None if executor is None else executor.abandon,
            is_gone=self._ports.host.is_gone,
            settle=Settler(self._store, self.in_hand, self._loader, executor, runner).settled,
        )

    def _rescuer(self) -> Rescuer:
        return Rescuer(
            self._store,
            self._clock,
            self._config.lease,
            self._identity,
            self._ports.runner,
            self._loader,
            duty=self._duty("rescue"),
            pace=self._tuning.rescue_pace,
            is_told=self._is_told,
        )

    def _expirer(self) -> Expirer:
        parts = (self._store, self._clock, self._config.lease, self._loader)
        return Expirer(*parts, duty=self._duty("expire"), pace=self._tuning.expire_pace)

    def _others(self) -> list[Loop]:
        ports, duty = self._ports, self._duty("prune")
        found: list[Loop] = [
            Pruner(self._store, self._clock, self._config.retention, ports.logs, duty=duty),
            Evictor(self._store, self._clock),
        ]
        if ports.courier is not None:
            found.append(self._alarmer(ports.courier))
        if ports.prober is not None:
            found.append(self._inspector(ports.prober))
        if ports.runner is not None:
            found.append(AbilityReporter(self._clock, ports.runner, self._advertiser.tell_unable))
            found.append(Reconciler(self._store, self._clock, self._identity, self.in_hand, self._loader))
        return found

    def _alarmer(self, courier: Courier) -> Alarmer:
        """What tells people; it hears of what this node notices."""
        store, clock, signals, most = self._store, self._clock, self.signals, self._config.placement.alarm
        part, view = self.participation, None
        if part is not None and isinstance(part.placer, ClaimPlacer):
            view = ClusterView(store, part.coordinator, clock)
        alarmer = Alarmer(
            store,
            clock,
            self._config.node.name,
            duty=self._duty("alarms"),
            levels=LevelWatcher(store, clock, view, session_s=self._config.coordinator.session_s),
            courier=courier,
            is_coordinator_lost=self._is_coordinator_lost(),
        )
        signals.attempt_warned.on(alarmer.pending.warned)
        signals.attempt_began.on(alarmer.pending.began)
        if most:
            signals.acquired.on(lambda _, held: alarmer.pending.acquired(held, most))
        return alarmer

    def _is_coordinator_lost(self) -> Callable[[], bool]:
        if self.participation is None or not self._config.coordinator.url:
            return lambda: False  # if the store coordinates, it is the store itself that is lost
        keeper = self.participation.keeper
        return lambda: keeper.failures > 0 and not keeper.is_believed

    def _inspector(self, prober: Ping) -> Inspector:
        part = self.participation

        async def leave_out(lost: Sequence[Node]) -> None:
            self.dispatcher.leave_out(frozenset(node.id for node in lost))
            await self._advertiser.tell_unreachable(lost)

        return Inspector(
            self._store,
            self._clock,
            self._config.node.name,
            prober,
            every_s=self._config.node.check_s,
            here=self._ports.host.place,
            on_changed=leave_out,
            publish=None if part is None else lambda names: part.keeper.tell(unreachable=names),
        )

    def _definer(self) -> Definer | None:
        if self._ports.definitions is None:
            return None
        control = Control(self._store, self._clock)

        async def apply(definitions: Sequence[Definition], loaded: Loaded) -> list[Action]:
            return await control.jobs.apply(definitions, sources_of(loaded))

        return Definer(
            self._ports.definitions,
            apply,
            self._clock,
            self._config.definitions,
            on_loaded=self._advertiser.tell_apps,
        )

    def _duty(self, name: str) -> Duty:
        return Duty(
            self._store,
            None if self.participation is None else self._ports.coordinator,
            self._clock,
            name,
            self._config.node.name,
            busy=self._busy,
            placement=self._config.placement,
            takes_part=self._fires,
            duties=self._duties,
        )

    def _outages(self) -> list[Outage]:
        store = store_outage(self._clock, self._store)
        if self.participation is None:
            return [store]
        return [store, coordinator_outage(self._clock, self.participation.coordinator)]

    def _busy(self) -> float:
        host, runner = self._ports.host, self._ports.runner
        seats = 0 if runner is None else self._config.executor.seats
        return busy(host.cpu(), len(self.in_hand.attempts), seats, host.memory())
