"""Claims: one owner, numbers that only rise, batches (S0.6, S0.36, docs/coordinators.md)."""

from __future__ import annotations

import asyncio

import pytest

from rota.errors import InvalidInput
from rota.ports import Coordinator
from tests.contract.coordinator.conftest import Clients


async def test_one_of_many_wins_each_key(client: Clients) -> None:
    clients = [await client(client.long_s) for _ in range(4)]
    for it in clients:
        await it.join()
    wanted = {f"jobs/{n}": "" for n in range(60)}
    won = await asyncio.gather(*(it.claim(wanted) for it in clients))
    assert sorted(key for fences in won for key in fences) == sorted(wanted)
    entries = await clients[0].read("jobs")
    owners = {it.session: fences for it, fences in zip(clients, won, strict=True)}
    assert all(owners[entry.session][entry.key] == entry.fence for entry in entries)


async def test_fences_rise_with_every_owner(a: Coordinator, b: Coordinator) -> None:
    fences = []
    for owner in (a, b, b, a):
        fence = (await owner.claim({"jobs/1": ""}))["jobs/1"]
        fences.append(fence)
        await owner.release({"jobs/1": fence})
    assert fences == sorted(set(fences))
    assert fences[0] > 0


async def test_a_claim_that_is_repeated_is_the_same_claim(a: Coordinator) -> None:
    first = await a.claim({"jobs/1": "one"})
    again = await a.claim({"jobs/1": "two", "jobs/2": "two"})
    assert again["jobs/1"] == first["jobs/1"]
    assert {entry.key: entry.value for entry in await a.read("jobs")} == {"jobs/1": "one", "jobs/2": "two"}


async def test_only_the_owner_releases_and_only_with_its_fence(a: Coordinator, b: Coordinator) -> None:
    fence = (await a.claim({"jobs/1": ""}))["jobs/1"]
    await b.release({"jobs/1": fence})
    await a.release({"jobs/1": fence + 1})
    assert await b.keys("jobs") == {"jobs/1"}
    await a.release({"jobs/1": fence, "jobs/2": fence})
    assert await b.keys("jobs") == frozenset()
    await a.release({"jobs/1": fence})


async def test_an_old_fence_does_not_release_a_newer_claim(a: Coordinator) -> None:
    old = (await a.claim({"jobs/1": ""}))["jobs/1"]
    await a.release({"jobs/1": old})
    new = (await a.claim({"jobs/1": ""}))["jobs/1"]
    await a.release({"jobs/1": old})
    assert await a.claim({"jobs/1": ""}) == {"jobs/1": new}


async def test_only_the_owner_changes_the_value_of_a_claim(a: Coordinator, b: Coordinator) -> None:
    fence = (await a.claim({"live/a": "x=0"}))["live/a"]
    before = await b.get("live/a")
    assert await a.update("live/a", fence, "x=1")
    assert not await b.update("live/a", fence, "x=2")
    assert not await a.update("live/a", fence + 1, "x=3")
    assert not await a.update("live/nobody", fence, "x=4")
    after = await b.get("live/a")
    assert before is not None
    assert after is not None
    assert (after.value, after.fence, after.session) == ("x=1", fence, a.session)
    assert after.version > before.version


async def test_a_claim_of_another_can_be_ended_and_its_owner_finds_out(a: Coordinator, b: Coordinator) -> None:
    """A name that is taken by a new incarnation fences the old one."""
    fence = (await a.claim({"live/name": "old"}))["live/name"]
    entry = await b.get("live/name")
    assert entry is not None
    assert not await b.delete("live/name", entry.version + 1)
    assert await b.delete("live/name", entry.version)
    newer = (await b.claim({"live/name": "new"}))["live/name"]
    assert newer > fence
    assert not await a.update("live/name", fence, "old")
    await a.release({"live/name": fence})
    assert [it.value for it in await a.read("live")] == ["new"]


async def test_large_batches_are_shared_out_and_given_back(a: Coordinator, b: Coordinator) -> None:
    wanted = {f"jobs/{n}": "" for n in range(2000)}
    halves = await asyncio.gather(a.claim(wanted), b.claim(dict(reversed(wanted.items()))))
    assert sorted(key for won in halves for key in won) == sorted(wanted)
    assert await a.keys("jobs") == wanted.keys()
    await a.release(halves[0])
    assert await b.keys("jobs") == halves[1].keys()


async def test_nothing_is_claimed_by_an_empty_batch(a: Coordinator) -> None:
    assert await a.claim({}) == {}
    await a.release({})


@pytest.mark.parametrize("key", ["", "/jobs", "jobs/", "a//b", "a b", "ä", ".", "..", "a/../b", "x" * 101, "a/b/c/d/e"])
async def test_what_is_no_key_is_refused(a: Coordinator, key: str) -> None:
    with pytest.raises(InvalidInput, match="key"):
        await a.claim({key: ""})
    with pytest.raises(InvalidInput, match="key"):
        await a.put(key, "")
