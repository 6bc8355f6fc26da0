"""The private servers do what their tests rely on: durable, only on loopback, gone when they should be."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.conftest import installed
from tests.servers import mariadb, postgres, process
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.process import ServerFailed, ServerMissing, wait_until
from tests.servers.sql import run

ROOT = Path(__file__).parents[2]
Server = PostgresServer | MariadbServer
KINDS = [pytest.param(PostgresServer, id="postgres"), pytest.param(MariadbServer, id="mariadb")]


@pytest.fixture(scope="module", params=KINDS)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server for this module alone, because its tests kill it."""
    with installed(request.param) as server:
        yield server


async def test_a_fresh_database_is_empty_and_gone_afterwards(server: Server) -> None:
    async with server.fresh_database() as url:
        await run(url, "CREATE TABLE facts (id int PRIMARY KEY)")
        assert await run(url, "SELECT * FROM facts") == []
        name = url.rpartition("/")[2]
        assert await databases_named(server, name) == [(name,)]
    assert await databases_named(server, name) == []


async def test_two_fresh_databases_do_not_see_each_other(server: Server) -> None:
    async with server.fresh_database() as one, server.fresh_database() as other:
        await run(one, "CREATE TABLE facts (id int PRIMARY KEY)")
        await run(other, "CREATE TABLE facts (id int PRIMARY KEY)")


async def test_a_database_in_use_is_dropped_all_the_same(server: Server) -> None:
    async with server.fresh_database() as url:
        await run(url, "CREATE TABLE facts (id int PRIMARY KEY)")
        hold = "SELECT pg_sleep(60)" if isinstance(server, PostgresServer) else "SELECT sleep(60) FROM (SELECT 1) one"
        holder = asyncio.create_task(run(url, hold))
        await session_on(server, url)
    with pytest.raises(Exception, match=r"terminat|Lost connection|reset|closed"):
        await holder


@pytest.mark.parametrize("how", ["restart", "kill"])
async def test_a_committed_row_survives(server: Server, how: str) -> None:
    async with server.fresh_database() as url:
        await run(url, "CREATE TABLE facts (id int PRIMARY KEY)")
        await run(url, "INSERT INTO facts VALUES (1)")
        if how == "restart":
            await asyncio.to_thread(server.restart)
        else:
            server.kill()
            await asyncio.to_thread(server.start)
        assert await run(url, "SELECT id FROM facts") == [(1,)]


async def test_the_server_is_durable_and_roomy(server: Server) -> None:
    if isinstance(server, PostgresServer):
        wanted = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "200"}
        rows = await run(server.url("postgres"), "SELECT name, setting FROM pg_settings")
    else:
        wanted = {
            "innodb_flush_log_at_trx_commit": "1",
            "innodb_doublewrite": "ON",
            "max_connections": "200",
            "character_set_server": "utf8mb4",
            "skip_name_resolve": "ON",
        }
        rows = await run(server.url(""), "SHOW GLOBAL VARIABLES")
    assert wanted.items() <= dict(rows).items()


def test_only_loopback_is_listened_on(server: Server) -> None:
    listening = [
        each.laddr for each in psutil.Process(server.pid).net_connections("inet") if each.status == psutil.CONN_LISTEN
    ]
    assert [(address.ip, address.port) for address in listening] == [("127.0.0.1", server.port)]


def test_root_does_not_run_it(server: Server) -> None:
    assert psutil.Process(server.pid).uids().effective == process.server_uid() != 0


def test_a_kill_leaves_no_process_behind(server: Server) -> None:
    main = psutil.Process(server.pid)
    family = [main, *main.children(recursive=True)]
    server.kill()
    assert [each for each in family if each.is_running()] == []
    server.start()


def test_the_thread_that_starts_a_server_may_end(server: Server) -> None:
    thread = threading.Thread(target=server.restart)
    thread.start()
    thread.join()
    wait_until(server.answers, 5, "an answer")
    assert psutil.Process(server.pid).is_running()


def test_stopping_twice_is_harmless_and_starting_twice_an_error(server: Server) -> None:
    server.stop()
    server.stop()
    server.kill()
    server.start()
    with pytest.raises(RuntimeError, match="running already"):
        server.start()


def test_a_server_that_ended_by_itself_can_be_stopped_and_started(server: Server) -> None:
    assert server.pid is not None
    main = psutil.Process(server.pid)
    os.kill(server.pid, signal.SIGKILL)
    wait_until(lambda: not main.is_running(), 10, "the end of the server")
    server.stop()
    server.start()


@pytest.mark.parametrize("kind", [postgres.PostgresServer, mariadb.MariadbServer])
def test_a_server_dies_with_a_killed_test_process_and_takes_its_data_along(kind: type[Server]) -> None:
    installed(kind)
    script = (
        f"from {kind.__module__} import {kind.__name__} as Server\n"
        "server = Server()\nserver.start()\nprint(server.pid, server.folder, flush=True)\ninput()\n"
    )
    victim = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with victim:
        assert victim.stdout is not None
        pid, folder = victim.stdout.readline().split()
        main = psutil.Process(int(pid))
        family = [main, *main.children(recursive=True)]
        victim.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(each.is_running() for each in family), 10, "the end of the server")
    wait_until(lambda: not Path(folder).exists(), 60, "its data to be gone")


def test_a_server_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = installed(PostgresServer)
    monkeypatch.setattr(broken, "command", lambda folder: ["/bin/sh", "-c", "echo no luck today >&2; exit 3"])
    with pytest.raises(ServerFailed, match="no luck today"):
        broken.start()
    broken.close()


def test_a_missing_program_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_args, **_kwargs: None)
    with pytest.raises(ServerMissing, match="scripts/services install"):
        MariadbServer()


@pytest.mark.parametrize(
    ("ci", "outcome"), [("true", pytest.fail.Exception), ("", pytest.skip.Exception)], ids=["in CI", "elsewhere"]
)
def test_a_missing_server_fails_in_ci_and_skips_elsewhere(
    monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    monkeypatch.setattr("shutil.which", lambda *_args, **_kwargs: None)
    with pytest.raises(outcome, match="MariaDB is not installed"):
        installed(MariadbServer)


async def databases_named(server: Server, name: str) -> list[tuple[str]]:
    if isinstance(server, PostgresServer):
        return list(
            await run(server.url("postgres"), f"SELECT datname::text FROM pg_database WHERE datname = '{name}'")
        )
    return list(await run(server.url(""), f"SHOW DATABASES LIKE '{name}'"))


async def session_on(server: Server, url: str) -> None:
    """Return once somebody else has a session on the database."""
    name = url.rpartition("/")[2]
    question, place = (
        (f"SELECT 1 FROM pg_stat_activity WHERE datname = '{name}' AND query LIKE '%pg_sleep%'", "postgres")
        if isinstance(server, PostgresServer)
        else (f"SELECT 1 FROM information_schema.processlist WHERE db = '{name}' AND info LIKE '%sleep%'", "")
    )
    async with asyncio.timeout(10):
        while not await run(server.url(place), question):
            await asyncio.sleep(0.02)
