"""Put a node together: which loops it has, and who wakes whom.

scheduler, definer ──> dispatcher ──> executor ──> crew ──> finisher ──> dispatcher
                           ^ the store tells of news where it can
member, rescuer, pruner, warden look after this node and the others; alarmer tells people
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rota import config
from rota.config import Config
from rota.control import Action, Control, sources_of
from rota.control.job_courier import JobCourier
from rota.core.doctor import skew_s
from rota.core.score import busy
from rota.core.zones import data_version
from rota.definitions.loaded import Loaded
from rota.definitions.watch import PATIENCE_S, Watched
from rota.errors import StoreUnavailable
from rota.loops.ability import Ability
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
from rota.loops.outage import Outage, coordinator_outage, store_outage
from rota.loops.placement.attendant import Attendant
from rota.loops.placement.claimer import Claimer
from rota.loops.placement.known import Known
from rota.loops.placement.part import Part, take_part
from rota.loops.post import Post
from rota.loops.pruner import Pruner
from rota.loops.rescuer import Rescuer
from rota.loops.scheduler import Scheduler
from rota.loops.settling import Settling
from rota.loops.waking import connect
from rota.loops.warden import Warden
from rota.model.cluster import Peer, Placement
from rota.model.job import Definition
from rota.model.node import UNABLE, UNREACHABLE, NewNode, Node, Place
from rota.ports import Clock, Coordinator, Courier, LogStore, Store
from rota.rest.address import server_hosts
from rota.rest.app import app
from rota.rest.door import DESCRIPTORS, Door
from rota.rest.ping import Pinger
from rota.runners.descriptors import raise_limit, trees_max
from rota.runners.machine import Machine
from rota.runners.place import here, process_is_gone
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
        self._skew_s: float | None = None
        self._unreachable: tuple[int, ...] = ()
        self._unable = ""
        self._weakness: str | None = None
        self._promise = ""
        self._clock = clock
        self._fires = config.node.roles != "executor"
        if config.node.roles == "scheduler":
            config = msgspec.structs.replace(config, executor=msgspec.structs.replace(config.executor, seats=0))
        self._config = config
        self._logs = logs
        repository, today = config.definitions.repository, lambda: clock.wall().date()
        self._source = Watched(paths, today, repository=repository, patience_s=PATIENCE_S) if paths else None
        self._state_dir = state_dir
        self._identity = Identity(config.node.name)
        self._machine = Machine(clock.monotonic)
        node = config.node
        self._descriptors = raise_limit(config.executor.seats, DESCRIPTORS)
        self._door = Door(
            app(node.name, __version__, lambda: self._identity.id),
            node.listen,
            node.advertise,
            servers=server_hosts(config.store.url, config.coordinator.url),
        )
        self._live = Live()
        self._loaded = Loaded()
        self._crew: ProcessCrew | None = None

    async def host(self, scheduler: Scheduler) -> Host:
        """The node, not running yet. Its apps are read first, so that it knows what it can run when it joins."""
        if self._source is not None:
            self._loaded = await self._source.load()
        self._skew_s = await self._measured_skew_s()
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
            is_gone=lambda place: process_is_gone(place, here()),
            settle=Settling(self._store, self._live, loader, executor, self._crew).settled,
        )
        live = None if execution is None else self._live
        warden = Warden(self._store, self._clock)
        part = self._part()
        rescuer = Rescuer(
            self._store,
            self._clock,
            self._config.lease,
            self._identity,
            self._crew,
            loader,
            live,
            duty=self._duty("rescue", part),
        )
        pruner = Pruner(self._store, self._clock, self._config.retention, self._logs, duty=self._duty("prune", part))
        host = Host(
            store=self._store,
            identity=self._identity,
            member=member,
            firing=[
                *([scheduler] if self._fires else []),
                *self._definer(),
                *(() if part is None else part.loops),
            ],
            working=[
                dispatcher,
                rescuer,
                pruner,
                warden,
                self._alarmer(part, live),
                self._inspector(part, dispatcher),
                *([] if self._crew is None else [Ability(self._clock, self._crew, self._tell_ability)]),
                *finishers,
                *([] if executor is None else [executor]),
            ],
            execution=execution,
            part=part,
            door=self._door,
            outages=self._outages(part),
        )
        if part is not None:
            part.connect(scheduler, host.lose_coordinator)
        return host

    def _outages(self, part: Part | None) -> list[Outage]:
        """What the loops of this node know together of their servers."""
        store = store_outage(self._clock, self._store)
        if part is None:
            return [store]
        return [store, coordinator_outage(self._clock, self._coordinator)]

    def _part(self) -> Part | None:
        """This scheduler's part in the placement of the cluster."""
        placement = self._config.placement
        if placement.kind == "none" or not self._fires:
            return None
        attendant = Attendant(
            self._coordinator, self._clock, self._peer, busy=self._busy, on_lost=self._config.coordinator.on_lost
        )
        return take_part(self._store, self._coordinator, self._clock, placement, attendant)

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
        return Duty(
            self._store,
            coordinator,
            self._clock,
            name,
            self._config.node.name,
            busy=self._busy,
            placement=self._config.placement,
            takes_part=self._fires,
        )

    def _inspector(self, part: Part | None, dispatcher: Dispatcher) -> Inspector:
        async def leave_out(lost: Sequence[Node]) -> None:
            dispatcher.leave_out(frozenset(node.id for node in lost))
            self._unreachable = tuple(sorted(node.id for node in lost))
            await self._advertise(self._loaded)

        return Inspector(
            self._store,
            self._clock,
            self._config.node.name,
            Pinger(),
            every_s=self._config.node.check_s,
            here=self._place,
            on_changed=leave_out,
            publish=None if part is None else lambda names: part.attendant.tell(unreachable=names),
        )

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
        executor = Executor(*parts, crew, self._live, loader, version=__version__)
        gather_s = GATHER_S if self._store.hears else 0.0
        margin_s = self._config.lease.margin_s
        finishers = [
            Finisher(*parts, self._live, loader, gather_s=gather_s, margin_s=margin_s) for _ in range(FINISHERS)
        ]
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
            paths=tuple(str(Path(it).absolute()) for it in (executor.module_path or ".").split(os.pathsep) if it),
            hosts=_words(executor.http_hosts),
            user=executor.user or None,
            environment=config.handed_on(self._config.store.url),
            processes_max=min(
                max(PROCESSES_MAX, executor.seats + SPARE_PROCESSES), trees_max(self._descriptors, DESCRIPTORS)
            ),
        )
        return ProcessCrew(settings, self._logs, log_max=self._config.logs.max_bytes)

    @property
    def _tasks_as_root(self) -> str:
        from rota.runners.users import are_root, root_means

        return root_means() if are_root(self._config.executor.user or None) else ""

    def _definer(self) -> list[Loop]:
        if self._source is None:
            return []
        control = Control(self._store, self._clock)

        async def apply(definitions: Sequence[Definition], loaded: Loaded) -> list[Action]:
            return await control.apply(definitions, sources_of(loaded))

        return [Definer(self._source, apply, self._clock, self._config.definitions, on_loaded=self._reload)]

    async def _reload(self, loaded: Loaded) -> None:
        """The apps were read anew: workers of changed files are replaced, the others are told what this node has."""
        if (loaded.homes, loaded.digest) == (self._loaded.homes, self._loaded.digest):
            return
        if self._crew is not None:
            self._crew.set_apps(dict(loaded.homes))
        await self._advertise(loaded)
        self._loaded = loaded  # only now: what was not told is told at the next load

    async def _tell_ability(self, why: str) -> None:
        self._unable = why
        await self._advertise(self._loaded)

    async def _advertise(self, loaded: Loaded) -> None:
        if self._identity.id is not None:
            await self._store.advertise(self._identity.id, self._handlers(loaded), self._digests(loaded))

    async def _measured_skew_s(self) -> float | None:
        """How far this host's clock is ahead of the store's, at the least."""
        asked_at = self._clock.wall()
        try:
            there = await self._store.now()
        except StoreUnavailable:
            return None
        return skew_s(asked_at, there, self._clock.wall())

    def _digests(self, loaded: Loaded) -> dict[str, str]:
        """What the doctor looks at: apps, time-zone data, how far this host's clock is off, whom it cannot reach,
        and why its boundary is not a stronger one."""
        if self._weakness is None and self._crew is not None and self._crew.boundary:
            from rota.runners.boundary.kinds import why_not_stronger
            from rota.runners.boundary.promises import BoundaryKind, told

            self._weakness = why_not_stronger(self._crew.boundary)
            self._promise = told(BoundaryKind(self._crew.boundary))
        found = {"apps": loaded.digest, "tzdata": data_version(), UNABLE: self._unable}
        if self._config.node.roles != "all":
            found["roles"] = self._config.node.roles
        if self._skew_s is not None:
            found["skew_s"] = f"{self._skew_s:.3f}"
        found[UNREACHABLE] = " ".join(map(str, self._unreachable))
        self_told = {"boundary": self._weakness or "", "promise": self._promise, "tasks": self._tasks_as_root}
        return {name: text for name, text in {**found, **self_told}.items() if text}

    def _describe(self, incarnation: str) -> NewNode:
        executor = self._config.executor
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
        return (*loaded.handlers, *loaded.listeners, *modules)

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
        smtp_ca=alarm.smtp_ca,
        hosts=_words(alarm.hosts),
        user=wanted.executor.user or None,
        environment=config.handed_on(wanted.store.url),
        state_dir=str(state_dir),
        node=wanted.node.name,
    )
    return JobCourier(control, ChannelCourier(settings, clock))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for part in text.split(",") if (word := part.strip()))
