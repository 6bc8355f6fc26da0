"""Placement `scope` as a plain client of ZooKeeper sees it: types, data, and the order of a new plan (S4.1 to S4.9)."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any, NamedTuple

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import ZnodeStat

from rota.clock import SystemClock
from rota.config import CoordinatorConfig, PlacementConfig
from rota.loops.placer.scope import ScopePlacer
from rota.loops.placer.session_keeper import SessionKeeper
from rota.model.cluster import Peer
from rota.model.trigger import Cron
from rota.ports import Store
from rota.wiring import open_coordinator, open_store
from tests.factories import a_definition
from tests.servers.proxy import FaultProxy
from tests.servers.zookeeper import ZooKeeperServer
from tests.sim.test_scheduler import define


class Seen(NamedTuple):
    """A state of a node that the plain client was shown: its data, and the number of the write that made it."""

    path: str
    data: str | None
    zxid: int


class Scene:
    """Schedulers in this process, and a plain client that watches the whole namespace."""

    def __init__(self, stack: AsyncExitStack, server: ZooKeeperServer, store: Store) -> None:
        self._stack = stack
        self._port = server.port
        self._store = store
        self.root = f"/scope-{secrets.token_hex(4)}"
        self.seen: list[Seen] = []
        self.plain = KazooClient(hosts=f"127.0.0.1:{server.port}")

    async def open(self) -> None:
        await asyncio.to_thread(self.plain.start)
        self._stack.push_async_callback(asyncio.to_thread, self._close)
        await asyncio.to_thread(self.plain.ensure_path, self.root)
        for path in ("shard", "live"):
            await asyncio.to_thread(self.plain.DataWatch, f"{self.root}/{path}", self._noting(path))

    def _close(self) -> None:
        self.plain.stop()
        self.plain.close()

    def _noting(self, path: str) -> Callable[[bytes | None, ZnodeStat | None], None]:
        def note(data: bytes | None, stat: ZnodeStat | None) -> None:
            text = None if data is None else data.decode()
            self.seen.append(Seen(path, text, 0 if stat is None else stat.mzxid))

        return note

    async def start(self, name: str) -> ScopePlacer:
        clock = SystemClock()
        where = CoordinatorConfig(
            url=f"zookeeper://127.0.0.1:{self._port}", namespace=self.root.removeprefix("/"), session_s=2.0
        )
        proxy = await self._stack.enter_async_context(FaultProxy("127.0.0.1", self._port))
        await proxy.delay(0.1)  # so that every state lasts long enough to be seen by one-shot watches
        where = msgspec.structs.replace(where, url=f"zookeeper://127.0.0.1:{proxy.port}")
        coordinator = open_coordinator(where, self._store, clock)
        peer = Peer(name=name, incarnation=clock.token(), address=f"{name}:7700")
        keeper = SessionKeeper(coordinator, clock, lambda: peer)
        scoper = ScopePlacer(self._store, coordinator, clock, PlacementConfig(kind="scope", strategy="scope"), keeper)
        keeper.signals.session_began.on(scoper.wake)
        keeper.signals.session_lost.on(scoper.lose)
        tasks = [asyncio.create_task(it.run()) for it in (keeper, scoper)]

        async def end() -> None:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await coordinator.close()

        self._stack.push_async_callback(end)
        return scoper

    async def read(self, path: str) -> tuple[Any, Any]:
        """Data and stat of a node, or nothing."""
        with suppress(Exception):
            data, stat = await asyncio.to_thread(self.plain.get, f"{self.root}/{path}")
            return data.decode(), stat
        return None, None

    async def planned(self, count: int) -> dict[str, Any]:
        """Wait for a plan of so many nodes that everybody has told to have read."""
        async with asyncio.timeout(30):
            while True:
                text, _ = await self.read("live")
                plan = json.loads(text) if text else {}
                if len(plan.get("names", ())) == count:
                    told = [json.loads((await self.read(f"live/{name}"))[0] or "{}") for name in plan["names"]]
                    if all(it.get("epoch") == plan["epoch"] for it in told):
                        return dict(plan)
                await asyncio.sleep(0.05)


@pytest.fixture
async def scene(zookeeper_server: ZooKeeperServer) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        store = open_store("memory:", SystemClock(), actor="test")
        await define(store, [a_definition(rule=Cron(expression="0 0 1 1 *")) for _ in range(23)])  # type: ignore[arg-type]
        found = Scene(stack, zookeeper_server, store)
        await found.open()
        yield found


async def test_a_plain_client_reads_the_types_and_the_data_of_the_document(scene: Scene) -> None:
    """S4.1 to S4.3, S4.9."""
    for name in "abc":
        await scene.start(name)
    plan = await scene.planned(3)
    _, live = await scene.read("live")
    assert live.ephemeralOwner == 0
    assert [(part["name"], part["first"], part.get("last")) for part in plan["parts"]] == [
        ("a", 1, 7),
        ("b", 8, 14),
        ("c", 15, None),
    ]
    for name, part in zip("abc", ("1-7", "8-14", "15-"), strict=True):
        text, node = await scene.read(f"live/{name}")
        assert node.ephemeralOwner != 0
        assert (json.loads(text)["address"], json.loads(text)["range"]) == (f"{name}:7700", part)
        text, ever = await scene.read(f"all/{name}")
        assert ever.ephemeralOwner == 0
        assert json.loads(text)["address"] == f"{name}:7700"
    _, election = await scene.read("election")
    leader, stat = await scene.read("election/leader")
    assert election.ephemeralOwner == 0
    assert stat.ephemeralOwner != 0
    assert leader in {f"{name}:7700" for name in "abc"}


async def test_a_new_plan_is_made_in_the_order_of_the_document(scene: Scene) -> None:
    """S4.4 to S4.7: create /shard, write /live, delete /shard; for the first plan and for the next."""
    await scene.start("a")
    await scene.planned(1)
    await scene.start("b")
    await scene.planned(2)
    await scene.start("c")
    last = await scene.planned(3)

    def is_over() -> bool:
        begun = any(it.path == "shard" and it.data and int(it.data) == last["epoch"] for it in scene.seen)
        return begun and scene.seen[-1].path == "shard" and scene.seen[-1].data is None

    async with asyncio.timeout(30):
        while not is_over():
            await asyncio.sleep(0.05)
    line = [it for it in scene.seen if it.path == "shard" or (it.path == "live" and it.data)]
    made = [it for it in line if it.path == "shard" and it.data is not None]
    assert [int(it.data or 0) for it in made][-1] == last["epoch"]
    for shard in made:
        place = line.index(shard)
        plan, gone = line[place + 1], line[place + 2]
        assert plan.path == "live"
        assert json.loads(plan.data or "{}")["epoch"] == int(shard.data or 0)
        assert shard.zxid < plan.zxid
        assert (gone.path, gone.data) == ("shard", None)
    assert len(made) >= 3
