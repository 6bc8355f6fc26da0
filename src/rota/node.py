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
from rota.loops.dispatcher import Dispatcher
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


def _no_apps(homes: dict[str, str]) -> None:
    """A runner that calls no apps has none to replace."""


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
    set_apps: SetApps = _no_apps
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The loops of one node, and what they share."""

    signals: Signals
    in_hand: AttemptsInHand
    member: Member
    scheduler: Scheduler
    dispatcher: Dispatcher
    executor: Executor | None
    finishers: Sequence[Finisher]
    rescuer: Rescuer
    expirer: Expirer
    others: Sequence[Loop]
    """Loops that look after this node and the cluster."""
    definer: Definer | None
    participation: Participation | None
    process: NodeProcess
    """Runs all of them."""


def build(config: Config, ports: Ports, tuning: Tuning = USUAL) -> Parts:
    """A node, not running yet."""
    return _NodeBuilder(config, ports, tuning).build()


class _NodeBuilder:
    """Makes the parts in the order in which they need each other."""

    def __init__(self, config: Config, ports: Ports, tuning: Tuning) -> None:
        self._config = config
        self._ports = ports
        self._tuning = tuning
        self._store, self._clock, self._identity = ports.store, ports.clock, ports.identity
        self._incarnation = ports.clock.token()
        self._fires = config.node.roles != "executor"
        self._signals = Signals()
        self._duties = Duties()
        self._in_hand = AttemptsInHand(self._signals)
        self._loader = Loader(ports.store)
        self._advertiser = Advertiser(
            ports.store,
            ports.identity,
            config,
            ports.host,
            ports.runner,
            ports.apps,
            set_apps=ports.set_apps,
            version=__version__,
        )

    def build(self) -> Parts:
        participation = self._participation()
        scheduler = Scheduler(
            self._store,
            self._clock,
            self._config.scheduler,
            ownership=None if participation is None else participation.placer,
            signals=self._signals,
            overdue_s=self._config.coordinator.session_s + 1.0,
        )
        executor, finishers = self._executor(), self._finishers()
        dispatcher = self._dispatcher(executor)
        rescuer, expirer = self._rescuer(participation), self._expirer(participation)
        definer = self._definer()
        others = self._others(participation, dispatcher)
        member = self._member(executor)
        process = NodeProcess(
            store=self._store,
            identity=self._identity,
            member=member,
            firing=[
                *([scheduler] if self._fires else []),
                *([] if definer is None else [definer]),
                *(() if participation is None else participation.loops),
            ],
            working=[dispatcher, rescuer, expirer, *others, *finishers, *([] if executor is None else [executor])],
            execution=self._execution(executor),
            participation=participation,
            door=self._ports.door,
            outages=self._outages(participation),
            signals=self._signals,
        )
        self._connect(scheduler, dispatcher, executor, finishers, process)
        self._calm([*process.firing, *process.working])
        return Parts(
            signals=self._signals,
            in_hand=self._in_hand,
            member=member,
            scheduler=scheduler,
            dispatcher=dispatcher,
            executor=executor,
            finishers=finishers,
            rescuer=rescuer,
            expirer=expirer,
            others=others,
            definer=definer,
            participation=participation,
            process=process,
        )

    def _connect(
        self,
        scheduler: Scheduler,
        dispatcher: Dispatcher,
        executor: Executor | None,
        finishers: Sequence[Finisher],
        process: NodeProcess,
    ) -> None:
        """Who wakes whom: what was fired, what ended, what placement decides, and what the store tells."""
        signals = self._signals
        signals.ownership_changed.on(scheduler.wake)
        signals.coordinator_given_up.on(process.lose_coordinator)
        for finisher in finishers:  # whoever comes first takes the batch
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

    @property
    def _is_told(self) -> bool:
        return self._store.hears or self._store.is_called

    def _participation(self) -> Participation | None:
        """This scheduler's part in the placement of the cluster."""
        coordinator, placement = self._ports.coordinator, self._config.placement
        if coordinator is None or placement.kind == "none" or not self._fires:
            return None
        return participate(
            self._store,
            coordinator,
            self._clock,
            placement,
            self._peer,
            signals=self._signals,
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

    def _executor(self) -> Executor | None:
        if self._ports.runner is None:
            return None
        parts = (self._store, self._clock, self._config.executor, self._identity)
        return Executor(*parts, self._ports.runner, self._in_hand, self._loader, version=__version__)

    def _finishers(self) -> list[Finisher]:
        if self._ports.runner is None:
            return []
        parts = (self._store, self._clock, self._config.executor, self._identity, self._in_hand, self._loader)
        gather_s = self._tuning.gather_s if self._store.hears else 0.0
        margin_s = self._config.lease.margin_s
        return [
            Finisher(*parts, signals=self._signals, gather_s=gather_s, margin_s=margin_s)
            for _ in range(self._tuning.finishers)
        ]

    def _execution(self, executor: Executor | None) -> Execution | None:
        if executor is None or self._ports.runner is None:
            return None
        return Execution(runner=self._ports.runner, in_hand=self._in_hand, executor=executor)

    def _dispatcher(self, executor: Executor | None) -> Dispatcher:
        rests = self._tuning.rests_until_woken
        return Dispatcher(
            self._store,
            self._clock,
            self._config.dispatch,
            self._identity,
            executor,
            hears=self._store.hears if rests is None else rests,
            is_called=self._store.is_called,
        )

    def _member(self, executor: Executor | None) -> Member:
        runner = self._ports.runner
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
            settle=Settler(self._store, self._in_hand, self._loader, executor, runner).settled,
        )

    def _rescuer(self, participation: Participation | None) -> Rescuer:
        return Rescuer(
            self._store,
            self._clock,
            self._config.lease,
            self._identity,
            self._ports.runner,
            self._loader,
            duty=self._duty("rescue", participation),
            pace=self._tuning.rescue_pace,
            is_told=self._is_told,
        )

    def _expirer(self, participation: Participation | None) -> Expirer:
        parts = (self._store, self._clock, self._config.lease, self._loader)
        return Expirer(*parts, duty=self._duty("expire", participation), pace=self._tuning.expire_pace)

    def _others(self, participation: Participation | None, dispatcher: Dispatcher) -> list[Loop]:
        ports, duty = self._ports, self._duty("prune", participation)
        found: list[Loop] = [
            Pruner(self._store, self._clock, self._config.retention, ports.logs, duty=duty),
            Evictor(self._store, self._clock),
        ]
        if ports.courier is not None:
            found.append(self._alarmer(ports.courier, participation))
        if ports.prober is not None:
            found.append(self._inspector(ports.prober, participation, dispatcher))
        if ports.runner is not None:
            found.append(AbilityReporter(self._clock, ports.runner, self._advertiser.tell_unable))
            found.append(Reconciler(self._store, self._clock, self._identity, self._in_hand, self._loader))
        return found

    def _alarmer(self, courier: Courier, participation: Participation | None) -> Alarmer:
        """What tells people; it hears of what this node notices."""
        store, clock, signals, most = self._store, self._clock, self._signals, self._config.placement.alarm
        view = None
        if (
            self._ports.coordinator is not None
            and participation is not None
            and isinstance(participation.placer, ClaimPlacer)
        ):
            view = ClusterView(store, self._ports.coordinator, clock)
        alarmer = Alarmer(
            store,
            clock,
            self._config.node.name,
            duty=self._duty("alarms", participation),
            levels=LevelWatcher(store, clock, view, session_s=self._config.coordinator.session_s),
            courier=courier,
            is_coordinator_lost=self._is_coordinator_lost(participation),
        )
        signals.attempt_warned.on(alarmer.pending.warned)
        signals.attempt_began.on(alarmer.pending.began)
        if most:
            signals.acquired.on(lambda _, held: alarmer.pending.acquired(held, most))
        return alarmer

    def _is_coordinator_lost(self, participation: Participation | None) -> Callable[[], bool]:
        if participation is None or not self._config.coordinator.url:
            return lambda: False  # if the store coordinates, it is the store itself that is lost
        keeper = participation.keeper
        return lambda: keeper.failures > 0 and not keeper.is_believed

    def _inspector(self, prober: Ping, participation: Participation | None, dispatcher: Dispatcher) -> Inspector:
        async def leave_out(lost: Sequence[Node]) -> None:
            dispatcher.leave_out(frozenset(node.id for node in lost))
            await self._advertiser.tell_unreachable(lost)

        return Inspector(
            self._store,
            self._clock,
            self._config.node.name,
            prober,
            every_s=self._config.node.check_s,
            here=self._ports.host.place,
            on_changed=leave_out,
            publish=None if participation is None else lambda names: participation.keeper.tell(unreachable=names),
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

    def _duty(self, name: str, participation: Participation | None) -> Duty:
        return Duty(
            self._store,
            None if participation is None else self._ports.coordinator,
            self._clock,
            name,
            self._config.node.name,
            busy=self._busy,
            placement=self._config.placement,
            takes_part=self._fires,
            duties=self._duties,
        )

    def _outages(self, participation: Participation | None) -> list[Outage]:
        """What the loops of this node know together of their servers."""
        store = store_outage(self._clock, self._store)
        if participation is None:
            return [store]
        return [store, coordinator_outage(self._clock, participation.coordinator)]

    def _busy(self) -> float:
        host, runner = self._ports.host, self._ports.runner
        seats = 0 if runner is None else self._config.executor.seats
        return busy(host.cpu(), len(self._in_hand.attempts), seats, host.memory())
