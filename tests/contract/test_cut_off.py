"""A server that is cut off, refuses or resets: the store says so in bounded time and recovers by itself (P12)."""

from __future__ import annotations

import asyncio

import pytest

from rota.backends.sql import database
from rota.core.fire import Fire
from rota.errors import StoreUnavailable
from rota.model.plan import RunFilter
from tests.contract.conftest import Line
from tests.factories import a_due_job


async def answers(line: Line) -> bool:
    try:
        await line.store.now()
    except StoreUnavailable:
        return False
    return True


async def is_back(line: Line) -> None:
    async with asyncio.timeout(10):
        while not await answers(line):
            await asyncio.sleep(0.02)


async def test_a_black_hole_is_noticed_and_survived(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "PATIENCE_S", 0.5)
    job = await a_due_job(line.truth)
    await line.proxy.black_hole()
    for verb in (line.store.now(), line.store.fire([job.id], Fire())):
        with pytest.raises(StoreUnavailable):
            async with asyncio.timeout(8):
                await verb
    line.proxy.abort()
    await line.proxy.pass_through()
    await is_back(line)
    await line.store.fire([job.id], Fire())
    assert len(await line.truth.runs(RunFilter())) == 1


async def test_refused_and_reset_connections_are_survived(line: Line) -> None:
    job = await a_due_job(line.truth)
    line.proxy.abort()
    await line.proxy.refuse()
    for _ in range(8):  # more than there are connections to be found broken
        assert not await answers(line)
    with pytest.raises(StoreUnavailable):
        await line.store.fire([job.id], Fire())
    await line.proxy.pass_through()
    await is_back(line)
    done = await line.store.fire([job.id], Fire())
    assert len(done.runs) == 1


async def test_a_reset_in_the_middle_of_a_transaction_changes_nothing(line: Line) -> None:
    job = await a_due_job(line.truth)

    class Cut(Fire, frozen=True):
        def decide(self, facts):  # type: ignore[no-untyped-def]
            line.proxy.abort()
            return Fire().decide(facts)

    with pytest.raises(StoreUnavailable):
        await line.store.fire([job.id], Cut())
    assert await line.truth.runs(RunFilter()) == ()
    assert (await line.truth.named([job.definition.full_name]))[0] == job


async def test_a_frozen_holder_of_a_lock_does_not_hold_up_others_for_long(line: Line) -> None:
    """M8: the server ends a transaction that is idle for too long."""
    job = await a_due_job(line.truth)
    loop, held = asyncio.get_running_loop(), asyncio.Event()
    cuts: list[asyncio.Task[None]] = []

    class Hold(Fire, frozen=True):
        """Cut the line while the lock is held, and do not come back."""

        def decide(self, facts):  # type: ignore[no-untyped-def]
            cuts.append(loop.create_task(line.proxy.black_hole()))
            held.set()
            return Fire().decide(facts)

    holder = asyncio.create_task(line.store.fire([job.id], Hold()))
    await held.wait()
    assert not (await line.truth.fire([job.id], Fire())).runs, "void: the lock was not held"
    async with asyncio.timeout(12):
        while not (done := await line.truth.fire([job.id], Fire())).runs:
            await asyncio.sleep(0.05)
    assert len(done.runs) == 1
    holder.cancel()
    await asyncio.gather(holder, return_exceptions=True)
    line.proxy.abort()
    await line.proxy.pass_through()
