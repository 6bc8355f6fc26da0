"""Listening: a change wakes whoever listens to its folder (S0.19, S4.5; a watch only wakes)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from rota.ports import Coordinator
from tests.contract.coordinator.conftest import TTL_S, Clients, joined


class Ear:
    """Counts how often it was woken."""

    def __init__(self) -> None:
        self.count = 0
        self._woken = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._woken.set()

    async def woken(self, coordinator: Coordinator, seconds: float = 10.0) -> None:
        """Wait for it, renewing as a node does: some coordinators look for news when they renew."""
        async with asyncio.timeout(seconds):
            while not self._woken.is_set():
                await coordinator.renew()
                await asyncio.wait([asyncio.ensure_future(self._woken.wait())], timeout=0.2)
        self._woken.clear()

    async def quiet(self, *coordinators: Coordinator) -> None:
        """Wait until it has not been woken for a while; these are renewed meanwhile."""
        async with asyncio.timeout(20):
            while True:
                self._woken.clear()
                for it in coordinators:
                    await it.renew()
                await asyncio.sleep(0.6)
                if not self._woken.is_set():
                    return


Deed = Callable[[Coordinator], Awaitable[object]]


async def claim(it: Coordinator) -> object:
    return await it.claim({"jobs/1": "new"})


async def release(it: Coordinator) -> object:
    return await it.release(await it.claim({"jobs/0": ""}))


async def update(it: Coordinator) -> object:
    return await it.update("jobs/0", (await it.claim({"jobs/0": ""}))["jobs/0"], "changed")


async def put(it: Coordinator) -> object:
    return await it.put("jobs/2", "new")


async def change(it: Coordinator) -> object:
    return await it.put("jobs/9", "changed")


async def delete(it: Coordinator) -> object:
    entry = await it.get("jobs/9")
    assert entry is not None
    return await it.delete("jobs/9", entry.version)


async def own(it: Coordinator) -> object:
    return await it.put("jobs", "the folder's own")


async def leave(it: Coordinator) -> object:
    return await it.leave()


@pytest.mark.parametrize("deed", [claim, release, update, put, change, delete, own, leave])
async def test_a_change_in_a_folder_wakes_whoever_listens_to_it(a: Coordinator, b: Coordinator, deed: Deed) -> None:
    await b.claim({"jobs/0": ""})
    await b.put("jobs/9", "old")
    ear = Ear()
    a.listen("jobs", ear)
    await ear.quiet(a)
    await deed(b)
    await ear.woken(a)


async def test_every_change_wakes_again(a: Coordinator, b: Coordinator) -> None:
    ear = Ear()
    a.listen("jobs", ear)
    await ear.quiet(a)
    for number in range(5):
        await b.put(f"jobs/{number}", "")
        await ear.woken(a)


async def test_a_session_that_ends_wakes_whoever_listens_to_its_claims(client: Clients, a: Coordinator) -> None:
    silent = await client()
    ear, heard = Ear(), 0
    a.listen("live", ear)
    while not await a.keys("live"):  # or, on a busy machine, not any more
        await joined(silent, "live/silent")
        await ear.quiet(a, silent)
        heard = ear.count
    await client.silence(silent)
    async with asyncio.timeout(5 * TTL_S):
        while await a.keys("live") or ear.count == heard:
            await a.renew()
            await asyncio.sleep(0.05)


async def test_two_folders_are_listened_to_at_a_time(a: Coordinator, b: Coordinator) -> None:
    jobs, live = Ear(), Ear()
    a.listen("jobs", jobs)
    a.listen("live", live)
    await jobs.quiet(a)
    await b.put("jobs/1", "")
    await jobs.woken(a)
    await b.put("live/1", "")
    await live.woken(a)
