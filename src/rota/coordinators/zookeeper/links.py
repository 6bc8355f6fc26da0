"""Keeps one link at hand: opens one when it is needed, forgets it when it is over, and has the listeners' folders
watched whenever it comes up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable

import structlog

from rota.coordinators.zookeeper.address import ZooKeeperAddress
from rota.coordinators.zookeeper.link import Link
from rota.coordinators.zookeeper.tree import ZnodeTree
from rota.errors import CoordinatorRefused, CoordinatorUnavailable, SessionLost
from rota.model.entry import folder_of

TRIES = 3
"""How many links may be found over before a verb gives up."""

log = structlog.get_logger()


class FolderListeners:
    """Who listens to which folder. It only wakes; a listener finds what has changed by reading."""

    def __init__(self) -> None:
        self._wakes: dict[str, list[Callable[[], None]]] = {}

    @property
    def folders(self) -> tuple[str, ...]:
        return tuple(self._wakes)

    def add(self, folder: str, wake: Callable[[], None]) -> None:
        self._wakes.setdefault(folder, []).append(wake)

    def heard(self, keys: Iterable[str]) -> None:
        """Something has happened to keys: for each as a folder, and for the folder it is in."""
        changed = {folder for key in keys for folder in (key, folder_of(key))}
        for folder in self.folders:
            if folder in changed:
                self.wake(folder)

    def wake(self, folder: str) -> None:
        for wake in self._wakes.get(folder, ()):
            wake()


class Links:
    """The links of one client, one after another."""

    def __init__(self, address: ZooKeeperAddress, tree: ZnodeTree, *, ttl_s: float) -> None:
        self._address = address
        self._tree = tree
        self._ttl_s = ttl_s
        self._listeners = FolderListeners()
        self._link: Link | None = None
        self._watching: set[asyncio.Task[None]] = set()
        self._noted = False
        self._cut = False
        self._closed = False

    async def reach(self) -> Link:
        """A link that is up."""
        for _ in range(TRIES):
            link = self._link or self._open()
            if await link.connected():
                return link
        raise CoordinatorUnavailable("ZooKeeper ends every session at once")

    def listen(self, folder: str, wake: Callable[[], None]) -> None:
        """Watch a folder on this link, and on all later ones."""
        is_new = folder not in self._listeners.folders
        self._listeners.add(folder, wake)
        link = self._link or self._open()
        if is_new and link.is_up:
            self._watch(link, folder)

    async def close(self, *, patient: bool) -> None:
        """End the last link; `patient`: also wait for a connection to do so."""
        self._closed = True
        for task in self._watching:
            task.cancel()
        link, self._link = self._link, None
        if link is None:
            return
        try:
            if patient or link.is_up:
                await link.end()
        finally:
            link.discard()

    def came_up(self, link: Link) -> None:
        """It is connected, perhaps again: its watches are gone, and changes may have been missed."""
        self._note(link.ttl_s)
        if self._cut:
            self._cut = False
            log.info("ZooKeeper is reached again")
        for folder in self._listeners.folders:
            self._watch(link, folder)

    def was_cut(self) -> None:
        """The connection was lost; the session may live."""
        if not self._closed:
            self._cut = True
            log.warning("the connection to ZooKeeper was lost")

    def went_over(self, link: Link) -> None:
        """Its session is over. A client that listens needs another link at once; any other when it next asks for
        something. None is opened for one that failed by itself, which might well do so again."""
        if link is self._link:
            self._link = None
            if link.ended and self._listeners.folders:
                self._open()

    def heard(self, paths: Collection[str]) -> None:
        """Nodes that are watched have changed."""
        self._listeners.heard(key for path in paths if (key := self._tree.key(path)) is not None)

    def _open(self) -> Link:
        if self._closed:
            raise CoordinatorUnavailable("this client of ZooKeeper was closed")
        self._link = Link(self._address, self._ttl_s, self)
        return self._link

    def _watch(self, link: Link, folder: str) -> None:
        task = asyncio.get_running_loop().create_task(self._watched(link, folder))
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _watched(self, link: Link, folder: str) -> None:
        try:
            await link.watch(self._tree.path(folder))
        except (CoordinatorUnavailable, SessionLost):
            return  # a link that comes up again has all of them watched anew
        except CoordinatorRefused as refused:
            log.error("ZooKeeper does not tell of changes", folder=folder, reason=str(refused))  # noqa: TRY400
            return
        self._listeners.wake(folder)  # whatever changed before is not told

    def _note(self, given_s: float) -> None:
        if given_s != self._ttl_s and not self._noted:
            self._noted = True
            log.warning("ZooKeeper gives sessions another time to live", asked_s=self._ttl_s, given_s=given_s)
