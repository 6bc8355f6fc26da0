"""Sessions: they live while they are renewed, and take their claims with them (S0.4, S0.48, S3.24, S4.1)."""

from __future__ import annotations

import asyncio
import time

import pytest

from rota.errors import SessionLost
from rota.ports import Coordinator
from tests.contract.coordinator.conftest import TTL_S, Clients


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
    a, b = await client(), await client()
    await a.join()
    await b.join()
    won = await a.claim({"jobs/1": "a"})
    for _ in range(10):
        assert await a.renew()
        assert await b.renew()
        await asyncio.sleep(TTL_S / 5)
    assert await b.claim({"jobs/1": "b"}) == {}
    assert await a.claim({"jobs/1": "a"}) == won


async def test_a_session_that_is_not_renewed_ends_with_its_claims_and_not_before_it_believed(client: Clients) -> None:
    silent, other = await client(), await client()
    await silent.join()
    await other.join()
    first = await silent.claim({"jobs/1": "silent"})
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
    silent, other = await client(), await client()
    was = await silent.join()
    await other.join()
    fence = (await silent.claim({"jobs/1": "silent"}))["jobs/1"]
    await client.silence(silent)
    await free_at(other, "jobs/1")
    await client.heal(silent)
    assert not await silent.renew()
    assert silent.session is None
    with pytest.raises(SessionLost):
        await silent.claim({"jobs/2": ""})
    with pytest.raises(SessionLost):
        await silent.update("jobs/1", fence, "stale")
    assert await silent.join() != was
    assert await silent.claim({"jobs/1": ""}) == {}
    assert list(await silent.claim({"jobs/2": ""})) == ["jobs/2"]


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
