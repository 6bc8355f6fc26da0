"""What is built on the verbs: lock, election, queue, notices (S0.2, S0.3, S3.24, S4.3, S4.11)."""

from __future__ import annotations

import asyncio
import time

from rota.clock import SystemClock
from rota.coordinators.recipes import LEADER, Election, Lock, Queue, notify, on_notice
from rota.ports import Coordinator
from tests.contract.coordinator.conftest import DRIFT_S, TTL_S, Clients, in_a_session
from tests.contract.coordinator.test_listen import Ear


async def test_a_lock_is_held_by_one_at_a_time_and_its_number_rises(a: Coordinator, b: Coordinator) -> None:
    inside, fences = 0, []

    async def worker(lock: Lock) -> None:
        nonlocal inside
        for _ in range(3):
            async with lock:
                inside += 1
                assert inside == 1
                fences.append(lock.fence)
                await asyncio.sleep(0.01)
                inside -= 1

    locks = [Lock(it, SystemClock(), "one") for it in (a, b)]
    async with asyncio.timeout(60):
        await asyncio.gather(*(worker(lock) for lock in (*locks, locks[0])), _renewing(a, b, lambda: len(fences) < 9))
    assert len(fences) == 9
    assert fences == sorted(fences)


async def _renewing(a: Coordinator, b: Coordinator, going_on: object) -> None:
    assert callable(going_on)
    while going_on():
        await a.renew()
        await b.renew()
        await asyncio.sleep(0.2)


async def test_a_lock_may_be_taken_again_by_the_task_that_has_it(a: Coordinator, b: Coordinator) -> None:
    mine, theirs = Lock(a, SystemClock(), "one"), Lock(b, SystemClock(), "one")
    async with mine:
        first = mine.fence
        async with mine:
            assert mine.fence == first
        assert await b.keys("lock") == {"lock/one"}
        waiting = asyncio.create_task(theirs.__aenter__())
        await asyncio.sleep(0.1)
        assert not waiting.done()
    async with asyncio.timeout(10):
        await waiting
    assert theirs.fence > first
    await theirs.__aexit__(None, None, None)
    assert await a.keys("lock") == frozenset()


async def test_a_lock_whose_holder_dies_goes_to_another(client: Clients, a: Coordinator) -> None:
    dying = await client()
    held = Lock(dying, SystemClock(), "one")
    await in_a_session(dying, held.__aenter__)
    await client.silence(dying)
    async with asyncio.timeout(5 * TTL_S):
        lock = Lock(a, SystemClock(), "one")
        entering = asyncio.create_task(lock.__aenter__())
        while not entering.done():
            await a.renew()
            await asyncio.sleep(0.1)
    assert lock.fence > held.fence
    await lock.__aexit__(None, None, None)


async def test_one_leads_until_it_resigns_or_dies(client: Clients, a: Coordinator, b: Coordinator) -> None:
    first, second = Election(a, "host-a:7700"), Election(b, "host-b:7700")
    assert await first.campaign()
    assert not await second.campaign()
    assert await first.campaign()
    leader = await second.leader()
    assert leader is not None
    assert (leader.key, leader.value) == (LEADER, "host-a:7700")
    term = first.fence
    await first.resign()
    assert await second.campaign()
    assert second.fence is not None
    assert term is not None
    assert second.fence > term
    await b.leave()
    assert await first.campaign()


async def test_an_entry_of_a_queue_is_taken_by_one_and_done_once(a: Coordinator, b: Coordinator) -> None:
    queues = [Queue(it, SystemClock(), "events") for it in (a, b)]
    names = {await queues[0].put(f"value {n}") for n in range(20)}
    taken = [entry for some in await asyncio.gather(*(it.take(20) for it in queues)) for entry in some]
    assert {entry.name for entry in taken} == names
    assert len(taken) == 20
    assert {entry.value for entry in taken} == {f"value {n}" for n in range(20)}
    assert await queues[1].waiting() == frozenset()
    assert len(await a.keys("taken/events")) == 20
    for entry in taken:
        for queue in queues:
            await queue.done(entry)
    assert await a.keys("queue/events") == frozenset()
    await a.leave()
    await b.leave()
    assert await a.keys("taken/events") == frozenset()


async def test_an_entry_whose_taker_dies_comes_back(client: Clients, a: Coordinator) -> None:
    dying = await client()
    theirs, queue = (Queue(it, SystemClock(), "events") for it in (dying, a))
    await theirs.put("x", "one")
    assert len(await in_a_session(dying, lambda: theirs.take(5))) == 1
    believed_until_s = dying.believed_until_s
    taken = await queue.take(5)
    assert not taken or time.monotonic() >= believed_until_s - DRIFT_S, "it was taken from the living"
    await client.silence(dying)
    async with asyncio.timeout(5 * TTL_S):
        while not taken:
            await a.renew()
            await asyncio.sleep(0.1)
            taken = await queue.take(5)
    assert [it.name for it in taken] == ["one"]
    assert await queue.done(taken[0])
    assert not await queue.done(taken[0])


class Overtaken(Queue):
    """Between its look and its claim somebody else takes an entry and is done with it."""

    async def waiting(self) -> frozenset[str]:
        names = await super().waiting()
        for entry in await Queue(self._coordinator, self._clock, "events").take(1):
            await self.done(entry)
        return names


async def test_nobody_keeps_in_hand_what_is_done_already(a: Coordinator) -> None:
    queue = Overtaken(a, SystemClock(), "events")
    await queue.put("x", "one")
    assert await queue.take(5) == []
    assert await a.keys("taken/events") == frozenset()


async def test_an_entry_of_a_queue_that_was_put_twice_is_there_once(a: Coordinator, b: Coordinator) -> None:
    for it in (a, b):
        await Queue(it, SystemClock(), "events").put("x", "same")
    assert len(await Queue(a, SystemClock(), "events").take(5)) == 1


async def test_a_notice_wakes_whoever_listens_to_its_topic(a: Coordinator, b: Coordinator) -> None:
    ear = Ear()
    on_notice(a, "drain", ear)
    await ear.quiet(a)
    for _ in range(3):
        await notify(b, SystemClock(), "drain")
        await ear.woken(a)
