"""One client's session: a lease, and a mark that goes with it.

    none ──begin──> granted ──mark──> living ──renew──> living
                       │                 └── TTL 0, the mark is gone, or end ──> none
                       └── no answer: it is owed an end, like any lease that may live on unused

Whoever chooses the lease's number can end it without having heard of it. The mark lets one transaction ask whether the
session lives and act upon it: etcd cannot be asked for a lease there, only for a key.
"""

from __future__ import annotations

import hashlib
import math
from contextlib import suppress
from typing import TYPE_CHECKING

from rota.coordinators.etcd.wire import PUT, Compare, Lease, Put, Ranged, Renewed, exists
from rota.errors import SessionLost
from rota.ports import Clock

if TYPE_CHECKING:
    from rota.coordinators.etcd.gateway import Gateway

GRANT, RENEW, REVOKE = "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"


class EtcdSession:
    """At most one living lease, and those that are owed an end."""

    def __init__(self, gateway: Gateway, clock: Clock, prefix: str, *, ttl_s: float) -> None:
        self._gateway = gateway
        self._clock = clock
        self._prefix = prefix
        self._ttl_s = ttl_s
        self._owed: set[int] = set()
        self.lease = 0
        self.believed_until_s = 0.0

    async def begin(self) -> int:
        """Get a lease; what there was before is ended first."""
        await self.end()
        lease = _number(self._clock.token())
        self._owed.add(lease)
        sent_s = self._clock.monotonic()
        await self._gateway.ask(GRANT, Lease(id=lease, ttl=math.ceil(self._ttl_s)), Lease)
        await self._gateway.ask(PUT, Put(key=self._mark(lease), lease=lease), Ranged, again=True)
        self._owed.discard(lease)
        self.lease, self.believed_until_s = lease, sent_s + self._ttl_s
        return lease

    async def renew(self) -> bool:
        """Prolong the lease. An answer without a time to live means that it is over."""
        lease, sent_s = self.lease, self._clock.monotonic()
        if not lease:
            return False
        renewed = await self._gateway.ask(RENEW, Lease(id=lease), Renewed, again=True)
        if not renewed.result.ttl:
            self.over(lease)
        elif self.lease == lease:
            self.believed_until_s = max(self.believed_until_s, sent_s + self._ttl_s)
        return self.lease == lease

    async def end(self) -> None:
        """Believe in no lease any more, and end all that may live."""
        if self.lease:
            self._owed.add(self.lease)
            self.over(self.lease)
        for lease in tuple(self._owed):
            with suppress(SessionLost):  # it was over already
                await self._gateway.ask(REVOKE, Lease(id=lease), Lease, again=True)
            self._owed.discard(lease)

    def over(self, lease: int) -> None:
        """Take note that this lease is over; a later one is not meant."""
        if self.lease == lease:
            self.lease, self.believed_until_s = 0, 0.0

    def living(self) -> int:
        """The lease, as far as is known."""
        if not self.lease:
            raise SessionLost("this node has no session")
        return self.lease

    def lives(self, lease: int) -> Compare:
        """The condition that a lease is not over."""
        return exists(self._mark(lease))

    def _mark(self, lease: int) -> bytes:
        return f"{self._prefix}.sessions/{name_of(lease)}".encode()


def _number(token: str) -> int:
    """A lease's number, for it is no text: positive, and nobody else's."""
    return 1 + int.from_bytes(hashlib.blake2b(token.encode(), digest_size=7).digest())


def name_of(lease: int) -> str:
    """A lease as etcd's own tools write it."""
    return f"{lease:016x}"
