"""Wake: whoever listens hears of a commit of another process at once, and of nothing that was rolled back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.ports import Conflict, Store
from rota.transactions.tx import Tx
from tests.contract.conftest import PATIENT_S, Open
from tests.factories import a_definition


class Ear:
    """Keeps the topics that it hears."""

    def __init__(self, store: Store) -> None:
        self.topics: list[str] = []
        self._news = asyncio.Event()
        store.listen(self._hear)

    def _hear(self, topic: str) -> None:
        self.topics.append(topic)
        self._news.set()

    async def hears(self, wanted: set[str]) -> None:
        async with asyncio.timeout(PATIENT_S):
            while not wanted & set(self.topics):
                self._news.clear()
                await self._news.wait()


async def assign(store: Store) -> None:
    await Control(store, SystemClock()).assign("acme", ["a"], handler="noop")


async def apply(store: Store) -> None:
    await Control(store, SystemClock()).apply([a_definition()])


@pytest.mark.parametrize(("deed", "topic"), [(assign, "dispatch"), (apply, "jobs")])
async def test_a_commit_of_another_process_is_heard(
    another: Open, deed: Callable[[Store], Awaitable[None]], topic: str
) -> None:
    listener, writer = await another(), await another()
    if not listener.hears and listener is not writer:
        pytest.skip("this store tells nothing by itself")
    await Control(writer, SystemClock()).set_quota("acme", cap=1)
    ear = Ear(listener)
    await asyncio.sleep(0.5 if listener.hears else 0)  # a connection that listens may still be under way
    ear.topics.clear()
    await deed(writer)
    await ear.hears({topic})


async def test_nothing_is_heard_of_what_was_rolled_back(another: Open) -> None:
    listener, writer = await another(), await another()
    if not listener.hears and listener is not writer:
        pytest.skip("this store tells nothing by itself")
    ear = Ear(listener)
    await asyncio.sleep(0.5 if listener.hears else 0)
    ear.topics.clear()
    tries = 0

    def once_in_vain(tx: Tx) -> None:
        nonlocal tries
        tries += 1
        tx.is_news = tries == 1
        tx.woken = {tries}
        tx.read_clock()
        tx.rows.flush(tx.topics) if hasattr(tx.rows, "flush") else None
        if tries == 1:
            raise Conflict("once")

    await writer.transact(once_in_vain)
    await ear.hears({"node:2"})
    assert ear.topics == ["node:2"]
