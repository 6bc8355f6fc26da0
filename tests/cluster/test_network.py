"""Nodes on hosts of their own: they advertise what others reach, see who answers there, and give nothing to whom they
cannot reach (S1.5, S1.7, S1.9, S1.16 to S1.18)."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rota.model.node import NewNode
from rota.model.value import decode
from tests.cluster.processes import lease
from tests.cluster.shift import Shift, a_shift, quotas
from tests.cluster.test_membership import peers
from tests.servers.network import Host, Network, a_network
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import FaultProxy

LEASE_S = 60.0
SETTINGS = {"ROTA_NODE_CHECK_S": "0.3", "ROTA_EXECUTOR_SEATS": "6", **lease(LEASE_S, 1)}


@pytest.fixture
def network() -> Iterator[Network]:
    with a_network() as made:
        yield made


class Site:
    """A cluster whose nodes are on hosts of their own, and whose store is on this machine."""

    def __init__(self, shift: Shift, network: Network, proxy: FaultProxy) -> None:
        self.shift = shift
        self.hosts: dict[str, Host] = {}
        self._network = network
        self._proxy = proxy

    async def start(self, name: str, *, host: Host | None = None, **settings: str) -> Host:
        self.hosts[name] = host or self._network.host()
        where = {"within": self.hosts[name].within, "proxy": self._proxy, "elsewhere": True}
        await self.shift.start(name, settings=settings, **where)
        return self.hosts[name]

    async def until_lost(self, **seen: tuple[str, ...]) -> None:
        """Wait until each of these says that it cannot reach exactly those."""

        async def all_say_so() -> bool:
            said = await peers(self.shift)
            return all(name in said and said[name].unreachable == lost for name, lost in seen.items())

        await self.shift.until_asked(all_say_so, f"{seen} to be told")


@asynccontextmanager
async def a_site(server: PostgresServer, network: Network, folder: Path) -> AsyncIterator[Site]:
    async with server.fresh_database() as url, a_shift(url, folder, settings=SETTINGS) as shift:
        parts = urlsplit(url)
        async with FaultProxy(parts.hostname or "", parts.port or 0, network.address) as proxy:
            yield Site(shift, network, proxy)
            shift.kill_all()


def asked(address: str, path: str) -> tuple[int, dict[str, object]]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


async def holder(shift: Shift) -> str:
    """The node that makes the rounds."""
    query = "SELECT name FROM rota_node, rota_dispatch WHERE rota_node.id = holder"
    ((name,),) = await shift.witness.ask(query)
    return str(name)


@pytest.mark.timeout(120)
async def test_nodes_advertise_what_their_peers_reach_and_only_health_answers_there(
    postgres_server: PostgresServer, network: Network, tmp_path: Path
) -> None:
    async with a_site(postgres_server, network, tmp_path) as site:
        a, b = await site.start("a"), await site.start("b")

        async def both() -> bool:
            return set(await peers(site.shift)) == {"a", "b"}

        await site.shift.until_asked(both, "both to take part")
        known = await peers(site.shift)
        assert {name: peer.address for name, peer in known.items()} == {
            "a": f"{a.address}:7700",
            "b": f"{b.address}:7700",
        }
        for name, peer in known.items():
            status, body = await asyncio.to_thread(asked, peer.address, "/healthz")
            assert (status, body["node"]) == (200, name)
            status, body = await asyncio.to_thread(asked, peer.address, "/api/v1/jobs")
            assert (status, body["code"]) == (403, "tls_required")

        # Another node takes b's port while b's lease is alive: who answers there is not b.
        site.shift.nodes["b"].kill()
        await site.start("c", host=b)
        await site.until_lost(a=("b",), c=("b",))
        (line,) = [it for it in site.shift.nodes["c"].log.splitlines() if "node.unreachable" in it]
        assert f"node=b address={b.address}:7700 answers=" in line
        assert "c (3)" in line


@pytest.mark.timeout(120)
async def test_who_cannot_be_reached_is_given_nothing_by_the_other_and_keeps_what_it_has(
    postgres_server: PostgresServer, network: Network, tmp_path: Path
) -> None:
    async with a_site(postgres_server, network, tmp_path) as site:
        shift = site.shift
        await quotas(shift.control, ["t"])
        for name in ("a", "b"):
            await site.start(name, ROTA_EXECUTOR_GROUP=f"group-{name}")
        await shift.assign("t", 1, group="group-a", info={"ms": 1})
        await shift.until_idle()
        near = await holder(shift)
        far = {"a": "b", "b": "a"}[near]
        await shift.assign("t", 1, group=f"group-{far}", info={"ms": 110_000})
        await shift.until(lambda: len(shift.watcher.executing()) == 1, "an item to run on the far node")

        site.hosts[near].cut_off(site.hosts[far])
        await site.until_lost(**{near: (far,), far: (near,)})
        ids = dict(await shift.witness.ask("SELECT name, id FROM rota_node"))
        ((told,),) = await shift.witness.ask(f"SELECT joined FROM rota_node WHERE name = '{near}'")
        assert decode(told, NewNode).digests["unreachable"] == str(ids[far])
        ((last,),) = await shift.witness.ask("SELECT max(round) FROM rota_grant")
        await shift.assign("t", 3, group=f"group-{far}", info={"ms": 1})
        await shift.assign("t", 3, group=f"group-{near}", info={"ms": 1})
        await shift.until_asked(lambda: waiting(shift, 0), "both to run what only they can")
        query = f"SELECT DISTINCT node_id, holder FROM rota_grant WHERE round > {last}"
        given = sorted(await shift.witness.ask(query))
        assert given == sorted((ids[name], ids[name]) for name in (near, far)), "each was given only by itself"
        assert await shift.witness.ask("SELECT DISTINCT state FROM rota_node") == [("online",)]
        assert len(shift.watcher.executing()) == 1, "what it runs goes on"

        site.hosts[near].reach(site.hosts[far])
        await site.until_lost(**{near: (), far: ()})
        await shift.until_asked(lambda: one_gives(shift, near, far), "one of them to give to both")
        assert len(shift.watcher.executing()) == 1
        assert shift.surprises() == []


async def one_gives(shift: Shift, *names: str) -> bool:
    """Give each of these something to run; says whether one node gave to all. A holder that is slow loses its turn."""
    ((last,),) = await shift.witness.ask("SELECT max(round) FROM rota_grant")
    for name in names:
        await shift.assign("t", 1, group=f"group-{name}", info={"ms": 1})
    await shift.until_asked(lambda: waiting(shift, 0), "each to run something again")
    query = f"SELECT count(DISTINCT holder) FROM rota_grant WHERE round > {last}"
    return await shift.witness.ask(query) == [(1,)]


async def waiting(shift: Shift, count: int) -> bool:
    """Whether so many items are live, besides the one that runs all the time."""
    await asyncio.sleep(0.05)
    return await shift.witness.ask("SELECT count(*) FROM rota_queue") == [(count + 1,)]


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("ROTA_NODE_LISTEN", "127.0.0.1:7700", "node.listen: 127.0.0.1 is reached from this host only"),
        ("ROTA_NODE_ADVERTISE", "0.0.0.0", "node.advertise: 0.0.0.0 is no address"),
    ],
)
async def test_an_address_that_nobody_else_reaches_is_refused(
    postgres_server: PostgresServer, network: Network, tmp_path: Path, setting: str, value: str, reason: str
) -> None:
    async with a_site(postgres_server, network, tmp_path) as site:
        node = site.shift.node("a", within=network.host().within, proxy=site._proxy, settings={setting: value})
        node.start()
        assert await asyncio.to_thread(node.ended, 40) != 0
        assert reason in node.log
        assert "Traceback" not in node.log
