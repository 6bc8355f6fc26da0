"""The composition root: from a URL to a store, from a configuration to the loops of a node.

The only importer of backends. What is heavy is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.backends.memory import MemoryStore
from rota.clock import SystemClock
from rota.config import Config
from rota.control import Control
from rota.ports import Clock, Store

if TYPE_CHECKING:
    from rota.loops.definer import Definer
    from rota.loops.scheduler import Scheduler


def system_clock() -> Clock:
    """The clock of a real process."""
    return SystemClock()


def open_store(url: str, clock: Clock, *, actor: str, may_forget: bool = False) -> Store:
    """Make the store that a URL names. Nothing is sent to it yet; `actor` signs its history."""
    if url == "memory:":
        return MemoryStore(clock, actor=actor)
    from rota.backends.sql.connect import connect  # heavy: only where a database is used
    from rota.backends.sql.store import SqlStore

    return SqlStore(connect(url, clock), actor=actor, may_forget=may_forget)


def unstored() -> Control:
    """A control for what needs no store that lasts."""
    clock = system_clock()
    return Control(MemoryStore(clock, actor="nobody"), clock)


def scheduler(store: Store, clock: Clock, config: Config) -> Scheduler:
    """The loop that fires."""
    from rota.loops.scheduler import Scheduler

    return Scheduler(store, clock, config.scheduler)


def definer(store: Store, clock: Clock, config: Config, paths: Sequence[str]) -> Definer:
    """The loop that keeps the store in step with files."""
    from rota.definitions.watch import Watched
    from rota.loops.definer import Definer

    source = Watched(paths, lambda: clock.wall().date())
    return Definer(source, Control(store, clock).apply, clock, config.definitions)
