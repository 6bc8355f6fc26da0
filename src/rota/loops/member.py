"""Be a member: join, renew the lease, and pass each renewal on to the switches of the process trees.

    not joined ──join, when nobody living has the name──> joined ──renew, three times in a lease──> joined
        ^                  │ given up by the others (its lease was over, or its name was taken)
        └──── end all work ┘

A store that has lost its latest history may have given this node something that it does not know any more. That is
ended before the switches are moved on (`settling`).

A lease counts from when its renewal was *sent*. While the store is away nothing is renewed, and the switches act by
themselves when their time comes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from rota.config import LeaseConfig
from rota.core.lease import is_replaced, namesakes
from rota.errors import Refused
from rota.logger import log
from rota.loops.loop import Loop
from rota.model.node import Members, NewNode, Place
from rota.ports import Clock, Runner, Store
from rota.transactions.members import join, retire

RENEW_SHARE = 0.3
"""How much of a lease passes between two renewals."""
SETTLE_LOOK_S = 0.05
"""How often to look whether what the store does not know is gone."""
HELD_LOOK_S = 0.25
"""How often to look whether a name is free."""


@dataclass(slots=True)
class Identity:
    """The name of this node, and the id that the store gave to its present incarnation. The id is none while the node
    has not joined, or has lost its lease and not joined anew. Only `Member` changes it; the other loops read it."""

    name: str
    id: int | None = None


@dataclass(eq=False, repr=False)
class Member(Loop):
    """Keeps this node believed alive for as long as it is."""

    store: Store
    clock: Clock
    config: LeaseConfig
    identity: Identity
    runner: Runner | None
    describe: Callable[[str], NewNode]
    busy: Callable[[], float] = lambda: 0.0
    abandon: Callable[[], Awaitable[None]] | None = None
    is_gone: Callable[[Place], bool] = lambda place: False
    settle: Callable[[int, int], Awaitable[bool]] | None = None
    _settled_in: int | None = None
    """The generation of the store in which it knows all that this node has in hand."""
    _holder: tuple[int, int, float] | None = None
    """Who has the name (node and beat), and since when it was seen so, by the monotonic clock."""
    _ending_work: bool = False
    _token: str | None = None
    _asked_s: float = 0.0
    _former_id: int | None = None
    draining: bool = False
    """Whether it takes nothing more: an incarnation that joins meanwhile takes nothing either."""
    joined: asyncio.Event = field(default_factory=asyncio.Event)

    async def once(self) -> float:
        if self._ending_work:
            await self._end_work()
        sent_s = self.clock.boottime()
        if self.identity.id is None:
            members = await self.store.nodes()
            if self._is_replaced(members):
                return RENEW_SHARE * self.config.lease_s
            if self._must_wait(members):
                return HELD_LOOK_S
            try:
                sent_s = await self._join()
            except Refused as refused:
                log.warning("node.refused", node=self.identity.name, reason=str(refused))
                return RENEW_SHARE * self.config.lease_s
        else:
            generation = await self.store.renew(self.identity.id, lease_s=self.config.lease_s, busy=self.busy())
            if generation is None:
                return self._given_up()
            if not await self._is_settled(self.identity.id, generation):
                return SETTLE_LOOK_S
        if self.runner is not None:
            self.runner.renew(sent_s + self.config.lease_s - self.config.margin_s)
        self.joined.set()
        return max(RENEW_SHARE * self.config.lease_s - (self.clock.boottime() - sent_s), 0.0)

    async def _join(self) -> float:
        """Says when it was first asked for: a join that is repeated finds the lease as the first one left it."""
        if self._token is None:
            self._token, self._asked_s = self.clock.token(), self.clock.boottime()  # until the store has answered
        joined = await self.store.transact(join, self.describe(self._token), lease_s=self.config.lease_s)
        self._token = None
        if self.draining:
            await self.store.transact(retire, joined.id)
        self.identity.id = joined.id
        self._former_id = joined.id
        self._settled_in = joined.generation
        log.info("node.joined", node=self.identity.name, id=joined.id, number=joined.number)
        return self._asked_s

    def _must_wait(self, members: Members) -> bool:
        """Whether another node has the name and may be alive: to join would end its work. It is not waited for if its
        process is seen dead on this host, nor for longer than a lease and a margin in which it did not renew."""
        name, own_id = self.identity.name, self._former_id
        others = namesakes(name, members.nodes, members.now, own_id=own_id, token=self._token)
        last = next((it for it in reversed(others) if not self.is_gone(it.joined.place)), None)
        if last is None:
            self._holder = None
            return False
        now_s = self.clock.monotonic()
        if self._holder is None or self._holder[0] != last.id:
            place, until = last.joined.place, last.lease_until
            where = {"host": place.host, "pid": place.pid, "lease_until": None if until is None else until.isoformat()}
            log.warning("node.name_held", node=last.joined.name, **where)
        if self._holder is None or self._holder[:2] != (last.id, last.beat):
            self._holder = last.id, last.beat, now_s
        return now_s - self._holder[2] <= self.config.lease_s + self.config.margin_s

    def _is_replaced(self, members: Members) -> bool:
        """Whether a newer node of the same name lives: joining again would end its work, and so on in turns."""
        if not is_replaced(self.identity.name, self._former_id, members.nodes, members.now):
            return False
        log.warning("node.replaced", node=self.identity.name)
        return True

    async def _is_settled(self, node_id: int, generation: int) -> bool:
        """Whether the store knows of all that this node has in hand; what it does not know is being ended."""
        if generation != self._settled_in and self.settle is not None:
            if not await self.settle(node_id, generation):
                return False
            self._settled_in = generation
        return True

    def _given_up(self) -> float:
        """Others have taken this node for dead. Its work ends before it joins anew."""
        log.warning("lease.lost", node=self.identity.name)
        self.identity.id = None
        self._ending_work = self.abandon is not None
        return 0.0

    async def _end_work(self) -> None:
        """Until this has succeeded, the node does not join: it could not execute anything."""
        assert self.abandon is not None
        await self.abandon()
        self._ending_work = False
