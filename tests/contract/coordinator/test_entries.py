"""Entries that last: compare-and-set, folders, values (S0.5, S4.2, docs/coordinators.md)."""

from __future__ import annotations

import asyncio

import pytest

from rota.errors import InvalidInput
from rota.model.entry import VALUE_MAX
from rota.ports import Coordinator


async def test_an_entry_is_written_over_the_version_that_was_read(a: Coordinator, b: Coordinator) -> None:
    first = await a.put("plan", "1", version=0)
    assert first is not None
    assert await b.put("plan", "2", version=0) is None
    second = await b.put("plan", "2", version=first)
    assert second is not None
    assert second > first
    assert await a.put("plan", "3", version=first) is None
    entry = await a.get("plan")
    assert entry is not None
    assert (entry.key, entry.value, entry.version, entry.session, entry.fence) == ("plan", "2", second, None, 0)


async def test_without_a_version_the_last_writer_wins(a: Coordinator, b: Coordinator) -> None:
    first = await a.put("notice/x", "1")
    second = await b.put("notice/x", "2")
    assert first is not None
    assert second is not None
    assert second > first


async def test_one_of_many_writers_over_the_same_version_wins(a: Coordinator, b: Coordinator) -> None:
    version = await a.put("plan", "0")
    done = await asyncio.gather(*(it.put("plan", str(n), version=version) for n in range(10) for it in (a, b)))
    assert len([it for it in done if it is not None]) == 1


async def test_an_entry_is_deleted_only_in_the_version_that_was_read(a: Coordinator, b: Coordinator) -> None:
    version = await a.put("plan", "1")
    assert version is not None
    newer = await b.put("plan", "2")
    assert newer is not None
    assert not await a.delete("plan", version)
    assert await a.delete("plan", newer)
    assert not await a.delete("plan", newer)
    assert await b.get("plan") is None


async def test_versions_rise_across_a_deletion(a: Coordinator) -> None:
    first = await a.put("plan", "1")
    assert first is not None
    assert await a.delete("plan", first)
    second = await a.put("plan", "2", version=0)
    assert second is not None
    assert second > first
    assert not await a.delete("plan", first)


async def test_an_entry_that_lasts_outlives_its_writer_and_cannot_be_claimed(a: Coordinator, b: Coordinator) -> None:
    await a.put("all/a", "here")
    await a.leave()
    assert await b.claim({"all/a": "mine"}) == {}
    assert [entry.value for entry in await b.read("all")] == ["here"]


async def test_a_claim_is_not_written_over(a: Coordinator, b: Coordinator) -> None:
    await a.claim({"jobs/1": "a"})
    assert await b.put("jobs/1", "b") is None
    assert await b.put("jobs/1", "b", version=0) is None


async def test_a_folder_shows_what_is_directly_in_it(a: Coordinator) -> None:
    await a.put("live", "the plan")
    await a.claim({"live/b": "2", "live/a": "1", "live/a.b-c_D": "3"})
    await a.put("live/kept", "4")
    await a.put("live/kept/below", "5")
    await a.put("lives/x", "6")
    assert [(it.key, it.name, it.value) for it in await a.read("live")] == [
        ("live/a", "a", "1"),
        ("live/a.b-c_D", "a.b-c_D", "3"),
        ("live/b", "b", "2"),
        ("live/kept", "kept", "4"),
    ]
    assert await a.keys("live") == {"live/a", "live/a.b-c_D", "live/b", "live/kept"}
    assert await a.read("nothing") == ()
    assert await a.keys("nothing") == frozenset()
    assert await a.get("nothing") is None
    plan = await a.get("live")
    assert plan is not None
    assert plan.value == "the plan"


async def test_values_come_back_as_they_were(a: Coordinator, b: Coordinator) -> None:
    texts = ["", "零 Ω 🙂", '{"a": "\\"b\\""}', "line\nline", "x" * 200_000]
    for number, text in enumerate(texts):
        await a.put(f"values/{number}", text)
    fences = await a.claim({f"claims/{number}": text for number, text in enumerate(texts)})
    assert len(fences) == len(texts)
    assert [entry.value for entry in await b.read("values")] == texts
    assert [entry.value for entry in await b.read("claims")] == texts


async def test_a_value_that_no_coordinator_takes_is_refused(a: Coordinator) -> None:
    with pytest.raises(InvalidInput, match="value"):
        await a.put("plan", "x" * (VALUE_MAX + 1))
    assert await a.get("plan") is None
