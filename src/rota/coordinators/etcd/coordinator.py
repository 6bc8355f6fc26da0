"""The verbs of a coordinator, each as one or a few transactions of etcd.

A claim is a key with a lease. Its fence is the revision that made it, its version the one that wrote it last: etcd has
one number for all writes, so both only rise. What needs a session asks in the same transaction whether it lives.

Listening is one watch of the whole namespace. It only wakes; what has changed is read by whoever was woken.

    connect ──created──> hear ──silent for a while──> connect, from where it stopped: nothing is missed
       ^                  └── lost, or its revision is forgotten ──> connect, and wake everybody
       └──── back off ────┘
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rota.coordinators.etcd import wire
from rota.coordinators.etcd.address import address_of
from rota.errors import CoordinatorError, CoordinatorRefused, CoordinatorUnavailable, SessionLost
from rota.model.entry import Entry, batches, check_entries, folder_of
from rota.ports import Clock

if TYPE_CHECKING:
    from rota.coordinators.etcd.gateway import Gateway

P = ParamSpec("P")
R = TypeVar("R")
VERB_S = 5.0
"""How long a verb may take in all."""
PAGE = 5_000
"""How many keys one answer has at most."""
GRANT, RENEW, REVOKE = "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke"
CLOSE_S = 2.0
"""How long a client that goes waits for its leave."""


def bounded(verb: Callable[P, Awaitable[R]]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Give a verb up after a while; what it has asked may have been done."""

    @wraps(verb)
    async def within(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            async with asyncio.timeout(VERB_S):
                return await verb(*args, **kwargs)
        except TimeoutError:
            raise CoordinatorUnavailable(f"etcd has not answered within {VERB_S:g} s") from None

    return within


class EtcdCoordinator:
    """One client of etcd. Nothing is sent before the first verb."""

    def __init__(self, url: str, clock: Clock, *, namespace: str, ttl_s: float) -> None:
        prefix = f"{namespace}/"
        self._prefix = prefix
        self._gateway = _gateway(url)
        self._session = EtcdSession(self._gateway, clock, prefix, ttl_s=ttl_s)
        self._watcher = Watcher(self._gateway, clock, prefix)
        self.ttl_s = ttl_s

    @property
    def session(self) -> str | None:
        return name_of(self._session.lease) if self._session.lease else None

    @property
    def believed_until_s(self) -> float:
        return self._session.believed_until_s

    @bounded
    async def join(self) -> str:
        return name_of(await self._session.begin())

    @bounded
    async def renew(self) -> bool:
        return await self._session.renew()

    @bounded
    async def leave(self) -> None:
        await self._session.end()

    @bounded
    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        check_entries(values)
        lease = self._session.living()
        won: dict[str, int] = {}
        for batch in _batches({key: value.encode() for key, value in values.items()}, len):
            steps = (wire.claiming(self._at(key), value, lease) for key, value in batch.items())
            won.update(_won(batch, await self._while_living(lease, steps), lease))
        return won

    @bounded
    async def release(self, fences: Mapping[str, int]) -> None:
        lease = self._session.living()
        for batch in _batches(fences, lambda _: 0):
            places = ((self._at(key), fence) for key, fence in batch.items())
            await self._while_living(
                lease, (wire.holding(place, fence, lease, wire.deleting(place)) for place, fence in places)
            )

    @bounded
    async def update(self, key: str, fence: int, value: str) -> bool:
        check_entries({key: value})
        lease, place = self._session.living(), self._at(key)
        step = wire.holding(place, fence, lease, wire.putting(place, value.encode(), lease))
        done = await self._while_living(lease, [step])
        return done.responses[0].response_txn.succeeded

    @bounded
    async def get(self, key: str) -> Entry | None:
        found = await self._range(wire.Range(key=self._at(key)))
        return self._entry(found.kvs[0]) if found.kvs else None

    @bounded
    async def read(self, folder: str) -> tuple[Entry, ...]:
        return tuple(self._entry(kv) for kv in await self._children(folder))

    @bounded
    async def keys(self, folder: str) -> frozenset[str]:
        return frozenset(self._key(kv) for kv in await self._children(folder, keys_only=True))

    @bounded
    async def put(self, key: str, value: str, *, version: int | None = None) -> int | None:
        check_entries({key: value})
        place = self._at(key)
        read = () if version is None else (wire.written_at(place, version),)
        txn = wire.Txn(compare=(wire.leased_by(place, 0), *read), success=(wire.putting(place, value.encode()),))
        done = await self._gateway.ask(wire.TXN, txn, wire.Done, again=version is None)
        return done.header.revision if done.succeeded else None

    @bounded
    async def delete(self, key: str, version: int) -> bool:
        place = self._at(key)
        txn = wire.Txn(compare=(wire.written_at(place, version),), success=(wire.deleting(place),))
        done = await self._gateway.ask(wire.TXN, txn, wire.Done)
        return done.succeeded and done.responses[0].response_delete_range.deleted > 0

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        self._watcher.listen(folder, wake)

    async def close(self) -> None:
        try:
            await self._watcher.close()
            with suppress(CoordinatorError, TimeoutError):  # its lease ends by itself
                async with asyncio.timeout(CLOSE_S):
                    await self._session.end()
        finally:
            await self._gateway.close()

    async def _children(self, folder: str, *, keys_only: bool = False) -> list[wire.KeyValue]:
        below = self._at(f"{folder}/" if folder else "")
        while True:
            try:
                return await self._pages(below, keys_only=keys_only)
            except wire.Compacted:  # what the first page has shown is forgotten: read all of it anew
                continue

    async def _pages(self, below: bytes, *, keys_only: bool) -> list[wire.KeyValue]:
        """What is directly below, all as it was in one moment."""
        found: list[wire.KeyValue] = []
        start, revision, more = below, 0, True
        while more:
            page = await self._range(
                wire.Range(key=start, range_end=wire.end_of(below), limit=PAGE, revision=revision, keys_only=keys_only)
            )
            found += [kv for kv in page.kvs if b"/" not in kv.key[len(below) :]]
            more, revision = page.more, revision or page.header.revision
            start = page.kvs[-1].key + b"\0" if page.kvs else start
        return found

    async def _range(self, wish: wire.Range) -> wire.Ranged:
        """Read keys. The answer has seen what was done before it was asked for."""
        return await self._gateway.ask(wire.RANGE, wish, wire.Ranged, again=True)

    def _key(self, kv: wire.KeyValue) -> str:
        return kv.key.decode(errors="replace").removeprefix(self._prefix)

    def _entry(self, kv: wire.KeyValue) -> Entry:
        owner, fence = (name_of(kv.lease), kv.create_revision) if kv.lease else (None, 0)
        value = kv.value.decode(errors="replace")
        return Entry(key=self._key(kv), value=value, version=kv.mod_revision, session=owner, fence=fence)

    async def _while_living(self, lease: int, steps: Iterable[wire.Op]) -> wire.Done:
        """Do steps together, if the session lives; to do them twice does no harm."""
        txn = wire.Txn(compare=(self._session.lives(lease),), success=tuple(steps))
        done = await self._gateway.ask(wire.TXN, txn, wire.Done, again=True)
        if not done.succeeded:
            self._session.over(lease)
            raise SessionLost("the session of this node is over")
        return done

    def _at(self, key: str) -> bytes:
        return f"{self._prefix}{key}".encode()


class EtcdSession:
    """One client's session: a lease, and a mark that goes with it. At most one living lease, and those that are owed an
    end.

        none ──begin──> granted ──mark──> living ──renew──> living
                           │                 └── TTL 0, the mark is gone, or end ──> none
                           └── no answer: it is owed an end, like any lease that may live on unused

    Whoever chooses the lease's number can end it without having heard of it. The mark lets one transaction ask whether
    the session lives and act upon it: etcd cannot be asked for a lease there, only for a key.
    """

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
        token = hashlib.blake2b(self._clock.token().encode(), digest_size=7).digest()
        lease = 1 + int.from_bytes(token)  # a lease is a number: positive, and nobody else's
        self._owed.add(lease)
        sent_s = self._clock.monotonic()
        await self._gateway.ask(GRANT, wire.Lease(id=lease, ttl=math.ceil(self._ttl_s)), wire.Lease)
        await self._gateway.ask(wire.PUT, wire.Put(key=self._mark(lease), lease=lease), wire.Ranged, again=True)
        self._owed.discard(lease)
        self.lease, self.believed_until_s = lease, sent_s + self._ttl_s
        return lease

    async def renew(self) -> bool:
        """Prolong the lease. An answer without a time to live means that it is over."""
        lease, sent_s = self.lease, self._clock.monotonic()
        if not lease:
            return False
        renewed = await self._gateway.ask(RENEW, wire.Lease(id=lease), wire.Renewed, again=True)
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
                await self._gateway.ask(REVOKE, wire.Lease(id=lease), wire.Lease, again=True)
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

    def lives(self, lease: int) -> wire.Compare:
        """The condition that a lease is not over."""
        return wire.exists(self._mark(lease))

    def _mark(self, lease: int) -> bytes:
        return f"{self._prefix}.sessions/{name_of(lease)}".encode()


_batches = partial(batches, keys_max=wire.STEPS_MAX, size_max=wire.BYTES_MAX)


def name_of(lease: int) -> str:
    """A lease as etcd's own tools write it."""
    return f"{lease:016x}"


def _gateway(url: str) -> Gateway:
    address = address_of(url)
    try:
        from rota.coordinators.etcd.gateway import Gateway
    except ModuleNotFoundError:
        raise CoordinatorRefused("what speaks to etcd is not installed: pip install 'rota[etcd]'") from None
    return Gateway(address)


def _won(keys: Iterable[str], done: wire.Done, lease: int) -> Iterator[tuple[str, int]]:
    """The keys that this lease has now, with the revisions that made them."""
    for key, result in zip(keys, done.responses, strict=True):
        step = result.response_txn
        if step.succeeded:
            yield key, done.header.revision
            continue
        for found in step.responses[0].response_range.kvs:
            if found.lease == lease:
                yield key, found.create_revision


WATCH = "/v3/watch"
BACKOFF_S = 0.1
BACKOFF_S_MAX = 2.0


class Watcher:
    """Hears of every change below a prefix, from the first `listen` until it is closed."""

    def __init__(self, gateway: Gateway, clock: Clock, prefix: str) -> None:
        self._gateway = gateway
        self._clock = clock
        self._prefix = prefix
        self._listeners: list[tuple[str, Callable[[], None]]] = []
        self._next = 0
        """The revision to hear from; 0: from the present on, because what was before is unknown."""
        self._missed = True
        """Whether something may have changed unheard."""
        self._pause_s = BACKOFF_S
        self._task: asyncio.Task[None] | None = None

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        self._listeners.append((folder, wake))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                await self._hear()
            except CoordinatorError:
                self._missed = True
                self._gateway.forget_token()  # a watch with an old one is told that it has no right
                await self._clock.sleep(self._pause_s * (0.5 + self._clock.chance()))
                self._pause_s = min(self._pause_s * 2, BACKOFF_S_MAX)

    async def _hear(self) -> None:
        below = self._prefix.encode()
        wish = wire.Create(key=below, range_end=wire.end_of(below), start_revision=self._next, fragment=True)
        async with self._gateway.stream(WATCH, wire.WatchRequest(create_request=wish), wire.WatchAnswer) as answers:
            async for answer in answers:
                self._take(answer.result)

    def _take(self, news: wire.News) -> None:
        if news.canceled:
            self._next = 0
            raise CoordinatorUnavailable(f"the watch has ended: {news.cancel_reason or 'its revision is forgotten'}")
        if news.created:
            self._begin(news.header.revision)
        if news.events and not news.fragment:
            self._next = news.events[-1].kv.mod_revision + 1
        self._tell({event.kv.key.decode(errors="replace").removeprefix(self._prefix) for event in news.events})

    def _begin(self, revision: int) -> None:
        """The watch is there. A server that was set back to a backup may never reach the revision that we wait for."""
        if revision + 1 < self._next:
            self._next = 0
            raise CoordinatorUnavailable("etcd is behind what it has said before")
        self._next = self._next or revision + 1
        self._pause_s = BACKOFF_S
        if self._missed:
            self._missed = False
            for _, wake in self._listeners:
                wake()

    def _tell(self, keys: set[str]) -> None:
        concerned = keys | {folder_of(key) for key in keys}
        for folder, wake in self._listeners:
            if folder in concerned:
                wake()
