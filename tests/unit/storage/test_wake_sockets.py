"""Words between the processes that use one SQLite file: heard, bounded, and never in the way of a commit."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.storage.sql import wake_sockets
from rota.storage.sql.wake_sockets import ANYTHING, TEXT_MAX, TOLD_MAX, WakeSockets

PATIENT_S = 10.0


class Process:
    """One that uses the file; it keeps what it hears."""

    def __init__(self, database: Path) -> None:
        self.sockets = WakeSockets(database, SystemClock())
        self.heard: list[str] = []
        self._news = asyncio.Event()

    def listen(self) -> Process:
        self.sockets.listen(self._hear)
        return self

    def _hear(self, topic: str) -> None:
        self.heard.append(topic)
        self._news.set()

    async def hears(self, topic: str) -> None:
        async with asyncio.timeout(PATIENT_S):
            while topic not in self.heard:
                self._news.clear()
                await self._news.wait()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "rota.db"


@pytest.fixture
def folder(database: Path) -> Path:
    return Path(f"{database}-wake")


@pytest.fixture
async def node(database: Path) -> AsyncIterator[Process]:
    made = Process(database).listen()
    yield made
    made.sockets.close()


def sockets_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def test_a_word_of_another_process_is_heard(node: Process, database: Path) -> None:
    WakeSockets(database, SystemClock()).tell(["dispatch", "node:7"])
    await node.hears("dispatch")
    await node.hears("node:7")


async def test_what_a_process_commits_it_hears_itself_once(node: Process) -> None:
    node.sockets.tell(["jobs"])
    await node.hears("jobs")
    assert node.heard == ["jobs"]


def test_whoever_only_tells_makes_neither_a_folder_nor_a_socket(database: Path, folder: Path) -> None:
    WakeSockets(database, SystemClock()).tell(["dispatch"])
    assert not folder.exists()


async def test_the_folder_is_closed_to_others_and_empty_when_all_have_left(node: Process, folder: Path) -> None:
    assert mode_of(folder) == 0o700
    assert len(sockets_in(folder)) == 1
    node.sockets.close()
    assert sockets_in(folder) == []


async def test_the_socket_of_a_dead_process_is_removed_by_the_next_word(node: Process, folder: Path) -> None:
    left(folder / "4711-dead")
    node.sockets.tell(["dispatch"])
    assert "4711-dead" not in [it.name for it in sockets_in(folder)]
    assert len(sockets_in(folder)) == 1


async def test_the_socket_of_a_dead_process_is_removed_by_the_next_one_that_starts(
    database: Path, folder: Path
) -> None:
    make(folder, 0o700)
    left(folder / "4711-dead")
    node = Process(database).listen()
    assert "4711-dead" not in [it.name for it in sockets_in(folder)]
    assert node.heard == []
    node.sockets.close()


async def test_a_folder_that_others_may_write_to_is_not_used(database: Path, folder: Path) -> None:
    make(folder, 0o770)
    node = Process(database)
    assert not node.sockets.can_hear
    node.listen().sockets.tell(["dispatch"])
    assert sockets_in(folder) == []


def test_a_folder_that_is_a_link_is_not_used(database: Path, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    assert not Process(database).sockets.can_hear


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_used_by_one_who_is_not_root(
    database: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert not Process(database).sockets.can_hear


async def test_a_path_that_is_too_long_for_an_address_is_none_on_linux(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120) / ("e" * 120)
    deep.mkdir(parents=True)
    node = Process(deep / "rota.db").listen()
    WakeSockets(deep / "rota.db", SystemClock()).tell(["dispatch"])
    await node.hears("dispatch")
    node.sockets.close()


async def test_where_addresses_are_paths_a_long_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake_sockets.system, "IS_LINUX", False)
    short, long = tmp_path / "r.db", tmp_path / ("d" * 120) / "rota.db"
    long.parent.mkdir()
    assert not Process(long).sockets.can_hear
    if len(str(short)) < 70:
        near = Process(short)
        assert near.sockets.can_hear
        near.sockets.close()


async def test_a_process_that_does_not_read_keeps_nobody_waiting_and_looks_at_everything_later(
    node: Process, database: Path
) -> None:
    teller = WakeSockets(database, SystemClock())
    for number in range(10_000):
        teller.tell([f"node:{number}"])  # without an await: nothing is read meanwhile
    await node.hears(ANYTHING[0])
    assert set(ANYTHING) <= set(node.heard)
    assert len(node.heard) < 2 * wake_sockets.AT_ONCE + len(ANYTHING)


async def test_a_word_that_is_too_long_says_that_anything_may_have_happened(node: Process, database: Path) -> None:
    WakeSockets(database, SystemClock()).tell([f"node:{number}" for number in range(TEXT_MAX)])
    await node.hears(ANYTHING[0])
    assert node.heard == list(ANYTHING)


async def test_rubbish_costs_one_look(node: Process, folder: Path) -> None:
    rubbish = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    (own,) = sockets_in(folder)
    rubbish.sendto(b"\xff" * TEXT_MAX, str(own))
    rubbish.close()
    await node.hears(ANYTHING[0])
    assert node.heard == list(ANYTHING)


async def test_a_commit_wakes_a_bounded_number_of_sockets(node: Process, folder: Path, database: Path) -> None:
    for number in range(TOLD_MAX + 50):
        left(folder / f"{number}-dead")
    WakeSockets(database, SystemClock()).tell(["dispatch"])
    assert len(sockets_in(folder)) >= 50


async def test_what_was_closed_says_and_opens_nothing_more(node: Process, folder: Path) -> None:
    node.sockets.close()
    node.sockets.tell(["dispatch"])
    assert not node.sockets.can_hear
    assert sockets_in(folder) == []


def left(path: Path) -> None:
    """A socket that nobody reads any more."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.bind(str(path))
    made.close()


def make(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)
