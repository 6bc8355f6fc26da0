"""What locks guard, on real servers: it holds whoever comes first, and a lock that is left out shows."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest
from sqlalchemy.util import await_only

from rota.ports import Store
from rota.transactions.locks import Rank
from rota.transactions.tx import Tx
from tests.contract.conftest import SERVERS, Open, empty
from tests.contract.lock_scenes import SCENES, Locked, without_the_lock

TRIES = 5
"""Two that meet lose their race nearly always; on a busy machine one may come too late."""
MEET_S = 1.0
LINGER_S = 0.2


class Meeting:
    """Two transactions go on when both have read what they decide on. Whoever is alone goes on after a while; with
    `lingers`, the later one goes on when the other is done."""

    def __init__(self, *, lingers: bool) -> None:
        self._lingers = lingers
        self._arrived = 0
        self._both = asyncio.Event()

    def __call__(self, tx: Tx) -> None:
        await_only(self._meet())

    async def _meet(self) -> None:
        self._arrived += 1
        if self._arrived == 1:
            with suppress(TimeoutError):
                async with asyncio.timeout(MEET_S):
                    await self._both.wait()
            return
        self._both.set()
        if self._arrived == 2 and self._lingers:
            await asyncio.sleep(LINGER_S)


async def played(scene: Locked, one: Store, other: Store) -> None:
    await empty(one)
    for store in (one, other):
        store.memory.forget()  # the ids and lanes of the try before
    await scene.scene(one, other)


@pytest.mark.parametrize("another", SERVERS, indirect=True)
@pytest.mark.parametrize("scene", SCENES, ids=str)
async def test_what_a_lock_guards_holds_whoever_comes_first(scene: Locked, another: Open) -> None:
    one, other = await another(), await another()
    for _ in range(5):
        await played(scene, one, other)


@pytest.mark.parametrize("another", SERVERS, indirect=True)
@pytest.mark.parametrize("scene", SCENES, ids=str)
async def test_a_lock_that_is_left_out_shows(scene: Locked, another: Open) -> None:
    one, other = await another(), await another()
    for number in range(TRIES):
        try:
            with without_the_lock(scene.rank, Meeting(lingers=scene.rank is Rank.JOINING)):
                await played(scene, one, other)
        except AssertionError as shown:
            print(f"{scene}: try {number}: {shown}")
            return
    pytest.fail(f"nobody noticed that {scene} was not locked")
