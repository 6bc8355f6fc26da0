"""A node whose servers go away: with `on_lost: exit` it ends with a code that a supervisor restarts on; otherwise it
goes on, and its log has lines of ours, no tracebacks of drivers (docs/failure.md)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rota.cli.faults import COORDINATOR_LOST
from tests.conftest import installed
from tests.servers.etcd import EtcdServer
from tests.servers.mariadb import MariadbServer
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.process import PrivateServer
from tests.servers.zookeeper import ZooKeeperServer

COORDINATORS = {"zookeeper": ZooKeeperServer, "etcd": EtcdServer}
STORES = {"postgresql": PostgresServer, "mariadb": MariadbServer}
ROTA = (sys.executable, "-c", "from rota.cli.main import main; main()")
AWAY_S = 7.0
"""Longer than a session, and than the patience of every verb."""


class Running:
    """A node that runs, and what it has logged."""

    def __init__(self, folder: Path, args: Sequence[str], on_lost: str) -> None:
        self.log_path = folder / "node.log"
        listen = f"127.0.0.1:{free_port()}"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [*ROTA, "node", "--name", "a", "--listen", listen, *args],
                env={**os.environ, "ROTA_COORDINATOR_ON_LOST": on_lost, "ROTA_LOGS_PATH": str(folder / "logs")},
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def until(self, condition: Callable[[], bool], what: str, within_s: float = 60.0) -> None:
        deadline_s = time.monotonic() + within_s
        while not condition():
            assert self.process.poll() is None, f"it ended while we waited for {what}:\n{self.log}"
            assert time.monotonic() < deadline_s, f"waited {within_s:g} s for {what}:\n{self.log}"
            time.sleep(0.1)

    def until_logged(self, text: str) -> None:
        self.until(lambda: text in self.log, repr(text))


@contextmanager
def running(folder: Path, args: Sequence[str], on_lost: str = "continue") -> Iterator[Running]:
    node = Running(folder, args, on_lost)
    try:
        yield node
    finally:
        if node.process.poll() is None:
            node.process.kill()
        node.process.wait(10)


@pytest.mark.parametrize("kind", COORDINATORS)
def test_a_node_that_shall_end_without_a_coordinator_ends_with_a_code_of_its_own(tmp_path: Path, kind: str) -> None:
    with installed(COORDINATORS[kind]) as server, running(tmp_path, args_of(tmp_path, kind, server), "exit") as node:
        node.until_logged("scheduler.joined")
        server.kill()
        assert node.process.wait(60) == COORDINATOR_LOST
    assert "error: the coordinator was lost, and coordinator.on_lost says exit" in node.log
    assert_own_words(node.log)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", COORDINATORS)
def test_a_lost_coordinator_leaves_no_traceback_in_the_log(tmp_path: Path, kind: str) -> None:
    with installed(COORDINATORS[kind]) as server, running(tmp_path, args_of(tmp_path, kind, server)) as node:
        node.until_logged("scheduler.joined")
        go_away(server)
        node.until_logged("coordinator.recovered")
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(30) == 0
    assert_own_words(node.log)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", STORES)
async def test_a_lost_store_leaves_no_traceback_in_the_log(tmp_path: Path, kind: str) -> None:
    with installed(STORES[kind]) as server:
        async with server.fresh_database() as url:
            await asyncio.to_thread(outlive, tmp_path, server, url)


def outlive(folder: Path, server: PrivateServer, url: str) -> None:
    with running(folder, ["--store", url]) as node:
        node.until_logged("scheduler.joined")
        go_away(server)
        node.until_logged("store.recovered")
        node.process.send_signal(signal.SIGTERM)
        assert node.process.wait(30) == 0
    assert_own_words(node.log)


def args_of(folder: Path, kind: str, server: PrivateServer) -> list[str]:
    return ["--store", f"sqlite:///{folder}/rota.db", "--coordinator", f"{kind}://127.0.0.1:{server.port}"]


def go_away(server: PrivateServer) -> None:
    server.kill()
    time.sleep(AWAY_S)  # that is what happens: nothing is to be seen meanwhile
    server.start()


def assert_own_words(log: str) -> None:
    for strange in ("Traceback", "never retrieved", "Unclosed", "kazoo", "sqlalchemy", "asyncpg", "aiohttp"):
        assert strange not in log, log
