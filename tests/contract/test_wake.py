"""Wake: whoever listens hears of a commit of another process at once, and of nothing that was rolled back.

Where the database tells nothing by itself (MariaDB), a node hears a word at its port: that there is something to look
for, not what.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from unittest.mock import patch

import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.ports import Store
from rota.storage.sql.postgresql import MISSED
from rota.storage.sql.rows import SqlRows
from rota.storage.sql.store import SqlStore
from rota.storage.sql.wake_sockets import WakeSockets
from rota.storage.sql.word import WordSender
from rota.transactions.rows import Conflict
from rota.transactions.tx import Tx
from tests.contract.conftest import PATIENT_S, Open
from tests.factories import a_definition, a_node
from tests.servers.ports import LOOPBACK, free_port

Deed = Callable[[Store], Awaitable[None]]


class Ear:
    """Keeps the topics that it hears."""

    def __init__(self, store: Store) -> None:
        self.topics: list[str] = []
        self._news = asyncio.Event()
        store.listen(self._hear)

    def _hear(self, topic: str) -> None:
        self.topics.append(topic)
        self._news.set()

    async def hears(self, *wanted: str, within_s: float = PATIENT_S) -> None:
        async with asyncio.timeout(within_s):
            while not set(wanted) & set(self.topics):
                self._news.clear()
                await self._news.wait()


async def listening(store: Store) -> Ear:
    """One that hears everything that is committed from now on."""
    if isinstance(store, SqlStore) and not store.hears:
        port = free_port()
        address = f"{LOOPBACK}:{port}"
        await store.hear_words(LOOPBACK, port, address)
        assert store.is_called
        await a_node(store, address=address)
    ear = Ear(store)
    if isinstance(store, SqlStore) and store._dialect.name == "postgresql":
        await ear.hears(*MISSED)  # it has connected
    ear.topics.clear()
    return ear


async def prepare(writer: Store, *ears: Ear) -> None:
    """Let everything be assigned, and wait until that was heard."""
    await Control(writer, SystemClock()).limits.set_quota("acme", cap=1)
    for ear in ears:
        await ear.hears("dispatch", "look")
    await asyncio.sleep(0.2)  # words that are still owed
    for ear in ears:
        ear.topics.clear()


async def assign(store: Store) -> None:
    await Control(store, SystemClock()).assignments.assign("acme", ["a"], handler="noop")


async def apply(store: Store) -> None:
    await Control(store, SystemClock()).jobs.apply([a_definition()])


@pytest.mark.parametrize(("deed", "topic"), [(assign, "dispatch"), (apply, "jobs")])
async def test_a_commit_of_another_process_is_heard(another: Open, deed: Deed, topic: str) -> None:
    listener, writer = await another(), await another()
    ear = await listening(listener)
    await prepare(writer, ear)
    await deed(writer)
    await ear.hears(topic, "look")


@pytest.mark.parametrize("another", ["mariadb"], indirect=True)
async def test_a_process_that_ends_at_once_has_told_what_it_committed(another: Open) -> None:
    listener, writer = await another(), await another()
    ear = await listening(listener)
    await Control(listener, SystemClock()).limits.set_quota("acme", cap=1)
    await assign(writer)
    await writer.close()
    await ear.hears("dispatch", "look")


@pytest.mark.parametrize("another", ["sqlite", "mariadb"], indirect=True)
async def test_with_the_word_left_out_nothing_is_heard(another: Open) -> None:
    """The tests above have teeth."""
    listener, writer = await another(), await another()
    ear = await listening(listener)
    await prepare(writer, ear)
    with patch.object(WakeSockets, "tell"), patch.object(WordSender, "tell"):
        await assign(writer)
        with pytest.raises(TimeoutError):
            await ear.hears("dispatch", "look", within_s=0.5)


@pytest.mark.parametrize("another", ["memory", "sqlite", "postgresql"], indirect=True)
async def test_nothing_is_heard_of_what_was_rolled_back(another: Open) -> None:
    listener, writer = await another(), await another()
    ear = await listening(listener)
    tries = 0

    def once_in_vain(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        tx.woken = {tries}
        if isinstance(tx.rows, SqlRows):
            tx.rows.flush(tx.topics)
        if tries == 1:
            raise Conflict("once")

    await writer.transact(once_in_vain)
    await ear.hears("node:2")
    assert set(ear.topics) == {"node:2"}


@pytest.mark.parametrize("another", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_a_word_is_heard_by_all_nodes(another: Open) -> None:
    first, second, writer = await another(), await another(), await another()
    ears = [await listening(first), await listening(second)]
    await prepare(writer, *ears)
    await assign(writer)
    for ear in ears:
        await ear.hears("dispatch", "look")
