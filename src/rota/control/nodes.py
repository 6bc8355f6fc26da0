"""Nodes: list them, drain them, and wait until they are drained."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from rota.control.survey import ClusterSurvey
from rota.control.values import Shape, fields_of
from rota.core.cluster import ClusterFacts, drain_objections
from rota.errors import CoordinatorUnavailable, InvalidInput, Refused
from rota.model.cluster import Drain, Peer, Placement, Role
from rota.model.folders import ALL
from rota.model.node import Members, Node
from rota.transactions.members import drain, undrain

LOOK_S = 0.25
ITEMS_MAX = 10_000


class Load(NamedTuple):
    """The jobs and items that draining nodes still have."""

    jobs: int
    items: int

    @property
    def is_none(self) -> bool:
        return not (self.jobs or self.items)


class NodeControl(ClusterSurvey):
    async def find(self, *, gone: bool = False) -> Members:
        """The nodes that are believed alive; `gone`: those that were, too."""
        return await self._store.nodes(gone=gone)

    async def seats_taken(self) -> Mapping[int, int]:
        return await self._store.seats_taken()

    async def former_schedulers(self) -> tuple[Peer, ...]:
        """Every scheduler that ever took part, as far as the coordinator remembers."""
        return () if self._coordinator is None else await self._peers(ALL)

    async def drain(
        self,
        names: Sequence[str],
        *,
        roles: Collection[Role] = tuple(Role),
        release: int | None = None,
        deadline_s: float | None = None,
        force: bool = False,
    ) -> Members:
        """Put nodes, by name, on the offline list: also nodes that have not joined yet. With `release`, a scheduler is
        off it again when it has given up so many jobs; at the deadline it gives up also jobs whose runs go on.

        Refused, unless forced, if too many schedulers would be gone, or the others could not hold all jobs."""
        _check(names)
        asks = self._coordinator is not None and Role.SCHEDULER in roles and (release is not None or not force)
        facts = await self.facts() if asks else None
        if facts is not None and not force and (found := drain_objections(facts, names)):
            raise Refused(f"{'; '.join(found)}. To drain them all the same: --force")
        now = await self._store.now()
        until = None if deadline_s is None else now + timedelta(seconds=deadline_s)
        keep = {} if release is None else {name: _kept(facts, name, release) for name in names}
        order = tuple(role for role in Role if role in roles)
        drains = [Drain(name=it, roles=order, keep=keep.get(it), deadline_at=until) for it in names]
        await self._store.transact(drain, drains)
        return await self._told()

    async def undrain(self, names: Sequence[str], *, roles: Collection[Role] = tuple(Role)) -> Members:
        _check(names)
        await self._store.transact(undrain, names, tuple(roles))
        return await self._told()

    async def drained(
        self, names: Collection[str], roles: Collection[Role], tell: Callable[[Load], None], within_s: float
    ) -> Load:
        """Wait until these nodes have no jobs and items, or are off the list, or time is up. Returns what is left."""
        until_s = self._clock.monotonic() + within_s
        while True:
            load = await self._load(names, roles)
            tell(load)
            if load.is_none or self._clock.monotonic() >= until_s:
                return load
            await self._clock.sleep(LOOK_S)

    async def _load(self, names: Collection[str], roles: Collection[Role]) -> Load:
        """What the nodes have in those roles in which they are still on the list."""
        listed = {it.name: it.roles for it in (await self._store.drains()).drains if it.name in names}
        firing = {it for it, its in listed.items() if Role.SCHEDULER in its and Role.SCHEDULER in roles}
        working = {it for it, its in listed.items() if Role.EXECUTOR in its and Role.EXECUTOR in roles}
        held = 0 if self._coordinator is None or not firing else _held(await self.facts(), firing)
        items = 0
        for node in (await self.find()).nodes:
            if node.joined.name in working:
                items += len(await self._store.queued(node_id=node.id, limit=ITEMS_MAX))
        return Load(held, items)

    async def _told(self) -> Members:
        """Wake the schedulers, and return the nodes. If nobody can be woken, they see the change at their next look."""
        if self._coordinator is not None:
            with suppress(CoordinatorUnavailable):
                await self._notify("drain")
        return await self.find()


def _held(facts: ClusterFacts, names: Collection[str]) -> int:
    held = facts.held
    return sum(held[name] for name in names if facts.peer(name) is not None)


def _kept(facts: ClusterFacts | None, name: str, release: int) -> int:
    if facts is None or facts.placement is not Placement.CLAIM or facts.peer(name) is None:
        raise InvalidInput.of(
            "release", f"{name} is no scheduler that claims jobs here; it can only give up all of them"
        )
    return max(facts.held[name] - release, 0)


def _check(names: Sequence[str]) -> None:
    from rota.definitions import fields
    from rota.definitions.report import Report

    report = Report()
    for name in names:
        report.read(("name",), fields.name, name)
    report.raise_if_any()


def nodes_shape(nodes: Iterable[Node], seats_taken: Mapping[int, int], former: Iterable[Peer]) -> list[Shape]:
    """The nodes of the cluster, and the schedulers that only the coordinator remembers."""
    here = [{**node_shape(it), "seats_taken": seats_taken.get(it.id, 0)} for it in nodes]
    return [*here, *map(former_shape, former)]


def node_shape(node: Node) -> Shape:
    joined = node.joined
    return {
        "id": node.id,
        "name": joined.name,
        "state": str(node.state),
        "roles": joined.digests.get("roles", "all"),
        "group": joined.group,
        "number": joined.number or None,
        "seats": joined.seats,
        "busy": node.busy,
        **fields_of(joined.place, "host", "pid"),
        **fields_of(joined, "boundary", "version", "handlers"),
        **fields_of(node, "joined_at", "left_at", "lease_until"),
    }


def former_shape(peer: Peer) -> Shape:
    """A scheduler of which nothing is left but what the coordinator remembers."""
    unknown = "id roles group number seats seats_taken busy pid boundary handlers joined_at left_at lease_until".split()
    told = {"name": peer.name, "state": "offline", "host": peer.address or None, "version": peer.version}
    return {**told, **dict.fromkeys(unknown)}


def drained_shape(names: Sequence[str], listed: Collection[str], states: Mapping[str, str]) -> list[Shape]:
    """Whether nodes are on the offline list, and the state of those that are here."""
    return [{"name": it, "drained": it in listed, "state": states.get(it)} for it in names]
