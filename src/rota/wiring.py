"""The composition root: from a URL to a store, from a configuration to the loops of a node.

The only importer of adapters. What is heavy is imported where it is used.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rota.clock import SystemClock
from rota.config import AlarmConfig, Config, CoordinatorConfig, forget, given_variables, handed_on
from rota.control import Control
from rota.coordinators.memory import MemoryCoordinator
from rota.errors import InvalidInput, StoreUnavailable
from rota.ports import Clock, Coordinator, Courier, LogStore, Store
from rota.storage.memory import MemoryStore

if TYPE_CHECKING:
    from rota.definitions.folder import Watched
    from rota.definitions.loaded import Loaded
    from rota.execution.isolation.sweeping import SweepReport
    from rota.execution.runner import ProcessRunner
    from rota.loops.advertiser import HostFacts
    from rota.loops.member import Identity
    from rota.loops.node_process import NodeProcess
    from rota.model.node import Place
    from rota.rest.door import Door

SPARE_PROCESSES = 16
"""How many processes a runner may have beyond one for each seat."""


def system_clock() -> Clock:
    return SystemClock()


def conceal() -> None:
    """Keep what this process knows from others on its host: its memory, and passwords in its environment, which the
    configuration has been read from. Before anything of a user runs."""
    variables = given_variables()
    from rota.execution.isolation import kernel

    kernel.hide()
    kernel.wipe_variables(variables)
    forget(variables)


def open_store(url: str, clock: Clock, *, actor: str, may_forget: bool = False) -> Store:
    """Make the store that a URL names. Nothing is sent to it yet; `actor` signs its history."""
    if url == "memory:":
        return MemoryStore(clock, actor=actor)
    from rota.storage.sql.connect import connect  # heavy: only where a database is used
    from rota.storage.sql.store import SqlStore

    return SqlStore(connect(url, clock), actor=actor, may_forget=may_forget)


def open_coordinator(config: CoordinatorConfig, store: Store, clock: Clock) -> Coordinator:
    """Make a client of the coordinator that is configured; by default the store's own database. Nothing is sent yet."""
    scheme = config.url.partition("://")[0]
    if scheme == "zookeeper":
        from rota.coordinators.zookeeper.coordinator import ZooKeeperCoordinator

        return ZooKeeperCoordinator(config.url, clock, namespace=config.namespace, ttl_s=config.session_s)
    if scheme == "etcd":
        from rota.coordinators.etcd.coordinator import EtcdCoordinator

        return EtcdCoordinator(config.url, clock, namespace=config.namespace, ttl_s=config.session_s)
    if config.url:
        raise InvalidInput.of("coordinator.url", "use zookeeper://host:port or etcd://host:port, or leave it out")
    return own_coordinator(store, clock, ttl_s=config.session_s)


def own_coordinator(store: Store, clock: Clock, *, ttl_s: float) -> Coordinator:
    """A client of the coordinator that comes with a store: it uses the same connections."""
    if isinstance(store, MemoryStore):
        return MemoryCoordinator(store.realm, clock, ttl_s=ttl_s)
    from rota.coordinators.sql.coordinator import SqlCoordinator
    from rota.storage.sql.store import SqlStore

    assert isinstance(store, SqlStore), f"no coordinator comes with a {type(store).__name__}"
    return SqlCoordinator(store.database, clock, ttl_s=ttl_s)


def unstored() -> Control:
    """A control for what needs no store that lasts."""
    clock = system_clock()
    return Control(MemoryStore(clock, actor="nobody"), clock)


def log_store(config: Config) -> LogStore:
    from rota.execution.log_directory import DirectoryLogs

    return DirectoryLogs(Path(config.logs.path))


def state_dir(config: Config) -> Path:
    """Where the executors of this host note their process trees; those of one user share it."""
    if not config.executor.state_path:
        reason = "this user has no home and no XDG_RUNTIME_DIR of its own; name a folder that belongs to it alone"
        raise InvalidInput.of("executor.state_path", reason)
    return Path(config.executor.state_path)


def courier(config: Config, clock: Clock, control: Control) -> Courier:
    """What takes messages about alarms to people and jobs."""
    from rota.alarms.channels.channel import CourierSettings
    from rota.alarms.channels.courier import ChannelCourier
    from rota.control.jobs import JobCourier
    from rota.loops.advertiser import words

    alarm = config.alarm
    mail = {name: getattr(alarm, name) for name in AlarmConfig.__struct_fields__ if name.startswith("smtp_")}
    settings = CourierSettings(
        **mail,
        hosts=words(alarm.hosts),
        user=config.executor.user or None,
        environment=handed_on(config.store.url),
        state_dir=str(state_dir(config)),
        node=config.node.name,
    )
    return JobCourier(control.jobs, ChannelCourier(settings, clock))


async def sweep(config: Config) -> SweepReport:
    from rota.execution.isolation.sweeping import sweep as swept

    return await swept(state_dir(config))


async def node(store: Store, clock: Clock, config: Config, paths: Sequence[str]) -> NodeProcess:
    """A whole node: it fires, dispatches, executes, looks after the others, and applies the definitions of `paths`."""
    from rota.definitions.loaded import Loaded
    from rota.execution.descriptors import raise_limit
    from rota.execution.isolation import state_folder
    from rota.loops.member import Identity
    from rota.node import Parts, Ports
    from rota.rest.door import DESCRIPTORS, Pinger

    seats = 0 if config.node.roles == "scheduler" else config.executor.seats
    coordinator = open_coordinator(config.coordinator, store, clock)
    if config.executor.seats:
        state_folder.prepare(state_dir(config))
    source = _definitions(config, clock, paths) if paths else None
    descriptors = raise_limit(seats, DESCRIPTORS)
    identity = Identity(config.node.name)
    door = _door(config, identity)
    await _hear_words(store, door)
    apps = Loaded() if source is None else await source.load()  # first: it knows what it can run when it joins
    logs = log_store(config)
    runner = _runner(config, apps, logs, descriptors) if seats else None
    ports = Ports(
        store=store,
        clock=clock,
        identity=identity,
        host=await _host_facts(store, clock, config, door),
        coordinator=coordinator,
        runner=runner,
        logs=logs,
        courier=courier(config, clock, Control(store, clock)),
        prober=Pinger(),
        definitions=source,
        apps=apps,
        set_apps=(lambda homes: None) if runner is None else runner.set_apps,
        door=door,
    )
    return Parts(config, ports).process


def _definitions(config: Config, clock: Clock, paths: Sequence[str]) -> Watched:
    """What is applied of these paths, now and when they change."""
    from rota.definitions.folder import PATIENCE_S, Watched  # heavy: not every node has definitions

    today, repository = lambda: clock.wall().date(), config.definitions.repository
    return Watched(paths, today, repository=repository, patience_s=PATIENCE_S)


def _door(config: Config, identity: Identity) -> Door:
    """What this node serves; bound at once, so that it can say where it is."""
    from rota.rest.address import server_hosts
    from rota.rest.door import Door, app
    from rota.version import __version__

    return Door(
        app(config.node.name, __version__, lambda: identity.id),
        config.node.listen,
        config.node.advertise,
        servers=server_hosts(config.store.url, config.coordinator.url),
    )


async def _hear_words(store: Store, door: Door) -> None:
    """Let callers wake this node, where the database cannot: at the number of its own port."""
    from rota.storage.sql.store import SqlStore

    with suppress(StoreUnavailable):  # it then looks more often
        if isinstance(store, SqlStore):
            await store.hear_words(*door.bound, door.address)


def _runner(config: Config, apps: Loaded, logs: LogStore, descriptors: int) -> ProcessRunner:
    from rota.execution.descriptors import trees_max
    from rota.execution.runner import PROCESSES_MAX, ProcessRunner, RunnerSettings
    from rota.loops.advertiser import words
    from rota.rest.door import DESCRIPTORS

    executor = config.executor
    settings = RunnerSettings(
        node=config.node.name,
        state_dir=str(state_dir(config)),
        boundary=executor.boundary or None,
        apps=dict(apps.homes),
        modules=words(executor.modules),
        paths=tuple(str(Path(it).absolute()) for it in (executor.module_path or ".").split(os.pathsep) if it),
        hosts=words(executor.http_hosts),
        user=executor.user or None,
        environment=handed_on(config.store.url),
        processes_max=min(max(PROCESSES_MAX, executor.seats + SPARE_PROCESSES), trees_max(descriptors, DESCRIPTORS)),
    )
    return ProcessRunner(settings, logs, log_max=config.logs.max_bytes)


async def _host_facts(store: Store, clock: Clock, config: Config, door: Door) -> HostFacts:
    from rota.core.doctor import skew_s

    asked_at = clock.wall()
    try:
        there = await store.now()
    except StoreUnavailable:
        return ThisHost(clock, door.address, config.executor.user, skew_s=None)
    return ThisHost(clock, door.address, config.executor.user, skew_s=skew_s(asked_at, there, clock.wall()))


class ThisHost:
    """What a real node asks of its host (`HostFacts`). `user` is whom tasks run as."""

    def __init__(self, clock: Clock, address: str, user: str, *, skew_s: float | None) -> None:
        from rota.execution.machine_load import MachineLoad

        self.address = address
        self.skew_s = skew_s
        self._user = user
        self._machine = MachineLoad(clock.monotonic)

    def place(self) -> Place:
        from rota.execution.isolation.sweeping import here

        return here()

    def is_gone(self, place: Place) -> bool:
        from rota.execution.isolation.sweeping import here, process_is_gone

        return process_is_gone(place, here())

    def cpu(self) -> float:
        return self._machine.cpu()

    def memory(self) -> float:
        return self._machine.memory()

    def kinds(self) -> Sequence[str]:
        from rota.execution.kinds.registry import KINDS

        return KINDS.plugin_names

    def promises(self, boundary: str) -> dict[str, str]:
        from rota.execution.isolation.availability import why_not_stronger
        from rota.execution.isolation.promises import BoundaryKind, warning_of
        from rota.execution.users import rights_of_root, run_as_root

        found = {"tasks": rights_of_root() if run_as_root(self._user or None) else ""}
        if boundary:
            found |= {"boundary": why_not_stronger(boundary), "promise": warning_of(BoundaryKind(boundary))}
        return found
