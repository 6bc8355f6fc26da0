"""Sessions: they live while they are renewed, and take their claims with them (S0.4, S0.48, S3.24, S4.1)."""

from __future__ import annotations

import asyncio
import time

import pytest

from rota.errors import SessionLost
from rota.ports import Coordinator
from tests.contract.coordinator.conftest import DRIFT_S, TTL_S, Clients, joined


async def free_at(coordinator: Coordinator, key: str) -> float:
    """When (monotonic) this client got a key that another session had."""
    until = time.monotonic() + 5 * TTL_S
    while time.monotonic() < until:
        assert await coordinator.renew()
        if key in await coordinator.claim({key: ""}):
            return time.monotonic()
        await asyncio.sleep(0.05)
    raise AssertionError(f"{key} was never free")


async def test_a_session_lives_for_as_long_as_it_is_renewed(client: Clients) -> None:
    a, b = await client(), await client(client.long_s)
    await b.join()
    async with asyncio.timeout(100):
        while not await is_kept(a, "jobs/1", b):
            pass


async def is_kept(owner: Coordinator, key: str, other: Coordinator) -> bool:
    """Claim a key, renew for twice the time that a session lasts, and have it still. False: nothing ran here for so
    long that the session ended, as it should."""
    won = await joined(owner, key)
    for _ in range(10):
        believed_until_s = owner.believed_until_s
        if not await owner.renew():
            assert time.monotonic() >= believed_until_s - DRIFT_S
            return False
        assert await other.renew()
        await asyncio.sleep(TTL_S / 5)
    believed_until_s = owner.believed_until_s
    try:
        taken = await other.claim({key: ""})
        await other.release(taken)
        is_same = not taken and await owner.claim({key: ""}) == won
    except SessionLost:
        is_same = False
    assert is_same or time.monotonic() >= believed_until_s - DRIFT_S
    return is_same


async def test_a_session_that_is_not_renewed_ends_with_its_claims_and_not_before_it_believed(client: Clients) -> None:
    silent, other = await client(), await client(client.long_s)
    await other.join()
    first = await joined(silent, "jobs/1")
    await client.silence(silent)
    believed_until = silent.believed_until_s
    got_at = await free_at(other, "jobs/1")
    assert got_at >= believed_until - 0.05
    assert got_at <= believed_until + 2 * TTL_S
    second = await other.get("jobs/1")
    assert second is not None
    assert second.fence > first["jobs/1"]
    assert second.session == other.session


async def test_a_session_that_ended_is_noticed_and_joins_anew(client: Clients) -> None:
    silent, other = await client(), await client(client.long_s)
    await other.join()
    fence = (await joined(silent, "jobs/1"))["jobs/1"]
    was = silent.session
    await client.silence(silent)
    await free_at(other, "jobs/1")
    await client.heal(silent)
    assert not await silent.renew()
    assert silent.session is None
    with pytest.raises(SessionLost):
        await silent.claim({"jobs/2": ""})
    with pytest.raises(SessionLost):
        await silent.update("jobs/1", fence, "stale")
    assert list(await joined(silent, "jobs/1", "jobs/2")) == ["jobs/2"]
    assert silent.session != was


async def test_who_leaves_gives_up_its_claims_at_once_and_nothing_else(a: Coordinator, b: Coordinator) -> None:
    await a.claim({"jobs/1": "", "jobs/2": ""})
    await b.claim({"jobs/3": ""})
    await a.put("all/a", "here")
    await a.leave()
    assert a.session is None
    assert await b.keys("jobs") == {"jobs/3"}
    assert await b.keys("all") == {"all/a"}
    with pytest.raises(SessionLost):
        await a.claim({"jobs/1": ""})


async def test_joining_again_ends_the_session_before(a: Coordinator, b: Coordinator) -> None:
    was = a.session
    await a.claim({"jobs/1": ""})
    assert await a.join() != was
    assert await b.keys("jobs") == frozenset()


async def test_a_client_that_never_joined_can_read_and_write_what_lasts(client: Clients, a: Coordinator) -> None:
    await a.claim({"live/a": "address"})
    onlooker = await client()
    assert not await onlooker.renew()
    assert [entry.value for entry in await onlooker.read("live")] == ["address"]
    version = await onlooker.put("notice/x", "1")
    assert version is not None
    assert await onlooker.delete("notice/x", version)
    with pytest.raises(SessionLost):
        await onlooker.claim({"jobs/1": ""})


async def test_a_closed_client_leaves_no_claim(client: Clients, b: Coordinator) -> None:
    going = await client()
    await going.join()
    await going.claim({"jobs/1": ""})
    await going.close()
    assert await b.keys("jobs") == frozenset()
