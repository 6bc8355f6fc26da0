"""Keep the session of this scheduler with the coordinator, and what it tells of itself under it.

    away ──join, register, tell n, M and the balance──> present ──renew, every 0.4 of a session──> present
      ^  └──a step fails: begin anew, from the join──┐    │ the session is over, or the name was taken
      └──────────────────────────────────────────────┴────┘ forget all claims

It is present only when every step of entering was done. What it tells is compared with what is there once in a session.
A name that another incarnation has taken is not taken back while that one lives: two processes of one name would
fence each other in turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rota.coordinators.recipes import put_lasting, read_member
from rota.logger import log
from rota.loops.loop import Loop
from rota.loops.signals import Signals
from rota.model.cluster import Peer
from rota.model.folders import ALL, LIVE
from rota.model.value import encode
from rota.ports import Clock, Coordinator

RENEW_SHARE = 0.4
"""How much of a session passes between two renewals. One that gets no answer is given up after 2 s; then there is time
for another one."""
CHECK_EVERY = 8
"""After how many renewals this scheduler looks whether it still has its name."""
LOAD_STEP = 10.0
"""By how much the busy score must have changed to be told."""
LOAD_EVERY_S = 300.0
"""How often it is told at most: every change makes all schedulers look at everything."""


@dataclass(eq=False, repr=False)
class SessionKeeper(Loop):
    """Joins, renews the session and registers this scheduler under it. `limit` reads how many jobs it may have, for the
    balance that it tells first."""

    coordinator: Coordinator
    clock: Clock
    describe: Callable[[], Peer]
    busy: Callable[[], float] = lambda: 0.0
    on_lost: str = "continue"
    limit: Callable[[], Awaitable[int]] | None = None
    signals: Signals = field(default_factory=Signals)
    _fence: int = 0
    _renewals: int = 0
    _been_present: bool = False
    _load_at_s: float = 0.0
    _leaving: bool = False
    _speaking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it enters, renews or leaves: one that entered after it has left would be a ghost."""
    _telling: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it changes what it tells."""
    session: str | None = None
    """The session under which this scheduler is registered; none while it is away."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.peer = self.describe()

    @property
    def key(self) -> str:
        return f"{LIVE}/{self.peer.name}"

    @property
    def is_believed(self) -> bool:
        """Whether nobody else can have got a claim of this scheduler yet."""
        return self.session is not None and self.clock.monotonic() < self.coordinator.believed_until_s

    @property
    def may_fire(self) -> bool:
        """Whether it goes on with what it has, as far as it knows."""
        return self.on_lost != "stop" or self.is_believed

    async def once(self) -> float:
        async with self._speaking:
            return await self._attend()

    async def _attend(self) -> float:
        began_s = self.clock.monotonic()
        if self._leaving:
            return 0.0
        if self.session is None:
            await self._enter()
        elif not await self.coordinator.renew():
            self._lose("the session is over")
            return 0.0
        else:
            await self._tell_load()
            await self._check_name()
        return max(self.coordinator.ttl_s * RENEW_SHARE - (self.clock.monotonic() - began_s), 0.0)

    async def tell(self, **changes: Any) -> None:
        async with self._telling:
            peer = msgspec.structs.replace(self.peer, **changes)
            if self.session is None:
                self.peer = peer
            elif peer != self.peer and not await self._update(peer):
                self._lose("its name was taken by another")

    async def enlist(self) -> None:
        """Put this scheduler on the list of all that ever took part."""
        await put_lasting(self.coordinator, f"{ALL}/{self.peer.name}", self.enlisted)

    @property
    def enlisted(self) -> str:
        """What that list says of this scheduler."""
        return encode(_registration(self.peer))

    def failed(self) -> None:
        if self.on_lost == "exit" and self._been_present and not self.is_believed:
            log.error("coordinator.given_up", scheduler=self.peer.name, on_lost=self.on_lost)
            self.signals.coordinator_given_up.emit()

    async def _tell_load(self) -> None:
        """Not every little change: each is a write that all others read."""
        busy, now_s = self.busy(), self.clock.monotonic()
        if abs(busy - self.peer.busy) >= LOAD_STEP and now_s >= self._load_at_s:
            self._load_at_s = now_s + LOAD_EVERY_S
            await self.tell(busy=busy)

    async def leave(self) -> None:
        """End the session; the claims go to others at once."""
        self._leaving = True
        self.stop()
        async with self._speaking:
            self.session = None
            await self.coordinator.leave()

    async def _enter(self) -> None:
        """The order of S0.26: register, tell n, tell M, publish the balance."""
        bare = self.describe()
        if self.coordinator.session is not None:
            await self.coordinator.leave()  # what it still claims is not this scheduler's any more
        if not await self._may_have_name(bare):
            return
        session = await self.coordinator.join()
        won = await self.coordinator.claim({self.key: encode(_registration(bare))})
        if self.key not in won:
            return  # somebody was faster; look again
        self._fence, self.peer = won[self.key], _registration(bare)
        if not await self._introduce(bare):
            return  # somebody has taken the name; look again
        await self.enlist()
        self.session, self._been_present = session, True
        log.info("scheduler.joined", scheduler=bare.name, session=session)
        self.signals.session_began.emit()

    async def _introduce(self, bare: Peer) -> bool:
        steps = ({"faults": bare.faults}, {"alarm": bare.alarm})
        for step in steps:
            if not await self._update(msgspec.structs.replace(self.peer, **step)):
                return False
        limit = 0 if self.limit is None else await self.limit()
        balance = {"held": 0, "limit": limit, "busy": self.busy()}
        return await self._update(msgspec.structs.replace(self.peer, **balance))

    async def _may_have_name(self, bare: Peer) -> bool:
        """End what an earlier incarnation still claims; a later one keeps the name. What is no scheduler has none."""
        entry = await self.coordinator.get(self.key)
        known = None if entry is None else read_member(entry)
        if entry is None:
            return True
        if known is None:
            self.signals.repaired.emit(f"{self.key} was not a scheduler's, and was removed")
        elif self._been_present and known.incarnation != bare.incarnation:
            log.warning("scheduler.name_held", scheduler=bare.name)
            return False
        return await self.coordinator.delete(self.key, entry.version)

    async def _check_name(self) -> None:
        """Look now and then whether this scheduler still has its name, and whether it is told right."""
        self._renewals += 1
        if self.session is None or self._renewals % CHECK_EVERY:
            return
        async with self._telling:
            entry = await self.coordinator.get(self.key)
            if entry is None or entry.fence != self._fence:
                self._lose("its name was lost, or taken by another")
            elif entry.value != encode(self.peer):
                self.signals.repaired.emit(f"{self.key} was changed by somebody else, and was told anew")
                await self._update(self.peer)

    async def _update(self, peer: Peer) -> bool:
        if not await self.coordinator.update(self.key, self._fence, encode(peer)):
            return False
        self.peer = peer
        return True

    def _lose(self, reason: str) -> None:
        if self.session is None or self._leaving:
            return
        log.warning("scheduler.session_lost", scheduler=self.peer.name, reason=reason)
        self.signals.repaired.emit(f"it took part anew, for {reason}")
        self.session = None
        self.signals.session_lost.emit()
        self.wake()


def _registration(bare: Peer) -> Peer:
    return Peer(
        name=bare.name,
        incarnation=bare.incarnation,
        address=bare.address,
        version=bare.version,
        weight=bare.weight,
        placement=bare.placement,
    )
