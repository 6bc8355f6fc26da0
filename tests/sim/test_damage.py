"""Whatever a coordinator loses or holds wrongly, the cluster comes back by itself: every key, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rota.coordinators.memory import MemoryCoordinator
from rota.model.plan import RunFilter
from rota.sim.loop import SimClock
from tests.contract.coordinator.damage import MemoryDamage
from tests.contract.coordinator.layout import KINDS as BLOWS
from tests.contract.coordinator.layout import blows, faults
from tests.sim.test_placement import KINDS, Town, jobs, town

BEAT_S = 10.0
BACK_S = 60.0
"""How long it may take, in virtual time: two audits, a session, and a beat."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blow", BLOWS)
def test_a_cluster_comes_back_from_a_blow_to_any_key(kind: str, blow: str) -> None:
    async def main(place: Town) -> None:
        ids, damage = await start(place)
        client = watcher(place)
        for it in await blows(client, damage, kind, place.clock.wall(), BEAT_S):
            if it.kind == blow:
                await it.fall(damage, client)
                await comes_back(place, client, ids, str(it))

    town(main, kind=kind, beat_s=BEAT_S)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blow", BLOWS)
def test_a_cluster_comes_back_from_a_blow_to_all_keys_at_once(kind: str, blow: str) -> None:
    async def main(place: Town) -> None:
        ids, damage = await start(place)
        client = watcher(place)
        for it in await blows(client, damage, kind, place.clock.wall(), BEAT_S):
            if it.kind == blow:
                await it.fall(damage, client)
        await comes_back(place, client, ids, f"{blow} everything")

    town(main, kind=kind, beat_s=BEAT_S)


@pytest.mark.parametrize("kind", KINDS)
def test_a_cluster_comes_back_when_everything_is_lost_at_once(kind: str) -> None:
    async def main(place: Town) -> None:
        ids, damage = await start(place)
        await damage.wipe()
        await comes_back(place, watcher(place), ids, "wipe")

    town(main, kind=kind, beat_s=BEAT_S)


async def start(place: Town) -> tuple[range, MemoryDamage]:
    ids = await jobs(place, 6)
    for name in "ab":
        place.start(name, faults=2, alarm=5)
    await asyncio.sleep(30)
    return ids, MemoryDamage(watcher(place))


def watcher(place: Town) -> MemoryCoordinator:
    return MemoryCoordinator(place.store.realm, SimClock(place._loop, 7, name="watcher"), ttl_s=4.0)


async def comes_back(place: Town, client: MemoryCoordinator, ids: range, blow: str) -> None:
    """Everything is as it should be again, and every job fires in time."""
    left = ["not looked at yet"]
    for _ in range(int(BACK_S)):
        await asyncio.sleep(1)
        left = await faults(place.parts, client, place.store, ids, BEAT_S)
        if not left:
            break
    assert left == [], f"{blow}: {left}"
    since = place.clock.wall()
    await asyncio.sleep(5)
    runs = [it for it in await place.store.runs(RunFilter(limit=100)) if it.due_at > since]
    assert {it.job_id for it in runs} == set(ids), f"{blow}: only {runs} were fired"
    assert max((it.created_at - it.due_at).total_seconds() for it in runs) < 1, blow
