"""One node of a simulation: a host with its clock, and the product's own loops on it, put together as `assembly.py`
does it, with the store and the coordinator behind links."""

from __future__ import annotations

import asyncio

import msgspec

from rota.backends.memory.coordinator import MemoryCoordinator
from rota.config import DispatchConfig, ExecutorConfig, LeaseConfig, PlacementConfig, SchedulerConfig
from rota.core.score import busy
from rota.errors import CommitUnknown, CoordinatorUnavailable, StoreUnavailable
from rota.loops.dispatcher import Dispatcher
from rota.loops.duty import Duty
from rota.loops.executor import Executor
from rota.loops.finisher import Finisher, wake_all
from rota.loops.host import Execution
from rota.loops.host import Host as Process
from rota.loops.identity import Identity
from rota.loops.live import Live
from rota.loops.loader import Loader
from rota.loops.member import Member
from rota.loops.outage import coordinator_outage, store_outage
from rota.loops.placement.attendant import Attendant
from rota.loops.placement.part import Part, take_part
from rota.loops.rescuer import Rescuer
from rota.loops.scheduler import Scheduler
from rota.loops.settling import Settling
from rota.loops.waking import connect
from rota.model.cluster import Peer
from rota.model.node import NewNode, Place
from rota.ports import Store
from rota.sim.clocks import HostClock
from rota.sim.crew import SimCrew
from rota.sim.history import History
from rota.sim.link import Failures, Host, Link
from rota.sim.loop import SimLoop, dice
from rota.sim.plan import Fault, Scenario
from rota.sim.remote import remote_coordinator, remote_store
from rota.sim.witness import WitnessStore

SESSION_S = 6.0
LEASE = LeaseConfig()
SCHEDULER = SchedulerConfig(look_s=2.0)
DISPATCH = DispatchConfig(idle_s=2.0)
BEAT_S = 10.0
GATHER_S = 0.01

_STORE = Failures(StoreUnavailable, CommitUnknown)
_COORDINATOR = Failures(CoordinatorUnavailable, CoordinatorUnavailable)


class PatientRescuer(Rescuer):
    """Looks less often: it is what a simulation would spend most of its time on."""

    async def once(self) -> float:
        return 3 * await super().once()


class SimNode:
    """A host, and the process of the node on it while it is up."""

    def __init__(self, loop: SimLoop, scenario: Scenario, number: int, store: WitnessStore, history: History) -> None:
        self.name = f"node-{number}"
        self._loop = loop
        self._scenario = scenario
        self._server = store
        self._history = history
        self.clock = HostClock(loop, scenario.seed, self.name, scenario.skews_s[number])
        self.host = Host(loop, self.name)
        chance = dice(scenario.seed, f"links of {self.name}")
        self.store_link = Link(loop, self.host, chance, _STORE, history)
        self.coordinator_link = Link(loop, self.host, chance, _COORDINATOR, history)
        self._incarnations = 0
        self._crews: list[SimCrew] = []
        self._task: asyncio.Task[None] | None = None
        self._process: Process | None = None
        self.part: Part | None = None
        self.configured = Peer(name=self.name, incarnation="", address=f"{self.name}:7700", alarm=100 + number)
        """What it is to tell of itself."""

    @property
    def is_up(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def is_impaired(self) -> bool:
        """Whether it cannot be expected to do its part."""
        links = (self.store_link, self.coordinator_link)
        return not self.is_up or self.host.stands_still or any(link.is_impaired for link in links)

    @property
    def crew(self) -> SimCrew:
        return self._crews[-1]

    def start(self) -> None:
        """A new incarnation."""
        if self.is_up:
            return
        self._incarnations += 1
        self._process = self._assembled()
        self._task = self._loop.create_task(self._process.run())

    def crash(self) -> None:
        """The agent dies at once; its trees follow."""
        if self._task is None:
            return
        self.host.frozen_until_s = 0.0
        self.store_link.close()
        self.coordinator_link.close()
        self.crew.die()
        self._task.cancel()
        self._task, self.part = None, None

    def stop(self) -> None:
        """In good order."""
        if self._process is not None and self.is_up:
            self._process.stop()

    def freeze(self, fault: Fault, *, whole: bool) -> None:
        self.host.freeze(fault.until_s)
        if whole:
            for crew in self._crews:
                crew.freeze(fault.for_s)

    def owns(self, job_id: int) -> bool:
        """Whether it would fire the job if it were due now."""
        return self.part is not None and self.is_up and self.part.driver.owns(job_id, self._server.now_at)

    def _assembled(self) -> Process:
        store = remote_store(self._server, self.store_link, hears=self._scenario.hears)
        identity, live, loader = Identity(self.name), Live(), Loader(store)
        crew = self._new_crew()
        config = ExecutorConfig(seats=self._scenario.seats)
        executor = Executor(store, self.clock, config, identity, crew, live, loader)
        gather_s = GATHER_S if self._scenario.hears else 0.0
        finishers = [
            Finisher(store, self.clock, config, identity, live, loader, gather_s=gather_s)
            for _ in range(self._scenario.finishers)
        ]
        dispatcher = Dispatcher(store, self.clock, DISPATCH, identity, executor, hears=self._scenario.hears)
        scheduler = Scheduler(store, self.clock, SCHEDULER, overdue_s=SESSION_S + 1)
        live.wake_finisher = wake_all(finishers)
        connect(store, identity, scheduler, dispatcher, executor, finishers)
        self.part = part = self._new_part(store, live)
        duty = Duty(store, part.coordinator, self.clock, "rescue", self.name, busy=lambda: self._busy(live))
        process = Process(
            store=store,
            identity=identity,
            member=Member(
                store,
                self.clock,
                LEASE,
                identity,
                crew,
                describe=self._describe,
                busy=lambda: self._busy(live),
                abandon=executor.abandon,
                is_gone=crew.gone,
                settle=Settling(store, live, loader, executor, crew).settled,
            ),
            firing=[scheduler, *part.loops],
            working=[
                dispatcher,
                PatientRescuer(store, self.clock, LEASE, identity, crew, loader, live, duty=duty),
                executor,
                *finishers,
            ],
            execution=Execution(crew=crew, live=live, executor=executor),
            part=part,
            outages=[store_outage(self.clock, store), coordinator_outage(self.clock, part.coordinator)],
        )
        part.connect(scheduler, process.stop_at_once)
        return process

    def _new_crew(self) -> SimCrew:
        place = Place(host=self.name, boot_id="boot", pid_namespace="pids", pid=self._incarnations, pid_started=0)
        chance = dice(self._scenario.seed, f"crew of {self.name}, {self._incarnations}")
        crew = SimCrew(self._loop, self.clock, place, chance, self._history)
        crew.former = list(self._crews)
        self._crews.append(crew)
        return crew

    def _new_part(self, store: Store, live: Live) -> Part:
        inner = MemoryCoordinator(self._server.realm, self.clock, ttl_s=SESSION_S)
        coordinator = remote_coordinator(inner, self.clock, self.coordinator_link)
        incarnation = self.clock.token()
        attendant = Attendant(
            coordinator,
            self.clock,
            lambda: msgspec.structs.replace(self.configured, incarnation=incarnation),
            busy=lambda: self._busy(live),
        )
        config = PlacementConfig(
            kind=self._scenario.placement,
            automatic=self._scenario.automatic,
            strategy=self._scenario.strategy,
            beat_s=BEAT_S,
        )
        return take_part(store, coordinator, self.clock, config, attendant)

    def _describe(self, incarnation: str) -> NewNode:
        return NewNode(
            name=self.name, incarnation=incarnation, place=self.crew.here(), seats=self._scenario.seats, boundary="sim"
        )

    def _busy(self, live: Live) -> float:
        return busy(0.0, len(live.attempts), self._scenario.seats, 0.0)
