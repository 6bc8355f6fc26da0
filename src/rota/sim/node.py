"""One node of a simulation: a host with its clock, and on it the product's own node, put together by `rota.node` as
every node is, with simulated ports: the store and the coordinator are behind links."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from rota.config import (
    Config,
    CoordinatorConfig,
    DefinitionsConfig,
    DispatchConfig,
    ExecutorConfig,
    NodeConfig,
    PlacementConfig,
    RetentionConfig,
    SchedulerConfig,
    StoreConfig,
)
from rota.coordinators.memory import MemoryCoordinator
from rota.errors import CommitUnknown, CoordinatorUnavailable, StoreUnavailable
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.loops.placer.participation import Participation
from rota.model.cluster import Peer
from rota.model.node import PingAnswer, Place
from rota.node import Parts, Ports, Tuning
from rota.ports import Clock, Coordinator, Store
from rota.sim.history import History
from rota.sim.link import Failures, SimHost, SimLink
from rota.sim.loop import HostClock, SimLoop, dice
from rota.sim.plan import PlannedFault, Scenario
from rota.sim.surroundings import KeptDefinitions, MemoryLogs, Network, NotingCourier, SimRunner
from rota.sim.witness import WitnessStore
from rota.storage.memory import MemoryStore
from rota.virtual import VirtualHost

SESSION_S = 6.0
SCHEDULER = SchedulerConfig(look_s=2.0)
BEAT_S = 10.0
CHECK_S = 4.0
"""How often a node asks the others whether they live: three times within the longest pause of a host."""
RETENTION = RetentionConfig(days=60 / 86400, runs_max=3, every_s=10.0)
"""Little is kept, so that there is always something to forget."""
RESCUE_PACE = 2.0
"""The rescuer looks less often: it is what a simulation would spend most of its time on."""
EXPIRE_PACE = 5.0
"""So does the expirer: nothing is finished from outside here."""

_STORE = Failures(StoreUnavailable, CommitUnknown)
_COORDINATOR = Failures(CoordinatorUnavailable, CoordinatorUnavailable)


class RemoteServer:
    """A server as a node sees it: every verb is a request. Whatever verb there is, it goes over the link."""

    def __init__(self, server: MemoryStore | MemoryCoordinator, link: SimLink) -> None:
        self._server = server
        self._link = link
        self._process = link.process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb, ask, process = getattr(self._server, name), self._link.ask, self._process

        async def remote(*args: Any, **kwargs: Any) -> Any:
            return await ask(lambda: verb(*args, **kwargs), process)

        setattr(self, name, remote)
        return remote


class RemoteStore(RemoteServer):
    def __init__(self, store: MemoryStore, link: SimLink, *, hears: bool) -> None:
        super().__init__(store, link)
        self._store = store
        self.hears = hears
        self.memory = store.memory
        self.shortcuts = store.shortcuts
        self.is_called = False

    def listen(self, wake: Callable[[str], None]) -> None:
        if self.hears:
            self._store.listen(lambda topic: self._link.notice(lambda: wake(topic), self._process))


class RemoteCoordinator(RemoteServer):
    """The coordinator. What a client knows of its own session it knows without asking."""

    def __init__(self, inner: MemoryCoordinator, clock: Clock, link: SimLink) -> None:
        super().__init__(inner, link)
        self._inner = inner
        self._clock = clock
        self.ttl_s = inner.ttl_s
        self.believed_until_s = 0.0

    @property
    def session(self) -> str | None:
        return self._inner.session

    async def join(self) -> str:
        sent_s = self._clock.monotonic()
        self._link.entering()
        session: str = await self._link.ask(self._inner.join, self._process)
        self.believed_until_s = sent_s + self.ttl_s
        return session

    async def renew(self) -> bool:
        sent_s = self._clock.monotonic()
        lives: bool = await self._link.ask(self._inner.renew, self._process)
        if lives:
            self.believed_until_s = sent_s + self.ttl_s
        return lives

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        self._inner.listen(folder, lambda: self._link.notice(wake, self._process))


class SimNode:
    """A host, and the process of the node on it while it is up."""

    def __init__(
        self,
        loop: SimLoop,
        scenario: Scenario,
        number: int,
        store: WitnessStore,
        history: History,
        network: Network,
        definitions: KeptDefinitions,
    ) -> None:
        self.name = f"node-{number}"
        self._loop = loop
        self._scenario = scenario
        self._server = store
        self._history = history
        self._network = network
        self._definitions = definitions
        self._logs = MemoryLogs()
        self.clock = HostClock(loop, scenario.seed, self.name, scenario.skews_s[number])
        self.host = SimHost(loop, self.name)
        chance = dice(scenario.seed, f"links of {self.name}")
        self.store_link = SimLink(loop, self.host, chance, _STORE, history, waits=scenario.interleaved)
        self.coordinator_link = SimLink(loop, self.host, chance, _COORDINATOR, history)
        self._incarnations = 0
        self._runners: list[SimRunner] = []
        self._task: asyncio.Task[None] | None = None
        self._identity = Identity(self.name)
        self._parts: Parts | None = None
        self.configured = Peer(name=self.name, incarnation="", address=f"{self.name}:7700", alarm=100 + number)
        """What it is to tell of itself."""
        network.add(self.configured.address, self)

    @property
    def is_up(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def is_impaired(self) -> bool:
        """Whether it cannot be expected to do its part."""
        links = (self.store_link, self.coordinator_link)
        return not self.is_up or self.host.stands_still or any(link.is_impaired for link in links)

    @property
    def runner(self) -> SimRunner:
        return self._runners[-1]

    @property
    def participation(self) -> Participation | None:
        """What its scheduler has of the cluster."""
        return None if self._parts is None else self._parts.participation

    @property
    def loops(self) -> list[Loop]:
        process = None if self._parts is None else self._parts.process
        return [] if process is None else [process.member, *process.working, *process.firing]

    def answer(self) -> PingAnswer:
        """What it says when it is asked whether it lives."""
        return PingAnswer(node=self.name, id=self._identity.id)

    def start(self) -> None:
        """A new incarnation."""
        if self.is_up:
            return
        self._incarnations += 1
        self._parts = self._assembled()
        self._task = self._loop.create_task(self._parts.process.run())

    def crash(self) -> None:
        """The agent dies at once; its trees follow."""
        if self._task is None:
            return
        self.host.frozen_until_s = 0.0
        self.store_link.close()
        self.coordinator_link.close()
        self.runner.die()
        self._task.cancel()
        self._task, self._parts = None, None

    def stop(self) -> None:
        """In good order."""
        if self._parts is not None and self.is_up:
            self._parts.process.stop()

    def freeze(self, fault: PlannedFault, *, whole: bool) -> None:
        self.host.freeze(fault.until_s)
        if whole:
            for runner in self._runners:
                runner.freeze(fault.for_s)

    def owns(self, job_id: int) -> bool:
        """Whether it would fire the job if it were due now."""
        return (
            self.participation is not None
            and self.is_up
            and self.participation.placer.owns(job_id, self._server.now_at)
        )

    def _assembled(self) -> Parts:
        inner = MemoryCoordinator(self._server.realm, self.clock, ttl_s=SESSION_S)
        runner = self._new_runner()
        self._identity = Identity(self.name)
        chance = dice(self._scenario.seed, f"courier of {self.name}, {self._incarnations}")
        ports = Ports(
            store=cast("Store", RemoteStore(self._server, self.store_link, hears=self._scenario.hears)),
            clock=self.clock,
            identity=self._identity,
            host=VirtualHost(self.configured.address, runner),
            coordinator=cast("Coordinator", RemoteCoordinator(inner, self.clock, self.coordinator_link)),
            runner=runner,
            logs=self._logs,
            courier=NotingCourier(self._loop, self.clock, self.host, chance, self._history),
            prober=lambda address: self._network.probe(address, self.host, self.clock),
            definitions=self._definitions,
        )
        tuning = Tuning(finishers=self._scenario.finishers, rescue_pace=RESCUE_PACE, expire_pace=EXPIRE_PACE)
        return Parts(self._config(), ports, tuning)

    def _config(self) -> Config:
        scenario = self._scenario
        return Config(
            store=StoreConfig(url="memory:", may_forget=True),
            node=NodeConfig(name=self.name, check_s=CHECK_S),
            coordinator=CoordinatorConfig(url="sim://coordinator", session_s=SESSION_S),
            placement=PlacementConfig(
                kind=scenario.placement,
                automatic=scenario.automatic,
                strategy=scenario.strategy,
                beat_s=BEAT_S,
                alarm=self.configured.alarm or 0,
            ),
            scheduler=SCHEDULER,
            dispatch=DispatchConfig(idle_s=2.0),
            executor=ExecutorConfig(seats=scenario.seats),
            retention=RETENTION,
            definitions=DefinitionsConfig(watch_s=2.0),
        )

    def _new_runner(self) -> SimRunner:
        place = Place(host=self.name, boot_id="boot", pid_namespace="pids", pid=self._incarnations, pid_started=0)
        # The name is part of the seed: with another, every recorded scenario would become a different one.
        chance = dice(self._scenario.seed, f"crew of {self.name}, {self._incarnations}")
        runner = SimRunner(self._loop, self.clock, place, chance, self._history, self._logs)
        runner.former = list(self._runners)
        self._runners.append(runner)
        return runner
