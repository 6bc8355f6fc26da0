"""Rates under load, while one of two executors is killed and restarted: by the tasks' own lines no more attempts start
in any period than the rate allows, and yet the rate is used (S2.18)."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path

import pytest

from tests.checkers.executing import START, Line
from tests.checkers.rates import SECOND_NS, too_many
from tests.cluster.shift import a_shift

MAX, PERIOD_S = 20, 4.0
SETTINGS = {"ROTA_EXECUTOR_SEATS": "16", "ROTA_DISPATCH_IDLE_S": "0.03"}
LATE_LINE = 0.02
"""The part of a period by which the first line of a task may come after its start."""


async def under_load(url: str, folder: Path, seconds: float, seed: int) -> list[Line]:
    """The starts of the tasks while one node is killed and restarted, again and again, at instants of the seed."""
    rng = random.Random(seed)
    async with a_shift(url, folder, settings=SETTINGS) as shift:
        await shift.control.limits.set_quota("acme", rate=(MAX, PERIOD_S))
        await shift.start("node-0", "node-1")
        await shift.assign("acme", round(MAX * seconds / PERIOD_S), info={"ms": 200}, concurrency=1)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(rng.uniform(0.5, 3.0))
            shift.nodes["node-0"].kill_agent()
            await asyncio.sleep(rng.choice([0.0, 0.0, 2.5]))
            await shift.start("node-0")
        await shift.until_idle(seconds + 60)
        return [line for line in shift.watcher.lines if line.kind == START]


async def judge(url: str, folder: Path, seconds: float, seed: int) -> int:
    """Says how many starts of later attempts there were."""
    lines = await under_load(url, folder, seconds, seed)
    starts = [line.mono_ns for line in lines]
    found = too_many(starts, MAX, PERIOD_S, LATE_LINE)
    again = sum(line.attempt > 1 for line in lines)
    took_s = (max(starts) - min(starts)) / SECOND_NS
    print(f"\n{len(starts)} starts ({again} of later attempts) in {took_s:.1f} s at {MAX} in {PERIOD_S:g} s: {found}")
    assert not found, found[:5]
    assert len(starts) > MAX, "void: the rate was not reached"
    return again


async def test_a_rate_holds_for_starts_while_an_executor_is_killed_and_restarted(
    postgres_url: str, tmp_path: Path
) -> None:
    await judge(postgres_url, tmp_path, 5, 3)


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(1, 8))
async def test_a_rate_holds_for_starts_while_an_executor_is_killed_again_and_again(
    seed: int, postgres_url: str, tmp_path: Path
) -> None:
    assert await judge(postgres_url, tmp_path, 12, seed), "void: nothing was lost with the killed node"
