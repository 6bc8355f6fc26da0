"""Alarms of real nodes on PostgreSQL and etcd, read from the letters that a real SMTP server got."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from rota.clock import SystemClock
from rota.config import CoordinatorConfig
from rota.control import Control
from rota.ports import Store
from rota.wiring import open_coordinator, open_store
from tests.cluster.processes import SHORT, SHORT_S, NodeProcess, lease
from tests.conftest import installed
from tests.factories import a_definition
from tests.servers.etcd import EtcdServer
from tests.servers.postgres import PostgresServer
from tests.servers.smtp import Mailbox, mail_server

PATIENCE_S = 90.0
pytestmark = pytest.mark.prove  # all of it on etcd


class Site(NamedTuple):
    """Everything that there is."""

    postgres: PostgresServer
    etcd: EtcdServer
    box: Mailbox
    store: Store
    control: Control
    url: str
    folder: Path
    stack: AsyncExitStack

    def node(self, name: str, **more: str) -> NodeProcess:
        settings = {
            **SHORT,
            "ROTA_COORDINATOR_URL": f"etcd://127.0.0.1:{self.etcd.port}",
            "ROTA_COORDINATOR_SESSION_S": f"{SHORT_S:g}",
            "ROTA_ALARM_SMTP_HOST": "127.0.0.1",
            "ROTA_ALARM_SMTP_PORT": str(self.box.port),
            **more,
        }
        node = NodeProcess(name, self.url, self.folder, settings=settings)
        self.stack.callback(node.kill)
        node.start()
        return node

    async def until(self, folder: str, count: int) -> None:
        """Wait until the coordinator has so many entries."""
        config = CoordinatorConfig(url=f"etcd://127.0.0.1:{self.etcd.port}")
        coordinator = open_coordinator(config, self.store, SystemClock())
        async with asyncio.timeout(PATIENCE_S):
            while len(await coordinator.keys(folder)) < count:
                await asyncio.sleep(0.1)
        await coordinator.close()

    async def told(self, kind: str, text: str = "") -> str:
        """Wait for a letter of a kind; its subject."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                self.box.news.clear()
                for letter in self.box.letters:
                    if letter["X-Rota-Alarm"] == kind and text in str(letter["Subject"]):
                        return str(letter["Subject"])
                await self.box.news.wait()

    def count(self, kind: str) -> int:
        return sum(letter["X-Rota-Alarm"] == kind for letter in self.box.letters)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(installed(PostgresServer))
        etcd = stack.enter_context(installed(EtcdServer))
        box = await stack.enter_async_context(mail_server())
        url = postgres.url(await postgres.create_database())
        store = open_store(url, SystemClock(), actor="operator")
        stack.push_async_callback(store.close)
        await store.migrate()
        control = Control(store, SystemClock())
        await control.alarms.set("mail", "ops@example.com", merge_s=0.0)
        yield Site(postgres, etcd, box, store, control, url, tmp_path, stack)


async def test_a_scheduler_above_its_threshold_mails_once_for_a_sweep(site: Site) -> None:
    """S0.18, A0.2."""
    await site.control.jobs.apply([a_definition() for _ in range(5)])
    site.node("a", ROTA_PLACEMENT_ALARM="5", ROTA_COORDINATOR_SESSION_S="10", **lease(10, 1))
    await site.until("jobs", 5)
    await site.control.jobs.apply([a_definition()])
    assert await site.told("held_above") == "rota: held above: scheduler a holds 6 jobs, more than 5: add machines"
    await site.control.jobs.apply([a_definition()])
    await site.told("held_above", "holds 7 jobs")
    assert site.count("held_above") == 2


async def test_a_lost_coordinator_and_a_lost_store_are_told_and_so_are_their_ends(site: Site) -> None:
    site.node("a")
    await site.until("live", 1)
    site.etcd.stop()
    assert "node a has lost the coordinator" in await site.told("coordinator_lost")
    assert site.count("recovered") == 0
    site.etcd.start()
    assert "over: node a has lost the coordinator" in await site.told("recovered")
    site.postgres.stop()
    await asyncio.sleep(12)
    site.postgres.start()
    assert "node a had no answer from the store" in await site.told("store_lost")
    assert "over: node a had no answer" in await site.told("recovered", "no answer")


async def test_a_node_that_is_killed_and_one_of_its_name_that_comes_back_are_told(site: Site) -> None:
    site.node("a")
    victim = site.node("b")
    await site.until("live", 2)
    victim.kill()
    assert "node b is disconnected" in await site.told("node_disconnected")
    victim.start()
    assert "over: node b is disconnected" in await site.told("recovered")
    assert (site.count("node_disconnected"), site.count("recovered")) == (1, 1)
