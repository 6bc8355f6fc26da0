"""The verbs of a coordinator on ZooKeeper.

    no link ──a verb──> a link, hidden ──join──> a link whose session is ours ──leave, expiry──> no link

ZooKeeper gives every connection a session. One that nobody has joined is used to read and to put, and is not told;
`join` makes it ours. A session is never used for what was asked of another: each is a link of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from rota.coordinators.zookeeper.address import ZooKeeperAddress, address_of
from rota.coordinators.zookeeper.tree import ZnodeTree, entry_of
from rota.errors import CoordinatorError, CoordinatorRefused, CoordinatorUnavailable, InvalidInput, SessionLost
from rota.model.entry import KEY, Entry, check_entries, check_keys
from rota.ports import Clock

if TYPE_CHECKING:
    from rota.coordinators.zookeeper.link import Link, Links

V = TypeVar("V")
VERB_S = 4.0
"""How long a verb waits for ZooKeeper; one with many keys, for each batch of them."""
CLOSE_S = 2.0
BATCH = 100


class ZooKeeperCoordinator:
    """One client. Nothing is sent before the first verb."""

    def __init__(self, url: str, clock: Clock, *, namespace: str, ttl_s: float) -> None:
        address = address_of(url)
        if not KEY.fullmatch(namespace):
            raise InvalidInput.of("coordinator.namespace", f"{namespace!r} is not words of A-Z a-z 0-9 . _ -")
        self._clock = clock
        self._tree = ZnodeTree(f"{address.chroot}/{namespace}")
        self._links = _links(address, self._tree, ttl_s)
        self._joined: Link | None = None
        self.ttl_s = ttl_s
        self.believed_until_s = 0.0

    @property
    def session(self) -> str | None:
        return None if self._joined is None or self._joined.is_over else self._joined.session

    async def join(self) -> str:
        async with _bounded():
            await self.leave()
            link = await self._links.reach()
            while not await self._confirmed(link):
                link = await self._links.reach()
        self._joined = link
        return link.session

    async def renew(self) -> bool:
        """Kazoo keeps the session alive by itself; this makes sure that it has."""
        if self._joined is None:
            return False
        async with _bounded():
            return await self._confirmed(self._joined)

    async def leave(self) -> None:
        """A session that could not be ended is still ours: the verb may be repeated."""
        if self._joined is not None:
            async with _bounded():
                await self._joined.end()
        self._joined = None

    async def claim(self, values: Mapping[str, str]) -> dict[str, int]:
        check_entries(values)
        won: dict[str, int] = {}
        for some in _batches(values.items()):
            async with self._ours() as link:
                won |= await self._tree.claim(link, dict(some))
        self._living()  # what was won by a session that has ended meanwhile is not told
        return won

    async def release(self, fences: Mapping[str, int]) -> None:
        check_keys(fences)
        self._living()
        for some in _batches(fences.items()):
            async with self._ours() as link:
                await self._tree.release(link, dict(some))

    async def update(self, key: str, fence: int, value: str) -> bool:
        check_entries({key: value})
        async with self._ours() as link:
            return await self._tree.update(link, key, fence, value)

    async def get(self, key: str) -> Entry | None:
        check_keys([key])
        async with self._any() as link:
            return entry_of(key, await self._tree.node(link, key))

    async def read(self, folder: str) -> tuple[Entry, ...]:
        found: list[Entry] = []
        for some in _batches(sorted(await self.keys(folder))):
            async with self._any() as link:
                found += await self._tree.entries(link, some)
        return tuple(found)

    async def keys(self, folder: str) -> frozenset[str]:
        _check_folder(folder)
        async with self._any() as link:
            return await self._tree.keys(link, folder)

    async def put(self, key: str, value: str, *, version: int | None = None) -> int | None:
        check_entries({key: value})
        async with self._any() as link:
            return await self._tree.put(link, key, value, version)

    async def delete(self, key: str, version: int) -> bool:
        check_keys([key])
        async with self._any() as link:
            return await self._tree.delete(link, key, version)

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        _check_folder(folder)
        self._links.listen(folder, wake)

    async def close(self) -> None:
        """Without an answer its claims end when the session's time is over."""
        with suppress(CoordinatorError):
            async with _bounded(CLOSE_S):
                await self._links.close(patient=self.session is not None)
        self._joined = None

    async def _confirmed(self, link: Link) -> bool:
        """Whether the session lives, as the leader of ZooKeeper says."""
        try:
            if not await link.connected():
                return False
            sent_s = self._clock.monotonic()
            await link.sync(self._tree.root)
        except SessionLost:
            return False
        self.believed_until_s = sent_s + min(self.ttl_s, link.ttl_s)
        return True

    def _living(self) -> Link:
        if self._joined is None or self._joined.is_over:
            raise SessionLost("the session of this node with ZooKeeper is over")
        return self._joined

    @asynccontextmanager
    async def _ours(self) -> AsyncIterator[Link]:
        """The link whose session is ours, for what needs one."""
        link = self._living()
        async with _bounded():
            if not await link.connected():
                raise SessionLost("the session of this node with ZooKeeper is over")
            yield link

    @asynccontextmanager
    async def _any(self) -> AsyncIterator[Link]:
        """Whatever link there is, for what needs no session of ours."""
        async with _bounded():
            try:
                yield await self._links.reach()
            except SessionLost as lost:
                raise CoordinatorUnavailable("a connection to ZooKeeper was over: ask again") from lost


@asynccontextmanager
async def _bounded(seconds: float = VERB_S) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise CoordinatorUnavailable(f"ZooKeeper has not answered within {seconds:g} s") from None


def _batches(items: Collection[V]) -> Iterator[list[V]]:
    whole = list(items)
    return (whole[start : start + BATCH] for start in range(0, len(whole), BATCH))


def _check_folder(folder: str) -> None:
    if folder:
        check_keys([folder])


def _links(address: ZooKeeperAddress, tree: ZnodeTree, ttl_s: float) -> Links:
    """Only who uses ZooKeeper needs its driver."""
    try:
        from rota.coordinators.zookeeper.link import Links
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] != "kazoo":
            raise
        raise CoordinatorRefused("ZooKeeper needs its driver: pip install 'rota[zookeeper]'") from None
    return Links(address, tree, ttl_s=ttl_s)
