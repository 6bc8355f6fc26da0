"""Attend: keep the session of this scheduler, and what it tells of itself under it.

    away ──join, register, tell n, M and the balance──> present ──renew, every quarter of a session──> present
      ^                                                   │ the session is over, or the name was taken
      └───────────────── forget all claims ───────────────┘

A name that another incarnation has taken is not taken back while that one lives: two processes of one name would
fence each other in turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import structlog

from rota.coordination.peers import read_peer
from rota.loops.loop import Loop
from rota.model.cluster import Peer
from rota.model.folders import ALL, LIVE
from rota.model.value import encode
from rota.ports import Clock, Coordinator

LOAD_STEP = 10.0
"""By how much the busy score must have changed to be told."""

log = structlog.get_logger()


class Attendant(Loop):
    """Keeps this scheduler among the living."""

    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        describe: Callable[[], Peer],
        *,
        busy: Callable[[], float] = lambda: 0.0,
        on_lost: str = "continue",
    ) -> None:
        super().__init__(clock)
        self._coordinator = coordinator
        self._describe = describe
        self._busy = busy
        self._when_lost = on_lost
        self._fence = 0
        self._renewals = 0
        self._been_present = False
        self._leaving = False
        self._speaking = asyncio.Lock()
        """Held while it enters, renews or leaves: one that entered after it has left would be a ghost."""
        self.peer = describe()
        self.session: str | None = None
        """The session under which this scheduler is registered; none while it is away."""
        self.on_entered: Callable[[], None] = lambda: None
        self.on_lost: Callable[[], None] = lambda: None
        self.limit: Callable[[], Awaitable[int]] = _no_limit
        """Reads how many jobs this scheduler may have, for the balance that it tells first."""
        self.on_exit: Callable[[], None] = lambda: None
        """Told when the coordinator is lost and this process shall then end."""

    @property
    def key(self) -> str:
        return f"{LIVE}/{self.peer.name}"

    @property
    def is_believed(self) -> bool:
        """Whether nobody else can have got a claim of this scheduler yet."""
        return self.session is not None and self._clock.monotonic() < self._coordinator.believed_until_s

    @property
    def may_fire(self) -> bool:
        """Whether it goes on with what it has, as far as it knows."""
        return self._when_lost != "stop" or self.is_believed

    async def once(self) -> float:
        async with self._speaking:
            return await self._attend()

    async def _attend(self) -> float:
        began_s = self._clock.monotonic()
        if self._leaving:
            return 0.0
        if self.session is None:
            await self._enter()
        elif not await self._coordinator.renew():
            self._lose("the session is over")
            return 0.0
        else:
            await self._tell_load()
            await self._check_name()
        return max(self._coordinator.ttl_s / 4 - (self._clock.monotonic() - began_s), 0.0)

    async def tell(self, **changes: Any) -> None:
        """Change what this scheduler says of itself."""
        if self.session is None:
            self.peer = msgspec.structs.replace(self.peer, **changes)
        elif (peer := msgspec.structs.replace(self.peer, **changes)) != self.peer:
            await self._update(peer)

    def _back_off(self, event: str, **details: object) -> float:
        if self._when_lost == "exit" and self._been_present and not self.is_believed:
            log.error("the coordinator is lost, and coordinator.on_lost says exit")
            self.on_exit()
        return super()._back_off(event, **details)

    async def _tell_load(self) -> None:
        """Not every little change: each is a write that all others read."""
        busy = self._busy()
        if abs(busy - self.peer.busy) >= LOAD_STEP:
            await self.tell(busy=busy)

    async def leave(self) -> None:
        """End the session; the claims go to others at once."""
        self._leaving = True
        self.stop()
        async with self._speaking:
            self.session = None
            await self._coordinator.leave()

    async def _enter(self) -> None:
        """The order of S0.26: register, tell n, tell M, publish the balance."""
        bare = self._describe()
        if self._coordinator.session is not None:
            await self._coordinator.leave()  # what it still claims is not this scheduler's any more
        if not await self._may_have_name(bare):
            return
        session = await self._coordinator.join()
        won = await self._coordinator.claim({self.key: encode(_registration(bare))})
        if self.key not in won:
            return  # somebody was faster; look again
        self._fence, self.session = won[self.key], session
        self.peer = _registration(bare)
        for step in ({"faults": bare.faults}, {"alarm": bare.alarm}):
            await self._update(msgspec.structs.replace(self.peer, **step))
        balance = {"held": 0, "limit": await self.limit(), "busy": self._busy()}
        await self._update(msgspec.structs.replace(self.peer, **balance))
        await self._coordinator.put(f"{ALL}/{bare.name}", encode(_registration(bare)))
        self._been_present = True
        log.info("takes part", scheduler=bare.name, session=session)
        self.on_entered()

    async def _may_have_name(self, bare: Peer) -> bool:
        """End what an earlier incarnation still claims; a later one keeps the name."""
        entry = await self._coordinator.get(self.key)
        known = None if entry is None else read_peer(entry)
        if entry is None:
            return True
        if self._been_present and (known is None or known.incarnation != bare.incarnation):
            log.warning("another scheduler has this one's name; not taking part while it lives", name=bare.name)
            return False
        return await self._coordinator.delete(self.key, entry.version)

    async def _check_name(self) -> None:
        """Look once in a session whether this scheduler still has its name."""
        self._renewals += 1
        if self.session is None or self._renewals % 4:
            return
        entry = await self._coordinator.get(self.key)
        if entry is None or entry.fence != self._fence:
            self._lose("its name was taken by another")

    async def _update(self, peer: Peer) -> None:
        if not await self._coordinator.update(self.key, self._fence, encode(peer)):
            self._lose("its name was taken by another")
            return
        self.peer = peer

    def _lose(self, reason: str) -> None:
        if self.session is None or self._leaving:
            return
        log.warning("takes part no more", scheduler=self.peer.name, reason=reason)
        self.session = None
        self.on_lost()
        self.wake()


async def _no_limit() -> int:
    return 0


def _registration(bare: Peer) -> Peer:
    return Peer(
        name=bare.name,
        incarnation=bare.incarnation,
        address=bare.address,
        version=bare.version,
        weight=bare.weight,
        placement=bare.placement,
    )
