"""Tell the cluster what this node can run, and what a doctor should know of its host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rota.config import Config
from rota.core.time.zones import data_version
from rota.logger import log
from rota.loops.loop import Loop
from rota.loops.member import Identity
from rota.model.job import kind_handler
from rota.model.node import UNABLE, UNREACHABLE, NewNode, Node, Place
from rota.ports import Clock, Runner, Store
from rota.transactions.members import advertise

SetApps = Callable[[dict[str, str]], None]
"""Replaces the map from an advertised name to the file of its app."""

LOOK_S = 2.0


class HostFacts(Protocol):
    """What a node asks of the host that it runs on."""

    @property
    def address(self) -> str:
        """Where the others reach this node."""

    @property
    def skew_s(self) -> float | None:
        """How far the clock of this host is ahead of the store's, at the least; none if nobody could tell."""

    def place(self) -> Place: ...

    def is_gone(self, place: Place) -> bool:
        """True if a process of this host is seen dead. A process that we cannot see counts as alive."""

    def cpu(self) -> float:
        """The share of the processors that is in use."""

    def memory(self) -> float:
        """The share of the memory that is in use."""

    def kinds(self) -> Sequence[str]:
        """The kinds of task that plugins have added here."""

    def promises(self, boundary: str) -> Mapping[str, str]:
        """What tasks may do here; and what a boundary of processes promises, and why no stronger one is in use, if one
        is named."""


class Apps(Protocol):
    """What a node can call, as a load of definitions has found it."""

    @property
    def handlers(self) -> Sequence[str]: ...

    @property
    def listeners(self) -> Sequence[str]: ...

    @property
    def homes(self) -> Sequence[tuple[str, str]]:
        """By advertised name, the file whose app has it."""

    @property
    def digest(self) -> str: ...


@dataclass(slots=True)
class Advertiser:
    """Describes this node when it joins, and advertises what changes later. What was not told is told at the next
    change."""

    store: Store
    identity: Identity
    config: Config
    host: HostFacts
    runner: Runner | None
    apps: Apps
    set_apps: SetApps
    version: str
    _unreachable: tuple[int, ...] = ()
    _unable: str = ""
    _promises: tuple[str, Mapping[str, str]] | None = None

    def describe(self, incarnation: str) -> NewNode:
        executor = self.config.executor
        return NewNode(
            name=self.config.node.name,
            incarnation=incarnation,
            place=self.host.place(),
            group=executor.group,
            number=executor.number,
            seats=0 if self.runner is None else executor.seats,
            handlers=self._handlers(self.apps),
            digests=self._digests(self.apps),
            boundary="" if self.runner is None else self.runner.boundary,
            version=self.version,
            address=self.host.address,
        )

    async def tell_apps(self, apps: Apps) -> None:
        """The apps were read anew: workers of changed files are replaced, and the others are told."""
        if (apps.homes, apps.digest) == (self.apps.homes, self.apps.digest):
            return
        self.set_apps(dict(apps.homes))
        await self._advertise(apps)
        self.apps = apps  # only now: what was not told is told at the next load

    async def tell_unreachable(self, nodes: Sequence[Node]) -> None:
        self._unreachable = tuple(sorted(node.id for node in nodes))
        await self._advertise(self.apps)

    async def tell_unable(self, why: str) -> None:
        """This node can execute nothing, for that reason; none: it can again."""
        self._unable = why
        await self._advertise(self.apps)

    async def _advertise(self, apps: Apps) -> None:
        if self.identity.id is not None:
            await self.store.transact(advertise, self.identity.id, self._handlers(apps), self._digests(apps))

    def _handlers(self, apps: Apps) -> tuple[str, ...]:
        modules = [f"{name}:*" for name in words(self.config.executor.modules)]
        kinds = map(kind_handler, self.host.kinds())
        return (*apps.handlers, *apps.listeners, *modules, *kinds)

    def _digests(self, apps: Apps) -> dict[str, str]:
        """What the doctor looks at: apps, time-zone data, how far this host's clock is off, whom it cannot reach,
        and why its boundary is not a stronger one."""
        found = {"apps": apps.digest, "tzdata": data_version(), UNABLE: self._unable}
        if self.config.node.roles != "all":
            found["roles"] = self.config.node.roles
        if self.host.skew_s is not None:
            found["skew_s"] = f"{self.host.skew_s:.3f}"
        found[UNREACHABLE] = " ".join(map(str, self._unreachable))
        return {name: text for name, text in {**found, **self._promised()}.items() if text}

    def _promised(self) -> Mapping[str, str]:
        """Asked once, when the runner knows its boundary: to find out what a host can do may start a process."""
        boundary = "" if self.runner is None else self.runner.boundary
        if self._promises is None or self._promises[0] != boundary:
            self._promises = boundary, self.host.promises(boundary)
        return self._promises[1]


def words(text: str) -> tuple[str, ...]:
    """The words of a setting that has several, with commas between."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


class AbilityReporter(Loop):
    """Asks the runner whether it can start anything, and tells the others when that changes. While it cannot, the node
    is given no items."""

    def __init__(self, clock: Clock, runner: Runner, say: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(clock)
        self._runner = runner
        self._say = say
        self._told = ""

    async def once(self) -> float:
        why = self._runner.unable()
        if why != self._told:
            await self._say(why)
            if why:
                log.error("node.unable", reason=why)
            else:
                log.info("node.able")
            self._told = why
        return LOOK_S
