"""What a coordinator that lost a part of its own tables does with the rest."""

from __future__ import annotations

import asyncio

import pytest

from rota.coordinators.sql.coordinator import SqlCoordinator
from rota.ports import Coordinator
from tests.contract.coordinator.damage import SESSION, MemoryDamage, SqlDamage, damage_of

on_stores = pytest.mark.parametrize("client", ["memory", "sqlite", "postgresql", "mariadb"], indirect=True)


@on_stores
async def test_a_claim_whose_session_was_lost_is_free_for_others(a: Coordinator, b: Coordinator) -> None:
    await a.claim({"live/a": "here", "jobs/1": "a"})
    await lose_sessions(a)
    assert not await a.renew()
    await a.join()
    assert "live/a" in await a.claim({"live/a": "again"})
    await b.renew()
    await b.join()
    assert "jobs/1" in await b.claim({"jobs/1": "b"})


@on_stores
async def test_what_is_put_over_a_claim_whose_session_was_lost_lasts(a: Coordinator, b: Coordinator) -> None:
    await a.claim({"notice/drain": "held"})
    await lose_sessions(a)
    await b.renew()
    assert await b.put("notice/drain", "told") is not None
    entry = await b.get("notice/drain")
    assert entry is not None
    assert (entry.value, entry.session) == ("told", None)


@on_stores
async def test_all_that_was_lost_is_claimed_anew(a: Coordinator, b: Coordinator) -> None:
    first = await a.claim({"live/a": "here"})
    await damage_of(a).wipe()
    assert not await a.renew()
    for it in (a, b):
        await it.renew()
        await it.join()
    won = await asyncio.gather(*(it.claim({"live/a": "again"}) for it in (a, b)))
    assert sorted(len(it) for it in won) == [0, 1]
    assert first.keys() == {"live/a"}


@pytest.mark.parametrize("client", ["sqlite", "postgresql", "mariadb"], indirect=True)
async def test_a_session_that_a_clock_set_back_put_out_of_reach_is_over(a: Coordinator, b: Coordinator) -> None:
    """Who renews goes on. Of one that is gone, nobody waits until the clock has caught up."""
    damage = damage_of(a)
    await a.claim({"live/a": "here", "jobs/1": "a"})
    await b.claim({"live/b": "here"})
    for it in (a, b):
        await damage.replace(f"{SESSION}{it.session}", "an hour ahead")
    assert await b.renew()
    assert [it.key for it in await b.read("live")] == ["live/b"]
    assert "jobs/1" in await b.claim({"jobs/1": "b"})
    assert not await a.renew()


async def lose_sessions(coordinator: Coordinator) -> None:
    damage = damage_of(coordinator)
    if isinstance(coordinator, SqlCoordinator):
        assert isinstance(damage, SqlDamage)
        await damage.lose_sessions()
    else:
        assert isinstance(damage, MemoryDamage)
        damage._realm.sessions.clear()
