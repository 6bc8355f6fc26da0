"""The verbs of a coordinator, each as one or a few transactions of etcd.

A claim is a key with a lease. Its fence is the revision that made it, its version the one that wrote it last: etcd has
one number for all writes, so both only rise. What needs a session asks in the same transaction whether it lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from rota.coordinators.etcd.address import address_of
from rota.coordinators.etcd.session import EtcdSession, name_of
from rota.coordinators.etcd.watch import Watcher
from rota.coordinators.etcd.wire import (
    RANGE,
    TXN,
    Compacted,
    Done,
    KeyValue,
    Op,
    Range,
    Ranged,
    Txn,
    batches,
    claiming,
    deleting,
    end_of,
    holding,
    leased_by,
    putting,
    written_at,
)
from rota.errors import CoordinatorError, CoordinatorRefused, CoordinatorUnavailable, SessionLost
from rota.model.entry import Entry, check_entries
from rota.ports import Clock

if TYPE_CHECKING:
    from rota.coordinators.etcd.gateway import Gateway


P = ParamSpec("P")
R = TypeVar("R")
VERB_S = 5.0
"""How long a verb may take in all."""
PAGE = 5_000
"""How many keys one answer has at most."""
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
        for batch in batches((key, value.encode()) for key, value in values.items()):
            done = await self._while_living(lease, (claiming(self._at(key), value, lease) for key, value in batch))
            won.update(_won((key for key, _ in batch), done, lease))
        return won

    @bounded
    async def release(self, fences: Mapping[str, int]) -> None:
        lease = self._session.living()
        for batch in batches((key, b"") for key in fences):
            places = ((self._at(key), fences[key]) for key, _ in batch)
            await self._while_living(lease, (holding(place, fence, lease, deleting(place)) for place, fence in places))

    @bounded
    async def update(self, key: str, fence: int, value: str) -> bool:
        check_entries({key: value})
        lease, place = self._session.living(), self._at(key)
        step = holding(place, fence, lease, putting(place, value.encode(), lease))
        done = await self._while_living(lease, [step])
        return done.responses[0].response_txn.succeeded

    @bounded
    async def get(self, key: str) -> Entry | None:
        found = await self._range(Range(key=self._at(key)))
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
        read = () if version is None else (written_at(place, version),)
        txn = Txn(compare=(leased_by(place, 0), *read), success=(putting(place, value.encode()),))
        done = await self._gateway.ask(TXN, txn, Done, again=version is None)
        return done.header.revision if done.succeeded else None

    @bounded
    async def delete(self, key: str, version: int) -> bool:
        place = self._at(key)
        txn = Txn(compare=(written_at(place, version),), success=(deleting(place),))
        done = await self._gateway.ask(TXN, txn, Done)
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

    async def _children(self, folder: str, *, keys_only: bool = False) -> list[KeyValue]:
        below = self._at(f"{folder}/" if folder else "")
        while True:
            try:
                return await self._pages(below, keys_only=keys_only)
            except Compacted:  # what the first page has shown is forgotten: read all of it anew
                continue

    async def _pages(self, below: bytes, *, keys_only: bool) -> list[KeyValue]:
        """What is directly below, all as it was in one moment."""
        found: list[KeyValue] = []
        start, revision, more = below, 0, True
        while more:
            page = await self._range(
                Range(key=start, range_end=end_of(below), limit=PAGE, revision=revision, keys_only=keys_only)
            )
            found += [kv for kv in page.kvs if b"/" not in kv.key[len(below) :]]
            more, revision = page.more, revision or page.header.revision
            start = page.kvs[-1].key + b"\0" if page.kvs else start
        return found

    async def _range(self, wish: Range) -> Ranged:
        """Read keys. The answer has seen what was done before it was asked for."""
        return await self._gateway.ask(RANGE, wish, Ranged, again=True)

    def _key(self, kv: KeyValue) -> str:
        return kv.key.decode(errors="replace").removeprefix(self._prefix)

    def _entry(self, kv: KeyValue) -> Entry:
        owner, fence = (name_of(kv.lease), kv.create_revision) if kv.lease else (None, 0)
        value = kv.value.decode(errors="replace")
        return Entry(key=self._key(kv), value=value, version=kv.mod_revision, session=owner, fence=fence)

    async def _while_living(self, lease: int, steps: Iterable[Op]) -> Done:
        """Do steps together, if the session lives; to do them twice does no harm."""
        txn = Txn(compare=(self._session.lives(lease),), success=tuple(steps))
        done = await self._gateway.ask(TXN, txn, Done, again=True)
        if not done.succeeded:
            self._session.over(lease)
            raise SessionLost("the session of this node is over")
        return done

    def _at(self, key: str) -> bytes:
        return f"{self._prefix}{key}".encode()


def _gateway(url: str) -> Gateway:
    address = address_of(url)
    try:
        from rota.coordinators.etcd.gateway import Gateway
    except ModuleNotFoundError:
        raise CoordinatorRefused("what speaks to etcd is not installed: pip install 'rota[etcd]'") from None
    return Gateway(address)


def _won(keys: Iterable[str], done: Done, lease: int) -> Iterator[tuple[str, int]]:
    """The keys that this lease has now, with the revisions that made them."""
    for key, result in zip(keys, done.responses, strict=True):
        step = result.response_txn
        if step.succeeded:
            yield key, done.header.revision
            continue
        for found in step.responses[0].response_range.kvs:
            if found.lease == lease:
                yield key, found.create_revision
