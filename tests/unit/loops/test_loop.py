"""Loops in virtual time: what a fault costs, and what an outage costs all loops of a node together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime

import structlog

from rota.errors import StoreUnavailable
from rota.loops.loop import Loop
from rota.loops.outage import Outage
from rota.virtual import VirtualClock, VirtualLoop

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
CAPTURED = structlog.testing.capture_logs


class Broken(Loop):
    """Fails in every round; asks a server if it has one."""

    rounds = 0

    async def once(self) -> float:
        self.rounds += 1
        raise ValueError("a record that nobody can read")


class Asking(Loop):
    """Asks a server that is away until `back_s`."""

    def __init__(self, loop: VirtualLoop, clock: VirtualClock, back_s: float) -> None:
        super().__init__(clock)
        self._loop, self._back_s = loop, back_s
        self.rounds = 0
        self.answered_s = 0.0

    async def ask(self) -> None:
        if self._loop.time() < self._back_s:
            raise StoreUnavailable("connection refused")

    async def once(self) -> float:
        self.rounds += 1
        await self.ask()
        self.answered_s = self.answered_s or self._loop.time()
        return 1.0


def in_virtual_time(loop: VirtualLoop, work: Coroutine[object, object, None]) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(work)


def test_a_wake_does_not_cut_the_rest_after_a_fault() -> None:
    loop = VirtualLoop()

    async def work() -> None:
        broken = Broken(VirtualClock(loop, 1, EPOCH))
        running = asyncio.create_task(broken.run())
        for _ in range(1500):
            broken.wake()
            await asyncio.sleep(0.01)
        broken.stop()
        await running
        assert broken.rounds < 25, f"{broken.rounds} failed rounds in 15 s"

    in_virtual_time(loop, work())


def test_faults_are_told_ever_more_rarely() -> None:
    loop = VirtualLoop()

    async def work() -> None:
        broken = Broken(VirtualClock(loop, 1, EPOCH))
        running = asyncio.create_task(broken.run())
        await asyncio.sleep(600)
        broken.stop()
        await running

    with CAPTURED() as lines:
        in_virtual_time(loop, work())
    assert 5 < len(lines) < 12


def test_a_loop_that_rests_after_a_fault_stops_at_once() -> None:
    loop = VirtualLoop()

    async def work() -> None:
        broken = Broken(VirtualClock(loop, 1, EPOCH))
        running = asyncio.create_task(broken.run())
        await asyncio.sleep(30)
        broken.stop()
        told_s = loop.time()
        await running
        assert loop.time() == told_s

    in_virtual_time(loop, work())


OUTAGE = {"store.lost", "store.still_lost", "store.recovered"}


def test_an_outage_is_asked_about_by_one_and_told_when_it_begins_and_ends() -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop, 1, EPOCH)

    async def work() -> None:
        asking = [Asking(loop, clock, back_s=1000.0) for _ in range(12)]
        outage = Outage(clock, "store", asking[0].ask)
        watching = asyncio.create_task(outage.watch())
        running = [asyncio.create_task(it.run([outage])) for it in asking]
        await asyncio.sleep(1005)
        assert max(it.answered_s for it in asking) < 1002.0, "all go on soon after it is back"
        assert sum(it.rounds for it in asking) < 12 * 12, "they ask only now and then by themselves"
        for it in asking:
            it.stop()
        await asyncio.gather(*running)
        watching.cancel()

    with CAPTURED() as lines:
        in_virtual_time(loop, work())
    told = [line["event"] for line in lines if line["event"] in OUTAGE]
    assert told[0] == "store.lost"
    assert told[-1] == "store.recovered"
    assert 3 <= told.count("store.still_lost") <= 5
    assert len(lines) < 30


def test_one_unlucky_call_is_no_outage() -> None:
    loop = VirtualLoop()
    clock = VirtualClock(loop, 1, EPOCH)

    async def work() -> None:
        unlucky, lucky = Asking(loop, clock, back_s=0.5), Asking(loop, clock, back_s=0.0)
        outage = Outage(clock, "store", lucky.ask)
        watching = asyncio.create_task(outage.watch())
        running = asyncio.create_task(unlucky.run([outage]))
        await asyncio.sleep(5)
        assert unlucky.answered_s
        unlucky.stop()
        await running
        watching.cancel()

    with CAPTURED() as lines:
        in_virtual_time(loop, work())
    assert not {line["event"] for line in lines} & OUTAGE
    assert lines[0]["event"] == "store.unavailable"
