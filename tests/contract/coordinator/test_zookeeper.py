"""What is special to ZooKeeper: its nodes as others see them, sessions when the server or the network fails, URLs."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from structlog.testing import capture_logs

from rota.clock import SystemClock
from rota.coordinators.recipes import LEADER, Election
from rota.coordinators.zookeeper.coordinator import ZooKeeperCoordinator
from rota.errors import CoordinatorRefused, CoordinatorUnavailable, InvalidInput, SessionLost
from tests.conftest import installed
from tests.contract.coordinator.test_listen import Ear
from tests.servers.ports import free_port
from tests.servers.proxy import FaultProxy
from tests.servers.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.nightly  # what is special to one kind; the contract itself runs every time

TTL_S = 2.0
BOUND_S = 5.5


class World:
    """Makes clients of one server, in a namespace of its own."""

    def __init__(self, stack: AsyncExitStack, server: ZooKeeperServer) -> None:
        self._stack = stack
        self.namespace = f"test-{secrets.token_hex(6)}"
        self.server = server
        self.place = f"127.0.0.1:{server.port}"

    def client(self, url: str = "", ttl_s: float = TTL_S) -> ZooKeeperCoordinator:
        clock = SystemClock()
        client = ZooKeeperCoordinator(url or f"zookeeper://{self.place}", clock, namespace=self.namespace, ttl_s=ttl_s)
        self._stack.push_async_callback(client.close)
        return client

    async def joined(self, url: str = "", ttl_s: float = TTL_S) -> ZooKeeperCoordinator:
        client = self.client(url, ttl_s)
        await client.join()
        return client

    async def behind_proxy(self) -> tuple[ZooKeeperCoordinator, FaultProxy]:
        proxy = await self._stack.enter_async_context(FaultProxy("127.0.0.1", self.server.port))
        return await self.joined(f"zookeeper://127.0.0.1:{proxy.port}"), proxy

    async def plain(self) -> KazooClient:
        """A client that knows nothing of rota."""
        client = KazooClient(self.place)
        await asyncio.to_thread(client.start)
        self._stack.callback(client.close)
        self._stack.push_async_callback(asyncio.to_thread, client.stop)
        return client


@pytest.fixture
async def world(zookeeper_server: ZooKeeperServer) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack, zookeeper_server)


@pytest.fixture(scope="module")
def own_server() -> Iterator[ZooKeeperServer]:
    """A server for this module alone, because its tests stop it."""
    with installed(ZooKeeperServer) as server:
        yield server


@pytest.fixture
async def own(own_server: ZooKeeperServer) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        yield World(stack, own_server)


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)


async def test_a_plain_client_sees_the_nodes_that_were_promised(world: World) -> None:
    node = await world.joined()
    await node.put("live", '{"epoch": 3}')
    await node.claim({"live/a": '{"load": 0.5}'})
    await node.put("all/a", '{"address": "host-a:7700"}')
    assert await Election(node, "host-a:7700").campaign()
    plain = await world.plain()
    seen = {}
    for key in ("live", "live/a", "all/a", LEADER):
        data, stat = await asyncio.to_thread(plain.get, f"/{world.namespace}/{key}")
        seen[key] = (data.decode(), f"0x{stat.ephemeralOwner:x}" if stat.ephemeralOwner else "lasts")
    assert seen == {
        "live": ('{"epoch": 3}', "lasts"),
        "live/a": ('{"load": 0.5}', node.session),
        "all/a": ('{"address": "host-a:7700"}', "lasts"),
        "election/leader": ("host-a:7700", node.session),
    }


async def test_a_folder_that_nobody_has_put_is_no_entry(world: World) -> None:
    client = world.client()
    below = await client.put("a/b/c", "1")
    assert below is not None
    assert (await client.keys(""), await client.keys("a"), await client.keys("a/b")) == (set(), set(), {"a/b/c"})
    assert (await client.read("a"), await client.get("a/b")) == ((), None)
    version = await client.put("a/b", "2", version=0)
    assert version is not None
    assert version > below
    assert (await client.keys("a"), [it.value for it in await client.read("a")]) == ({"a/b"}, ["2"])
    assert await client.delete("a/b", version)
    assert (await client.keys("a"), await client.read("a"), await client.get("a/b")) == (set(), (), None)
    assert await client.keys("a/b") == {"a/b/c"}
    again = await client.put("a/b", "3")
    assert again is not None
    assert again > version


async def test_a_mark_that_somebody_else_made_hides_nothing_and_is_in_nobodys_way(world: World) -> None:
    client, plain = await world.joined(), await world.plain()
    await client.claim({"jobs/1": "a"})
    await client.put("live", "plan")
    await client.put("live/a", "1")
    for mark in ("jobs/.1", ".live", ".beat"):
        await asyncio.to_thread(plain.create, f"/{world.namespace}/{mark}", b"foreign")
    assert (await client.keys("jobs"), await client.keys("")) == ({"jobs/1"}, {"live"})
    assert await client.claim({"beat/1": "a"}) != {}
    plan = await client.get("live")
    assert plan is not None
    assert await client.delete("live", plan.version)
    assert (await client.get("live"), await client.keys("")) == (None, set())
    assert await client.put("live", "anew") is not None


async def test_a_node_that_somebody_else_made_is_a_folder_until_it_is_put(world: World) -> None:
    client, plain = await world.joined(), await world.plain()
    await asyncio.to_thread(plain.create, f"/{world.namespace}/live/a", makepath=True)
    assert await client.get("live") is None
    assert await client.put("live", "", version=0)
    assert await client.claim({"live/a": ""}) != {}
    assert [(it.key, it.value) for it in (*await client.read(""), *await client.read("live"))] == [
        ("live", ""),
        ("live/a", ""),
    ]


async def test_texts_that_begin_with_a_nul_come_back(world: World) -> None:
    client = world.client()
    for text in ("\0", "\0x", "x\0"):
        await client.put("text", text)
        entry = await client.get("text")
        assert entry is not None
        assert entry.value == text


async def test_nothing_is_kept_below_a_claim_and_nothing_with_entries_below_is_claimed(world: World) -> None:
    client = await world.joined()
    await client.claim({"live/a": ""})
    for key in ("live/a/below", "live/a/far/below"):
        with pytest.raises(InvalidInput, match="below a claim"):
            await client.put(key, "")
        with pytest.raises(InvalidInput, match="below a claim"):
            await client.claim({key: ""})
    version = await client.put("lock/one/two", "")
    assert version is not None
    with pytest.raises(InvalidInput, match="has entries below"):
        await client.claim({"lock/one": ""})
    assert await client.delete("lock/one/two", version)
    assert list(await client.claim({"lock/one": ""})) == ["lock/one"]
    assert await client.keys("lock") == {"lock/one"}


async def test_a_chroot_is_made(world: World) -> None:
    chroot = f"{world.namespace}-root/deeper"
    client = world.client(f"zookeeper://{world.place}/{chroot}")
    await client.put("live", "plan")
    plain = await world.plain()
    assert (await asyncio.to_thread(plain.get, f"/{chroot}/{world.namespace}/live"))[0] == b"plan"
    assert await world.client().get("live") is None


async def test_a_session_survives_a_short_restart_and_its_listeners_hear_again(own: World) -> None:
    client, other = await own.joined(ttl_s=4.0), own.client(ttl_s=4.0)
    session, ear = client.session, Ear()
    won = await client.claim({"live/a": "here"})
    client.listen("live", ear)
    await ear.quiet(client)
    own.server.kill()
    await until(lambda: not client._joined.is_up)
    await asyncio.to_thread(own.server.start)
    await ear.woken(client)
    assert await client.renew()
    assert (client.session, await client.claim({"live/a": ""})) == (session, won)
    await ear.quiet(client)
    await other.put("live/b", "")
    await ear.woken(client)


async def test_a_server_that_lost_its_data_is_joined_anew_and_its_listeners_hear_again(own: World) -> None:
    client, ear = await own.joined(ttl_s=4.0), Ear()
    await client.claim({"live/a": "here"})
    for _ in range(50):  # so that the client has seen more than the server will have
        await client.put("notice/drain", "some")
    client.listen("live", ear)
    await ear.quiet(client)
    await asyncio.to_thread(own.server.close)  # removes its data too
    await asyncio.to_thread(own.server.start)
    await until_over(client)
    await client.join()
    assert "live/a" in await client.claim({"live/a": "here again"})
    await ear.woken(client)


async def until_over(client: ZooKeeperCoordinator, seconds: float = 20.0) -> None:
    """Renew until the server says that the session is over."""
    async with asyncio.timeout(seconds):
        while True:
            with suppress(CoordinatorUnavailable):
                if not await client.renew():
                    return
            await asyncio.sleep(0.05)


async def test_every_verb_is_given_up_in_time_while_the_server_hangs(own: World) -> None:
    client, fresh = await own.joined(ttl_s=4.0), own.client()
    fence = (await client.claim({"jobs/1": ""}))["jobs/1"]
    assert own.server.pid is not None
    os.kill(own.server.pid, signal.SIGSTOP)
    try:
        verbs = [
            client.renew(),
            client.claim({"jobs/2": ""}),
            client.release({"jobs/1": fence}),
            client.update("jobs/1", fence, "x"),
            client.get("jobs/1"),
            client.read("jobs"),
            client.keys("jobs"),
            client.put("plan", ""),
            client.delete("plan", 1),
            fresh.join(),
            fresh.get("plan"),
        ]
        assert set(await asyncio.gather(*(unavailable(it) for it in verbs))) == {True}
        assert await unavailable(client.leave())
        await within_bounds(client.close())
        await within_bounds(fresh.close())
    finally:
        os.kill(own.server.pid, signal.SIGCONT)
    later = await own.joined()
    assert "jobs/3" in await later.claim({"jobs/3": ""})


async def within_bounds(verb: Awaitable[object]) -> None:
    async with asyncio.timeout(BOUND_S):
        await verb


async def unavailable(verb: Awaitable[object]) -> bool:
    """Whether a verb is given up, in time."""
    with pytest.raises(CoordinatorUnavailable):
        await within_bounds(verb)
    return True


async def test_nothing_listens_at_all(world: World) -> None:
    nowhere = world.client(f"zookeeper://127.0.0.1:{free_port()}")
    assert await unavailable(nowhere.join())
    assert not await nowhere.renew()
    await within_bounds(nowhere.close())
    with pytest.raises(CoordinatorUnavailable, match="closed"):
        await nowhere.get("plan")


async def test_a_session_that_ended_in_a_black_hole_is_known_to_be_over_once_it_heals(world: World) -> None:
    (cut, proxy), other = await world.behind_proxy(), await world.joined()
    fence = (await cut.claim({"jobs/1": "cut"}))["jobs/1"]
    was = cut.session
    await proxy.black_hole()
    assert await unavailable(cut.renew())
    assert cut.session == was
    await until(lambda: time.monotonic() > cut.believed_until_s)
    async with asyncio.timeout(5 * TTL_S):
        while not (won := await other.claim({"jobs/1": "other"})):
            await asyncio.sleep(0.05)
    proxy.abort()
    await proxy.pass_through()
    await until(lambda: cut.session is None)
    assert not await cut.renew()
    with pytest.raises(SessionLost):
        await cut.claim({"jobs/1": ""})
    with pytest.raises(SessionLost):
        await cut.release({"jobs/1": fence})
    assert [it.fence for it in await cut.read("jobs")] == list(won.values())
    assert await cut.join() != was


@pytest.mark.parametrize("for_s", [0.2, 3 * TTL_S], ids=["its session lives", "its session ends"])
async def test_a_listener_that_was_cut_off_is_woken_when_it_heals(world: World, for_s: float) -> None:
    (cut, proxy), other = await world.behind_proxy(), world.client()
    ear = Ear()
    cut.listen("jobs", ear)
    await ear.quiet(cut)
    await proxy.black_hole()
    await other.put("jobs/1", "missed")
    await asyncio.sleep(for_s)
    assert not ear._woken.is_set()
    proxy.abort()  # what was missed is lost, not late
    await proxy.pass_through()
    await until(ear._woken.is_set)
    await ear.quiet(other)
    await other.put("jobs/2", "heard")
    await until(ear._woken.is_set)


async def test_who_has_left_still_hears(world: World) -> None:
    client, other, ear = await world.joined(), world.client(), Ear()
    client.listen("jobs", ear)
    await client.leave()
    await ear.quiet(other)
    await other.put("jobs/1", "")
    await until(ear._woken.is_set)


async def test_a_claim_that_lost_its_connection_is_found_by_asking_again(world: World) -> None:
    client, proxy = await world.behind_proxy()
    wanted = {f"jobs/{number}": "" for number in range(1000)}
    claiming = asyncio.ensure_future(client.claim(wanted))
    await until(lambda: proxy.pieces > 20)
    proxy.abort()
    assert await unavailable(claiming)
    won = await client.claim(wanted)
    assert won == {it.key: it.fence for it in await client.read("jobs") if it.session == client.session}
    assert won.keys() == wanted.keys()


async def test_a_verb_that_is_cancelled_breaks_nothing(world: World) -> None:
    client = await world.joined()
    wanted = {f"jobs/{number}": "" for number in range(500)}
    for delay_s in (0.0, 0.01, 0.05, 0.1):
        with suppress(TimeoutError):  # a fast server has done it by then
            async with asyncio.timeout(delay_s):
                await client.claim(wanted)
    won = await client.claim(wanted)
    assert won.keys() == wanted.keys()
    await client.release(won)
    assert await client.keys("jobs") == frozenset()


async def test_a_session_is_believed_for_no_longer_than_the_server_agrees(world: World) -> None:
    with capture_logs() as logs:
        client = await world.joined(ttl_s=60.0)
        assert client.believed_until_s < time.monotonic() + 5.1
        await client.join()
    assert [(it["asked_s"], it["given_s"]) for it in logs if "time to live" in it["event"]] == [(60.0, 5.0)]
    short = await world.joined(ttl_s=0.3)
    assert short.believed_until_s < time.monotonic() + 0.3


async def test_a_host_that_is_down_is_passed_over(world: World) -> None:
    client = world.client(f"zookeeper://127.0.0.1:{free_port()},{world.place}")
    await client.join()
    assert await client.claim({"jobs/1": ""}) != {}


async def test_the_nodes_of_a_user_are_not_for_others(world: World) -> None:
    user = await world.joined(f"zookeeper://rota:p%40ss@{world.place}")
    assert await user.claim({"live/a": ""}) != {}
    again = world.client(f"zookeeper://rota:p%40ss@{world.place}")
    assert await again.keys("live") == {"live/a"}
    for stranger in (world.client(f"zookeeper://rota:wrong@{world.place}"), world.client()):
        with pytest.raises(CoordinatorRefused, match="belong to somebody else"):
            await stranger.get("live/a")
        with pytest.raises(CoordinatorRefused, match="belong to somebody else"):
            await stranger.put("plan", "")


async def test_tls_is_spoken_with_a_server_that_is_trusted(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        world = World(stack, stack.enter_context(installed(partial(ZooKeeperServer, tls=True))))
        place = f"127.0.0.1:{world.server.tls_port}"
        certificate = shutil.copy(world.server.certificate, tmp_path)
        client = await world.joined(f"zookeeper://{place}?ca={certificate}")
        assert await client.claim({"live/a": ""}) != {}
        for stranger in (f"zookeeper://{place}", f"zookeeper://localhost:{world.server.tls_port}?ca={certificate}"):
            assert await unavailable(world.client(stranger).join())


@pytest.mark.parametrize(
    "url",
    [
        "zookeeper://",
        "zookeeper://host:port",
        "zookeeper://host:70000",
        "zookeeper://host:2181,",
        "zookeeper://host:2181/../x",
        "zookeeper://host:2181/x//y",
        "zookeeper://host:2181#x",
        "zookeeper://host:2181?tls=yes",
        "zookeeper://host:2181?ca=",
        "zookeeper://host:2181?ca=a&ca=b",
        "zookeeper://host:2181?ca=/nowhere",
        "zookeeper://host:2181?cert=a",
        "zookeeper://host:2181?key=a",
        "zookeeper://user@host:2181",
        "zookeeper://:password@host:2181",
        "zookeeper://host:2181?sasl=digest",
        "zookeeper://user:password@host:2181?sasl=gssapi",
        "etcd://host:2181",
    ],
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"coordinator\.url") as refused:
        ZooKeeperCoordinator(url, SystemClock(), namespace="rota", ttl_s=4.0)
    assert "password@" not in str(refused.value).replace("[user:password@]", "")


def test_a_wrong_namespace_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"coordinator\.namespace"):
        ZooKeeperCoordinator("zookeeper://host:2181", SystemClock(), namespace="/x", ttl_s=4.0)


def test_a_missing_driver_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    for module in ("link", "wire"):
        monkeypatch.delitem(sys.modules, f"rota.coordinators.zookeeper.{module}", raising=False)
    with pytest.raises(CoordinatorRefused, match=r"pip install 'rota\[zookeeper\]'"):
        ZooKeeperCoordinator("zookeeper://host:2181", SystemClock(), namespace="rota", ttl_s=4.0)
