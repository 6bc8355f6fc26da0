"""Put a node together: which loops it has, and who wakes whom.

scheduler, definer ──> dispatcher ──> executor ──> crew ──> finisher ──> dispatcher
                           ^ the store tells of news where it can
member, rescuer, pruner, warden look after this node and the others; alarmer tells people
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rota import config
from rota.config import Config
from rota.control import Control
from rota.control.job_courier import JobCourier
from rota.core.score import busy
from rota.core.zones import data_version
from rota.definitions.loaded import Loaded
from rota.definitions.watch import Watched
from rota.loops.alarmer import Alarmer
from rota.loops.definer import Definer
from rota.loops.dispatcher import Dispatcher
from rota.loops.duty import Duty
from rota.loops.executor import Executor
from rota.loops.finisher import Finisher, wake_all
from rota.loops.host import Execution, Host
from rota.loops.identity import Identity
from rota.loops.inspector import Inspector
from rota.loops.live import Live
from rota.loops.loader import Loader
from rota.loops.lookout import Lookout
from rota.loops.loop import Loop
from rota.loops.member import Member
from rota.loops.placement.attendant import Attendant
from rota.loops.placement.claimer import Claimer
from rota.loops.placement.known import Known
from rota.loops.placement.part import Part, driver
from rota.loops.post import Post
from rota.loops.pruner import Pruner
from rota.loops.rescuer import Rescuer
from rota.loops.scheduler import Scheduler
from rota.loops.waking import connect
from rota.loops.warden import Warden
from rota.model.cluster import Peer, Placement
from rota.model.job import listener_name
from rota.model.node import NewNode, Place
from rota.ports import Clock, Coordinator, Courier, LogStore, Store
from rota.rest.app import app
from rota.rest.door import Door
from rota.rest.ping import Pinger
from rota.runners.machine import Machine
from rota.runners.place import here
from rota.version import __version__

if TYPE_CHECKING:
    from rota.runners.crew import ProcessCrew

SPARE_PROCESSES = 16
"""How many processes a crew may have beyond one for each seat."""
FINISHERS = 2
"""While one waits for its commit, the other gathers the next batch."""
GATHER_S = 0.01
"""How long ends gather while they come quickly one after the other, where each batch is told to others. The first
after a pause is written at once."""


class Assembly:
    """The parts of one node."""

    def __init__(
        self,
        store: Store,
        coordinator: Coordinator,
        clock: Clock,
        config: Config,
        paths: Sequence[str],
        logs: LogStore,
        state_dir: Path,
    ) -> None:
        self._store = store
        self._coordinator = coordinator
        self._incarnation = clock.token()
        self._joined_at = clock.wall()
        self._weakness: str | None = None
        self._clock = clock
        self._config = config
        self._logs = logs
        self._source = Watched(paths, lambda: clock.wall().date()) if paths else None
        self._state_dir = state_dir
        self._identity = Identity(config.node.name)
        self._machine = Machine()
        node = config.node
        self._door = Door(app(node.name, __version__, self._is_ready), node.listen, node.advertise)
        self._live = Live()
        self._loaded = Loaded()
        self._crew: ProcessCrew | None = None

    async def host(self, scheduler: Scheduler) -> Host:
        """The node, not running yet. Its apps are read first, so that it knows what it can run when it joins."""
        if self._source is not None:
            self._loaded = await self._source.load()
        loader = Loader(self._store)
        execution, finishers = self._execution(loader) if self._config.executor.seats else (None, [])
        executor = None if execution is None else execution.executor
        dispatcher = Dispatcher(
            self._store, self._clock, self._config.dispatch, self._identity, executor, hears=self._store.hears
        )
        self._live.wake_finisher = wake_all(finishers)
        connect(self._store, self._identity, scheduler, dispatcher, executor, finishers)
        member = Member(
            self._store,
            self._clock,
            self._config.lease,
            self._identity,
            self._crew,
            describe=self._describe,
            busy=self._busy,
            abandon=None if executor is None else executor.abandon,
        )
        live = None if execution is None else self._live
        rescuer = Rescuer(self._store, self._clock, self._config.lease, self._identity, self._crew, loader, live)
        warden = Warden(self._store, self._clock)
        part = self._part()
        pruner = Pruner(self._store, self._clock, self._config.retention, self._logs, duty=self._duty("prune", part))
        inspector = [] if part is None else [self._inspector(part)]
        host = Host(
            store=self._store,
            identity=self._identity,
            member=member,
            firing=[scheduler, *self._definer(), *(() if part is None else part.loops)],
            working=[
                dispatcher,
                rescuer,
                pruner,
                warden,
                self._alarmer(part, live),
                *inspector,
                *finishers,
                *([] if executor is None else [executor]),
            ],
            execution=execution,
            part=part,
            door=self._door,
        )
        if part is not None:
            part.connect(scheduler, host.stop_at_once)
        return host

    def _part(self) -> Part | None:
        """This scheduler's part in the placement of the cluster."""
        placement = self._config.placement
        if placement.kind == "none":
            return None
        attendant = Attendant(
            self._coordinator, self._clock, self._peer, busy=self._busy, on_lost=self._config.coordinator.on_lost
        )
        return Part(
            coordinator=self._coordinator,
            attendant=attendant,
            driver=driver(self._store, self._coordinator, self._clock, placement, attendant),
        )

    def _alarmer(self, part: Part | None, live: Live | None) -> Alarmer:
        """What tells people; it hears of what this node notices."""
        store, clock, name = self._store, self._clock, self._config.node.name
        claimer = part.driver if part is not None and isinstance(part.driver, Claimer) else None
        known = None if claimer is None else Known(store, self._coordinator, clock)
        alarmer = Alarmer(
            store,
            clock,
            name,
            duty=self._duty("alarms", part),
            lookout=Lookout(store, clock, known, session_s=self._config.coordinator.session_s),
            post=Post(store, make_courier(self._config, clock, self._state_dir, Control(store, clock))),
            live=live,
        )
        notes = alarmer.notebook
        self._live.on_warned, self._live.on_begun = notes.warned, notes.began
        if claimer is not None and (most := self._config.placement.alarm):
            claimer.on_acquired = lambda _: notes.acquired(len(claimer.held), most)
        if part is not None and self._config.coordinator.url:  # else it is the store itself that is lost
            attendant = part.attendant
            alarmer.is_coordinator_lost = lambda: attendant.failures > 0 and not attendant.is_believed
        return alarmer

    def _duty(self, name: str, part: Part | None) -> Duty:
        coordinator = None if part is None else self._coordinator
        return Duty(self._store, coordinator, self._clock, name, self._config.node.name, busy=self._busy)

    def _inspector(self, part: Part) -> Inspector:
        every_s = self._config.node.check_s
        return Inspector(self._store, self._clock, part.attendant, Pinger(), every_s=every_s)

    def _is_ready(self) -> bool:
        return self._identity.id is not None

    def _peer(self) -> Peer:
        placement = self._config.placement
        return Peer(
            name=self._config.node.name,
            incarnation=self._incarnation,
            address=self._door.address,
            version=__version__,
            placement=Placement(placement.kind),
            weight=placement.weight,
            faults=placement.faults,
            alarm=placement.alarm or None,
        )

    def _execution(self, loader: Loader) -> tuple[Execution, list[Finisher]]:
        crew = self._crew = self._make_crew()
        parts = (self._store, self._clock, self._config.executor, self._identity)
        executor = Executor(*parts, crew, self._live, loader)
        gather_s = GATHER_S if self._store.hears else 0.0
        finishers = [Finisher(*parts, self._live, loader, gather_s=gather_s) for _ in range(FINISHERS)]
        return Execution(crew=crew, live=self._live, executor=executor), finishers

    def _make_crew(self) -> ProcessCrew:
        from rota.runners.crew import ProcessCrew
        from rota.runners.settings import PROCESSES_MAX, CrewSettings

        executor = self._config.executor
        settings = CrewSettings(
            node=self._config.node.name,
            state_dir=str(self._state_dir),
            boundary=executor.boundary or None,
            apps=dict(self._loaded.homes),
            modules=_words(executor.modules),
            paths=(str(Path.cwd()),),
            hosts=_words(executor.http_hosts),
            environment=config.environment(),
            processes_max=max(PROCESSES_MAX, executor.seats + SPARE_PROCESSES),
        )
        return ProcessCrew(settings, self._logs, log_max=self._config.logs.max_bytes)

    def _definer(self) -> list[Loop]:
        if self._source is None:
            return []
        apply = Control(self._store, self._clock).apply
        return [Definer(self._source, apply, self._clock, self._config.definitions, on_loaded=self._reload)]

    async def _reload(self, loaded: Loaded) -> None:
        """The apps were read anew: workers of changed files are replaced, the others are told what this node has."""
        if (loaded.homes, loaded.digest) == (self._loaded.homes, self._loaded.digest):
            return
        if self._crew is not None:
            self._crew.set_apps(dict(loaded.homes))
        if self._identity.id is not None:
            await self._store.advertise(self._identity.id, self._handlers(loaded), self._digests(loaded))
        self._loaded = loaded  # only now: what was not told is told at the next load

    def _digests(self, loaded: Loaded) -> dict[str, str]:
        """What the doctor looks at: apps, time-zone data, this host's clock when the node joined, and why its boundary
        is not a stronger one."""
        if self._weakness is None and self._crew is not None and self._crew.boundary:
            from rota.runners.boundary.kinds import why_not_stronger

            self._weakness = why_not_stronger(self._crew.boundary)
        found = {"apps": loaded.digest, "tzdata": data_version(), "wall": self._joined_at.isoformat()}
        return {name: text for name, text in {**found, "boundary": self._weakness or ""}.items() if text}

    def _describe(self, incarnation: str) -> NewNode:
        executor = self._config.executor
        self._joined_at = self._clock.wall()
        return NewNode(
            name=self._config.node.name,
            incarnation=incarnation,
            place=self._place(),
            group=executor.group,
            number=executor.number,
            seats=executor.seats,
            handlers=self._handlers(self._loaded),
            digests=self._digests(self._loaded),
            boundary="" if self._crew is None else self._crew.boundary,
            version=__version__,
            address=self._door.address,
        )

    def _place(self) -> Place:
        return here()

    def _handlers(self, loaded: Loaded) -> tuple[str, ...]:
        modules = [f"{name}:*" for name in _words(self._config.executor.modules)]
        return (*loaded.handlers, *(listener_name(it) for it in loaded.listeners), *modules)

    def _busy(self) -> float:
        taken, seats = len(self._live.attempts), self._config.executor.seats
        return busy(self._machine.cpu(), taken, seats, self._machine.memory())


def make_courier(wanted: Config, clock: Clock, state_dir: Path, control: Control) -> Courier:
    """What takes messages to people from this host, and to jobs."""
    from rota.runners.channels import ChannelCourier, CourierSettings

    alarm = wanted.alarm
    settings = CourierSettings(
        smtp_host=alarm.smtp_host,
        smtp_port=alarm.smtp_port,
        smtp_user=alarm.smtp_user,
        smtp_password=alarm.smtp_password,
        smtp_from=alarm.smtp_from,
        smtp_tls=alarm.smtp_tls,
        hosts=_words(alarm.hosts),
        environment=config.environment(),
        state_dir=str(state_dir),
        node=wanted.node.name,
    )
    return JobCourier(control, ChannelCourier(settings, clock))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))
