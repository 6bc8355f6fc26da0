"""One session with ZooKeeper as asyncio sees it, its state, and requests that are answered; and who keeps one at hand.

    connecting ──> up <──> cut off          end(), an expiry, or a refusal:
        └──────────┴──────────┴──> over     another session is another link

A request whose connection is lost fails at once, and may have been done; one that cannot be sent is not kept for later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.protocol.states import KeeperState, ZnodeStat

from rota.coordinators.zookeeper.address import ZooKeeperAddress
from rota.coordinators.zookeeper.tree import No, Znode, ZnodeTree, session_name
from rota.coordinators.zookeeper.wire import ZooKeeperClient
from rota.errors import CoordinatorError, CoordinatorRefused, CoordinatorUnavailable, SessionLost
from rota.logger import log
from rota.model.entry import folder_of

WINDOW = 128
"""How many requests may be on their way: kazoo is woken through a pipe that holds few more, and then blocks."""
_NOES = {
    kazoo.NoNodeError: No.MISSING,
    kazoo.NodeExistsError: No.EXISTS,
    kazoo.BadVersionError: No.CHANGED,
    kazoo.NotEmptyError: No.HAS_CHILDREN,
    kazoo.NoChildrenForEphemeralsError: No.BELOW_CLAIM,
}
TRIES = 3
"""How many links may be found over before a verb gives up."""
_BYSTANDERS = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
"""What the deeds of a transaction are answered that were not at fault."""


class Link:
    """One session. It belongs to the event loop that it was made in, and connects by itself."""

    def __init__(self, address: ZooKeeperAddress, ttl_s: float, keeper: Links) -> None:
        self._loop = asyncio.get_running_loop()
        self._keeper = keeper
        self._window = asyncio.Semaphore(WINDOW)
        self._answers: deque[tuple[asyncio.Future[Any], Any]] = deque()
        self._paths: deque[str] = deque()
        self._waking = False
        self._settled = asyncio.Event()
        self._over = asyncio.Event()
        self._refused = False
        self._ending = False
        self.is_up = False
        self.ended = False
        """Whether the server has said that the session is over."""
        self.number = 0
        """The session, as ZooKeeper counts them; 0 before there is one."""
        self._client = ZooKeeperClient(address, ttl_s, partial(self._tell, self._became), self._heard)
        self._client.start_async()

    @property
    def session(self) -> str:
        return session_name(self.number)

    @property
    def ttl_s(self) -> float:
        """What the server has agreed to."""
        return float(self._client.ttl_s)

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    async def connected(self) -> bool:
        """Wait until it is up. False: it is over."""
        await self._settled.wait()
        if self._refused:
            raise CoordinatorRefused("ZooKeeper has refused the name or the password in coordinator.url")
        return self.is_up

    async def end(self) -> None:
        """Close the session at the server, so that its claims go at once."""
        if await self.connected():
            self.discard()
            await self._over.wait()
            if not self.ended:
                raise CoordinatorUnavailable("the connection was lost while a session was ended")

    def discard(self) -> None:
        """Let go of it without waiting; the server is told if it can be."""
        if not self._ending:
            self._ending = True
            Thread(target=self._client.end, name="rota-zookeeper-end", daemon=True).start()

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> Znode | No:
        answer = await self._ask(self._client.create_async, path, data, ephemeral=ephemeral, include_data=True)
        return answer if isinstance(answer, No) else _node(data, answer[1])

    async def get(self, path: str) -> Znode | No:
        answer = await self._ask(self._client.get_async, path)
        return answer if isinstance(answer, No) else _node(*answer)

    async def set(self, path: str, data: bytes, edition: int) -> Znode | No:
        answer = await self._ask(self._client.set_async, path, data, edition)
        return answer if isinstance(answer, No) else _node(data, answer)

    async def delete(self, path: str, edition: int) -> No | None:
        answer = await self._ask(self._client.delete_async, path, edition)
        return answer if isinstance(answer, No) else None

    async def children(self, path: str) -> list[str]:
        """The names of what is directly below a node; none if there is no such node."""
        answer: list[str] | No = await self._ask(self._client.get_children_async, path)
        return [] if isinstance(answer, No) else answer

    async def together(self, *deeds: tuple[str, *tuple[Any, ...]]) -> int | No:
        """Do all of some deeds (as kazoo's transactions name them) or none; says the transaction, if one has set."""
        transaction = self._client.transaction()
        for name, *args in deeds:
            getattr(transaction, name)(*args)
        answers = await self._ask(transaction.commit_async)
        for error in answers:
            if isinstance(error, Exception) and not isinstance(error, _BYSTANDERS):
                return answer_of(error)
        return next((int(it.mzxid) for it in answers if isinstance(it, ZnodeStat)), 0)

    async def sync(self, path: str) -> None:
        """Have the server catch up with what was done before; through the leader, so the session lives there."""
        await self._ask(self._client.sync_async, path)

    async def watch(self, path: str) -> None:
        """Tell the keeper of changes at and below a node, for as long as the link stays up."""
        await self._ask(self._client.watch_async, path)

    async def _ask(self, call: Callable[..., Any], *args: Any, **settings: Any) -> Any:
        await self._window.acquire()
        future: asyncio.Future[Any] = self._loop.create_future()
        call(*args, **settings).rawlink(lambda result: self._answered(future, result))
        result = await future
        if isinstance(result.exception, kazoo.SessionExpiredError):
            self._became(KeeperState.EXPIRED_SESSION, self.number)
        return result.value if result.exception is None else answer_of(result.exception)

    def _answered(self, future: asyncio.Future[Any], result: Any) -> None:
        self._answers.append((future, result))
        self._wake()

    def _heard(self, path: str) -> None:
        self._paths.append(path)
        self._wake()

    def _wake(self) -> None:
        """Hand over to the loop, which is woken once for all that has come since."""
        if not self._waking:
            self._waking = True
            self._tell(self._settle)

    def _settle(self) -> None:
        self._waking = False  # before the first is taken: one that comes later wakes again
        while self._answers:
            future, result = self._answers.popleft()
            self._window.release()
            if not future.done():  # whoever asked may have stopped waiting
                future.set_result(result)
        if self._paths:
            self._keeper.heard([self._paths.popleft() for _ in range(len(self._paths))])

    def _tell(self, call: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop has been closed: nobody is left to tell
            self._loop.call_soon_threadsafe(call, *args)

    def _became(self, state: Any, number: int) -> None:
        if self.is_over:
            return
        if state == KeeperState.CONNECTED:
            self.is_up, self.number = True, number
            self._settled.set()
            self._keeper.came_up(self)
        elif state == KeeperState.CONNECTING:
            self._settled.clear()
            if self.is_up:
                self.is_up = False
                self._keeper.was_cut()
        else:
            self._finish(state)

    def _finish(self, state: Any) -> None:
        # Kazoo also says "closed" when it gives up; a server that was asked to close, and did, was up until then.
        closed = state == KeeperState.CLOSED and self._ending and self.is_up
        self.ended = closed or state == KeeperState.EXPIRED_SESSION
        self._refused = state == KeeperState.AUTH_FAILED
        self.is_up = False
        self._over.set()
        self._settled.set()
        self.discard()
        self._keeper.went_over(self)


def _node(data: bytes, stat: Any) -> Znode:
    return Znode(data, stat.version, stat.czxid, stat.mzxid, stat.ephemeralOwner)


def answer_of(error: Exception) -> No:
    """The answer that an error is; raises ours for one that is none."""
    if (no := _NOES.get(type(error))) is not None:
        return no
    raise _fault(error) from error


def _fault(error: Exception) -> CoordinatorError:
    match error:
        case kazoo.SessionExpiredError():
            return SessionLost("ZooKeeper has ended the session")
        case kazoo.NoAuthError() | kazoo.AuthFailedError() | kazoo.InvalidACLError():
            return CoordinatorRefused("the nodes of this namespace in ZooKeeper belong to somebody else")
        case kazoo.UnimplementedError():
            return CoordinatorRefused("this ZooKeeper is too old: 3.6 or later is needed")
    return CoordinatorUnavailable(f"ZooKeeper did not answer: {type(error).__name__}")


class Links:
    """The links of one client, one after another: opens one when it is needed, forgets it when it is over, and has the
    listeners' folders watched whenever it comes up."""

    def __init__(self, address: ZooKeeperAddress, tree: ZnodeTree, *, ttl_s: float) -> None:
        self._address = address
        self._tree = tree
        self._ttl_s = ttl_s
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        """By folder. They are only woken, and find what has changed by reading."""
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
        is_new = folder not in self._listeners
        self._listeners.setdefault(folder, []).append(wake)
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
        for folder in self._listeners:
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
            if link.ended and self._listeners:
                self._open()

    def heard(self, paths: Collection[str]) -> None:
        """Nodes that are watched have changed: each concerns those who listen to it, and to the folder it is in."""
        keys = [key for path in paths if (key := self._tree.key(path)) is not None]
        changed = {folder for key in keys for folder in (key, folder_of(key))}
        for folder in [it for it in self._listeners if it in changed]:
            self._wake(folder)

    def _wake(self, folder: str) -> None:
        for wake in self._listeners[folder]:
            wake()

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
        self._wake(folder)  # whatever changed before is not told

    def _note(self, given_s: float) -> None:
        if given_s != self._ttl_s and not self._noted:
            self._noted = True
            log.warning("ZooKeeper gives sessions another time to live", asked_s=self._ttl_s, given_s=given_s)
