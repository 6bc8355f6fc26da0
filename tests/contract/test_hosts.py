"""A URL with several hosts, of which the one in use swallows packets: nothing arrives, and nobody is told. Renewals and
the watch over the store wait for less time than all hosts need together, and reach the next host all the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from rota.clock import SystemClock
from rota.errors import StoreDenied, StoreUnavailable
from rota.loops.outage import store_outage
from rota.ports import Store
from rota.wiring import open_store
from tests.contract.conftest import SERVERS, Migrated, empty
from tests.factories import a_node
from tests.servers.ports import LOOPBACK
from tests.servers.proxy import FaultProxy

ENOUGH_S = 30.0


class Hosts(NamedTuple):
    """A store that two hosts serve, begun on the first."""

    first: FaultProxy
    second: FaultProxy
    store: Store
    node_id: int


_FATAL = b"SFATAL\0C28000\0Mrefused\0\0"
REFUSALS = {
    "postgresql": b"E" + (4 + len(_FATAL)).to_bytes(4, "big") + _FATAL,
    "mariadb": b"\x10\0\0\0" + b"\xff\x15\x04#28000refused",
}
"""How a server says that it lets nobody in with this name and password."""


async def refusing(backend: str) -> asyncio.Server:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if backend == "postgresql":
            await reader.read(1024)
        writer.write(REFUSALS[backend])
        writer.close()

    return await asyncio.start_server(serve, LOOPBACK, 0)


@pytest.fixture(autouse=True)
def patient_renewals() -> None:
    """Here renewals are given up as soon as they really are."""


@pytest.fixture(params=SERVERS)
async def hosts(request: pytest.FixtureRequest, migrated: Migrated) -> AsyncIterator[Hosts]:
    url = await migrated(request.param, request)
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    async with FaultProxy(parts.hostname, parts.port) as first, FaultProxy(parts.hostname, parts.port) as second:
        both = ",".join(f"{it.host}:{it.port}" for it in (first, second))
        store = open_store(url.replace(f"{parts.hostname}:{parts.port}", both), SystemClock(), actor="test")
        await empty(store)
        yield Hosts(first, second, store, await a_node(store))
        await store.close()


async def renewed(hosts: Hosts) -> None:
    """Renew a lease as a node does: again and again."""
    async with asyncio.timeout(ENOUGH_S):
        while True:
            try:
                assert await hosts.store.renew(hosts.node_id, lease_s=10, busy=0)
                return
            except StoreUnavailable:
                continue


async def test_a_renewal_reaches_the_next_host_when_the_first_swallows_packets(hosts: Hosts) -> None:
    await renewed(hosts)
    await hosts.first.black_hole()
    with capture_logs() as lines:
        await renewed(hosts)
    changed = [(it["was"], it["server"]) for it in lines if it["event"] == "store.server_changed"]
    assert changed == [tuple(f"{it.host}:{it.port}" for it in (hosts.first, hosts.second))]


async def test_the_watch_over_the_store_sees_that_the_next_host_answers(hosts: Hosts) -> None:
    await hosts.store.probe()
    await hosts.first.black_hole()
    outage = store_outage(SystemClock(), hosts.store)
    watch = asyncio.create_task(outage.watch())
    outage.suspect("no answer")
    try:
        async with asyncio.timeout(ENOUGH_S):
            await outage.over()
    finally:
        watch.cancel()


async def test_a_host_that_swallowed_packets_serves_again_when_the_other_does(hosts: Hosts) -> None:
    await hosts.first.black_hole()
    await renewed(hosts)
    hosts.first.abort()
    await hosts.first.pass_through()
    await hosts.second.black_hole()
    await renewed(hosts)


@pytest.mark.parametrize("backend", SERVERS)
async def test_a_host_that_refuses_does_not_end_the_search(
    backend: str, request: pytest.FixtureRequest, migrated: Migrated
) -> None:
    url = await migrated(backend, request)
    parts = urlsplit(url)
    async with await refusing(backend) as server:
        refused = f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
        real = f"{parts.hostname}:{parts.port}"
        store = open_store(url.replace(real, f"{refused},{real}"), SystemClock(), actor="test")
        await store.now()
        await store.close()
        alone = open_store(url.replace(real, f"{refused},{refused}"), SystemClock(), actor="test")
        with pytest.raises(StoreDenied, match="refused"):
            await alone.now()
        await alone.close()
