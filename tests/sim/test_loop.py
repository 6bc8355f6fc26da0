"""Virtual time: it jumps, it repeats, and it says when nothing can happen any more."""

from __future__ import annotations

import asyncio

import pytest

from rota.sim.loop import EPOCH, Deadlock, SimClock, SimLoop, simulate


def test_hours_pass_in_moments() -> None:
    async def main(loop: SimLoop) -> float:
        clock = SimClock(loop, 1)
        await clock.sleep(4 * 3600)
        async with asyncio.timeout(3600):
            await asyncio.sleep(3599)
        assert clock.wall() - EPOCH == (clock.wall() - EPOCH).__class__(seconds=clock.monotonic())
        return clock.monotonic()

    assert simulate(main, seed=1) == pytest.approx(4 * 3600 + 3599)


def trace_of(seed: int) -> list[int]:
    async def main(loop: SimLoop) -> list[int]:
        clock, trace = SimClock(loop, seed), []

        async def worker(number: int) -> None:
            for _ in range(5):
                trace.append(number)
                await clock.sleep(clock.chance() if number % 2 else 0)

        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(worker(number))
        return trace

    return simulate(main, seed=seed)


def test_a_seed_repeats_itself_and_seeds_differ() -> None:
    traces = [trace_of(seed) for seed in range(20)]
    assert traces == [trace_of(seed) for seed in range(20)]
    assert len({tuple(trace) for trace in traces}) > 15


def test_a_loop_in_which_nothing_can_happen_is_a_deadlock() -> None:
    async def main(loop: SimLoop) -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        simulate(main, seed=1)


def test_whoever_waits_for_less_than_a_float_can_tell_apart_gets_on() -> None:
    async def main(loop: SimLoop) -> None:
        await asyncio.sleep(3600)
        began, rounds = loop.time(), 0
        while loop.time() == began:
            rounds += 1
            assert rounds < 1000
            await asyncio.sleep(1e-14)

    simulate(main, seed=1)


def test_tokens_and_chances_come_from_the_seed() -> None:
    async def main(loop: SimLoop) -> tuple[str, float]:
        clock = SimClock(loop, 7, name="a")
        return clock.token(), clock.chance()

    assert simulate(main, seed=7) == simulate(main, seed=7)
