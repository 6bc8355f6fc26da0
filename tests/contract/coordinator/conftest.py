"""The coordinators under the contract, each with nothing in it yet."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeVar

import pytest

from rota.clock import SystemClock
from rota.config import CoordinatorConfig
from rota.coordinators.etcd import coordinator as etcd
from rota.coordinators.etcd import gateway
from rota.coordinators.sql import coordinator as sql
from rota.coordinators.zookeeper import coordinator as zookeeper
from rota.errors import SessionLost
from rota.ports import Coordinator, Store
from rota.wiring import open_coordinator, open_store
from tests.contract.conftest import PATIENT_S, Migrated, empty
from tests.servers.proxy import FaultProxy

T = TypeVar("T")

COORDINATORS = ("memory", "sqlite", "postgresql", "mariadb", "zookeeper", "etcd")
TTL_S = 2.0
"""Of clients whose sessions shall end."""
LONG_S = 60.0
"""Of others, which are not renewed all the time: it outlives a slow test."""
RENEWED_S = 5.0
"""Of others, where the library renews by itself; ZooKeeper with short ticks allows no longer ones."""

DRIFT_S = 0.05
"""How far a server's clock and ours may go apart while a session lasts."""


@pytest.fixture
def patient_verbs() -> Iterator[None]:
    """A verb is given up after some seconds: on a busy machine too soon, where no line is cut. A module that is about
    lines that are cut has an empty fixture of this name."""
    with pytest.MonkeyPatch.context() as patched:
        for module, name in (
            (sql, "PATIENCE_S"),
            (sql, "RENEWAL_S"),
            (etcd, "VERB_S"),
            (gateway, "ANSWER_S"),
            (gateway, "CONNECT_S"),
        ):
            patched.setattr(module, name, PATIENT_S)
        bounded = zookeeper._bounded
        patched.setattr(zookeeper, "_bounded", lambda seconds=PATIENT_S: bounded(seconds))
        yield


async def in_a_session(client: Coordinator, deed: Callable[[], Awaitable[T]]) -> T:
    """Join and do something in the new session; if that has ended meanwhile, because nothing ran here for so long, join
    anew."""
    while True:
        await client.join()
        believed_until_s = client.believed_until_s
        try:
            return await deed()
        except SessionLost:
            assert time.monotonic() >= believed_until_s - DRIFT_S, "the session ended before its time"


async def joined(client: Coordinator, *keys: str) -> dict[str, int]:
    """Join and claim; says which keys were won, with their fences."""
    return await in_a_session(client, partial(client.claim, dict.fromkeys(keys, "")))


class Clients:
    """Makes clients of one coordinator, each as another process would; none has joined yet."""

    long_s = LONG_S

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(self, ttl_s: float = TTL_S) -> Coordinator:
        raise NotImplementedError

    async def silence(self, client: Coordinator) -> None:
        """Keep it from renewing, where its library does so by itself. Elsewhere it is enough not to."""

    async def heal(self, client: Coordinator) -> None:
        """Let it speak again."""


class StoreClients(Clients):
    """Clients of the coordinator that a store brings along."""

    def __init__(self, stack: AsyncExitStack, url: str) -> None:
        super().__init__(stack)
        self._url = url
        self._memory = open_store("memory:", SystemClock(), actor="test")

    async def __call__(self, ttl_s: float = TTL_S) -> Coordinator:
        store = self._memory if self._url == "memory:" else self._open()
        coordinator = open_coordinator(CoordinatorConfig(session_s=ttl_s), store, SystemClock())
        self._stack.push_async_callback(coordinator.close)
        return coordinator

    def _open(self) -> Store:
        store = open_store(self._url, SystemClock(), actor="test")
        self._stack.push_async_callback(store.close)
        return store


class ServerClients(Clients):
    """Clients of a server of its own kind, each through a proxy of its own."""

    def __init__(self, stack: AsyncExitStack, kind: str, host: str, port: int) -> None:
        super().__init__(stack)
        self._kind, self._target = kind, (host, port)
        self.long_s = RENEWED_S if kind == "zookeeper" else LONG_S
        self._namespace = f"test-{secrets.token_hex(6)}"
        self._proxies: dict[int, FaultProxy] = {}

    async def __call__(self, ttl_s: float = TTL_S) -> Coordinator:
        proxy = await self._stack.enter_async_context(FaultProxy(*self._target))
        config = CoordinatorConfig(
            url=f"{self._kind}://127.0.0.1:{proxy.port}", namespace=self._namespace, session_s=ttl_s
        )
        coordinator = open_coordinator(config, open_store("memory:", SystemClock(), actor="test"), SystemClock())
        self._stack.push_async_callback(coordinator.close)
        self._proxies[id(coordinator)] = proxy
        return coordinator

    async def silence(self, client: Coordinator) -> None:
        await self._proxies[id(client)].black_hole()

    async def heal(self, client: Coordinator) -> None:
        proxy = self._proxies[id(client)]
        proxy.abort()
        await proxy.pass_through()


@pytest.fixture(params=COORDINATORS)
async def client(request: pytest.FixtureRequest, migrated: Migrated, patient_verbs: None) -> AsyncIterator[Clients]:
    async with AsyncExitStack() as stack:
        match request.param:
            case "memory":
                yield StoreClients(stack, "memory:")
            case "zookeeper" | "etcd":
                server = request.getfixturevalue(f"{request.param}_server")
                yield ServerClients(stack, request.param, "127.0.0.1", server.port)
            case _:
                url = await migrated(request.param, request)
                store = open_store(url, SystemClock(), actor="test")
                await empty(store)
                await store.close()
                yield StoreClients(stack, url)


@pytest.fixture
async def a(client: Clients) -> Coordinator:
    """A client with a session."""
    coordinator = await client(client.long_s)
    await coordinator.join()
    return coordinator


@pytest.fixture
async def b(client: Clients) -> Coordinator:
    """Another client with a session."""
    coordinator = await client(client.long_s)
    await coordinator.join()
    return coordinator
