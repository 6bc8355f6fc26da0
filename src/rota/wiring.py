"""The composition root: from a URL to a store, from a configuration to the loops of a node.

The only importer of backends and runners. What is heavy is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rota.backends.memory import MemoryStore
from rota.clock import SystemClock
from rota.config import Config, CoordinatorConfig, forget, given_variables
from rota.control import Control
from rota.errors import InvalidInput
from rota.ports import Clock, Coordinator, Courier, LogStore, Store

if TYPE_CHECKING:
    from rota.loops.host import Host
    from rota.loops.scheduler import Scheduler
    from rota.runners.boundary import Swept


def system_clock() -> Clock:
    """The clock of a real process."""
    return SystemClock()


def conceal() -> None:
    """Keep what this process knows from others on its host: its memory, and passwords in its environment, which the
    configuration has been read from. Before anything of a user runs."""
    variables = given_variables()
    from rota.runners.boundary import kernel

    kernel.hide()
    kernel.wipe_variables(variables)
    forget(variables)


def open_store(url: str, clock: Clock, *, actor: str, may_forget: bool = False) -> Store:
    """Make the store that a URL names. Nothing is sent to it yet; `actor` signs its history."""
    if url == "memory:":
        return MemoryStore(clock, actor=actor)
    from rota.backends.sql.connect import connect  # heavy: only where a database is used
    from rota.backends.sql.store import SqlStore

    return SqlStore(connect(url, clock), actor=actor, may_forget=may_forget)


def open_coordinator(config: CoordinatorConfig, store: Store, clock: Clock) -> Coordinator:
    """Make a client of the coordinator that is configured; by default the store's own database. Nothing is sent yet."""
    scheme = config.url.partition("://")[0]
    if scheme == "zookeeper":
        from rota.backends.zookeeper import ZooKeeperCoordinator

        return ZooKeeperCoordinator(config.url, clock, namespace=config.namespace, ttl_s=config.session_s)
    if scheme == "etcd":
        from rota.backends.etcd import EtcdCoordinator

        return EtcdCoordinator(config.url, clock, namespace=config.namespace, ttl_s=config.session_s)
    if config.url:
        raise InvalidInput.of("coordinator.url", "use zookeeper://host:port or etcd://host:port, or leave it out")
    return store.coordinator(clock, ttl_s=config.session_s)


def unstored() -> Control:
    """A control for what needs no store that lasts."""
    clock = system_clock()
    return Control(MemoryStore(clock, actor="nobody"), clock)


def scheduler(store: Store, clock: Clock, config: Config) -> Scheduler:
    """The loop that fires."""
    from rota.loops.scheduler import Scheduler

    return Scheduler(store, clock, config.scheduler, overdue_s=config.coordinator.session_s + 1.0)


def log_store(config: Config) -> LogStore:
    """Where the output of attempts is kept."""
    from rota.runners.logs import DirectoryLogs

    return DirectoryLogs(Path(config.logs.path))


def state_dir(config: Config) -> Path:
    """Where the executors of this host note their process trees; those of one user share it."""
    if not config.executor.state_path:
        reason = "this user has no home and no XDG_RUNTIME_DIR of its own; name a folder that belongs to it alone"
        raise InvalidInput.of("executor.state_path", reason)
    return Path(config.executor.state_path)


def courier(config: Config, clock: Clock, control: Control) -> Courier:
    """What takes messages about alarms to people and jobs."""
    from rota.assembly import make_courier

    return make_courier(config, clock, state_dir(config), control)


async def sweep(config: Config) -> Swept:
    """Clear what earlier executors left on this host."""
    from rota.runners.boundary import sweep as swept

    return await swept(state_dir(config))


async def node(store: Store, clock: Clock, config: Config, paths: Sequence[str], firing: Scheduler) -> Host:
    """A whole node: it fires, dispatches, executes, looks after the others, and applies the definitions of `paths`."""
    from rota.assembly import Assembly
    from rota.runners.boundary import state

    coordinator = open_coordinator(config.coordinator, store, clock)
    if config.executor.seats:
        state.prepare(state_dir(config))
    parts = (store, coordinator, clock, config, paths, log_store(config), state_dir(config))
    return await Assembly(*parts).host(firing)
