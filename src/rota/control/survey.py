"""What families of requests share: every request may be repeated, so one whose answer was lost is sent once more; and
what coordinator and store know of schedulers, jobs and owners."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from rota.coordinators.recipes import LEADER, notify, read_handover, read_member, read_peer, read_plan
from rota.core.cluster import ClusterFacts
from rota.core.placement.scope import owner_of
from rota.errors import CoordinatorUnavailable, Refused, StoreUnavailable
from rota.model.cluster import Peer, Placement, ScopePlan
from rota.model.entry import Entry
from rota.model.folders import BEAT, HANDOVER, JOBS, LIVE
from rota.ports import Clock, Coordinator, Store

S = TypeVar("S")
T = TypeVar("T")

TRIES = 5


class Family:
    """What may be asked of a store, and by which clock."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock


def patient(server: S, clock: Clock) -> S:
    """The same store or coordinator, for somebody who repeats each request up to `TRIES` times in all."""
    return cast("S", Patient(server, clock))


class Patient:
    """Whatever request there is, it is repeated while there is no answer."""

    def __init__(self, server: object, clock: Clock) -> None:
        self._server = server
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._server, name)
        if not iscoroutinefunction(found):
            return found

        async def asked(*args: Any, **kwargs: Any) -> Any:
            return await self._again(lambda: found(*args, **kwargs))

        return asked

    async def _again(self, ask: Callable[[], Awaitable[T]]) -> T:
        for attempt in range(TRIES - 1):
            try:
                return await ask()
            except StoreUnavailable:
                pass
            except CoordinatorUnavailable:
                if attempt:
                    raise  # the coordinator's client has itself waited for seconds
            await self._clock.sleep(0.1 * 2**attempt * (0.5 + self._clock.chance()))
        return await ask()


class ClusterSurvey(Family):
    """What store and coordinator know of the cluster as a whole."""

    def __init__(self, store: Store, clock: Clock, coordinator: Coordinator | None) -> None:
        super().__init__(store, clock)
        self._coordinator = coordinator

    async def facts(self) -> ClusterFacts:
        listed = await self._store.drains()
        placeable = await self._store.placeable(-1)
        peers = await self._peers()
        plan = read_plan(await self._entry(LIVE))
        claims = await self._entries(JOBS)
        kind = _placement(peers, plan, claims)
        jobs = frozenset(placeable.jobs or ())
        return ClusterFacts(
            now=listed.now,
            placement=kind,
            jobs=jobs,
            peers=peers,
            drains=listed.drains,
            holds=await self._store.holds(),
            owners=_owners(kind, jobs, peers, plan, claims),
            handovers={entry.name: read_handover(entry) for entry in await self._entries(HANDOVER)},
            plan=plan if kind is Placement.SCOPE else None,
            leader=await self._leader(kind, peers),
        )

    @property
    def _coordination(self) -> Coordinator:
        if self._coordinator is None:
            raise Refused("there is no coordinator here; see: rota config show (coordinator.url)")
        return self._coordinator

    async def _entries(self, folder: str) -> tuple[Entry, ...]:
        return await self._coordination.read(folder)

    async def _entry(self, key: str) -> Entry | None:
        return await self._coordination.get(key)

    async def _notify(self, topic: str) -> None:
        await notify(self._coordination, self._clock, topic)

    async def _peers(self, folder: str = LIVE) -> tuple[Peer, ...]:
        read = read_member if folder == LIVE else read_peer
        found = (read(entry) for entry in await self._entries(folder))
        return tuple(peer for peer in found if peer is not None)

    async def _leader(self, kind: Placement | None, peers: Sequence[Peer]) -> str | None:
        if kind is Placement.SCOPE:
            entry = await self._entry(LEADER)
        elif kind is Placement.BEAT:
            entry = max(await self._entries(BEAT), key=lambda it: _number(it.name.rpartition("-")[2]), default=None)
        else:
            return None
        if entry is None:
            return None
        return next((it.name for it in peers if entry.value in (it.address, it.name, it.incarnation)), entry.value)


def _placement(peers: Sequence[Peer], plan: ScopePlan | None, claims: Sequence[Entry]) -> Placement | None:
    """Return the placement that the schedulers report; if an older release reports none, infer it from its entries."""
    told = next((peer.placement for peer in peers if peer.placement is not None), None)
    if told is not None:
        return told
    return Placement.CLAIM if claims else Placement.SCOPE if plan is not None and peers else None


def _owners(
    kind: Placement | None,
    jobs: frozenset[int],
    peers: Sequence[Peer],
    plan: ScopePlan | None,
    claims: Sequence[Entry],
) -> dict[int, str]:
    if kind is Placement.SCOPE and plan is not None:
        whose, living = owner_of(plan), {peer.name for peer in peers}
        named = {job_id: whose(job_id) for job_id in jobs}
        return {job_id: name for job_id, name in named.items() if name is not None and name in living}
    return {_number(entry.name): entry.value for entry in claims} if kind is Placement.CLAIM else {}


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
