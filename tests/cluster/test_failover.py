"""A store that fails over under load: PostgreSQL's primary is killed and its standby promoted, a Galera member dies.
Jobs fire and items are dispatched all the time. Nothing is lost, nothing is done twice, no cap is exceeded; with an
asynchronous standby, what the database lost is named (P1, P6, P12)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.ports import Store
from rota.wiring import open_store
from tests.cluster.failing_over import NAPS_MS, TENANT, Kept, Report, scene, under_failover
from tests.cluster.processes import SHORT
from tests.cluster.rig import Rig, a_rig
from tests.cluster.shift import a_shift
from tests.conftest import installed
from tests.contract.backup import Backup
from tests.servers.galera import GaleraCluster
from tests.servers.ports import LOOPBACK
from tests.servers.postgres import USER, PostgresServer, PostgresStandby, wait_for_standby
from tests.servers.proxy import FaultProxy
from tests.servers.sql import run

MINUTES_S, EVERY_S = 300.0, 20.0
"""Of the nightly forms."""
LOST_MIN = 3
"""An asynchronous standby lacks at least so many runs and ends when it is promoted."""
REPLY_S = 0.3
"""After so long a commit that somebody else has seen was acknowledged to whoever made it."""


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Store]:
    store = open_store(url, SystemClock(), actor="operator")
    try:
        yield store
    finally:
        await store.close()


class Pair:
    """A primary and a standby that change places. The standby gets everything through a proxy."""

    def __init__(self, primary: PostgresServer, stack: AsyncExitStack, mode: str) -> None:
        self.primary = primary
        self._stack = stack
        self._mode = mode
        self._port: int | None = None
        self.lost: list[Kept] = []
        """What the promoted standbys lacked."""

    async def follow(self) -> None:
        """Give the primary its standby; then, if asked for, let commits wait for it."""
        self.proxy = await self._stack.enter_async_context(FaultProxy(LOOPBACK, self.primary.port))
        self.standby = PostgresStandby(self.primary, port=self._port, through=self.proxy.port)
        await asyncio.to_thread(self._stack.enter_context, self.standby)
        admin = self.primary.url("postgres")
        if self._mode == "sync":
            await run(admin, "ALTER SYSTEM SET synchronous_standby_names = '*'")
            await run(admin, "SELECT pg_reload_conf()")
        await wait_for_standby(admin, self._mode)

    async def fail_over(self, rig: Rig) -> None:
        """Kill the primary and promote the standby; an asynchronous one has not got the latest."""
        before = await self._fall_behind(rig) if self._mode == "async" else None
        await asyncio.to_thread(self.primary.kill)
        self.proxy.abort()
        await asyncio.to_thread(self.standby.promote)
        if before is not None:
            self.lost.append(before.without(await Kept.of(rig)))

    async def change_places(self) -> None:
        """Let a new standby take the place of the old primary."""
        await asyncio.to_thread(self.primary.close)
        self._port, self.primary = self.primary.port, self.standby
        await self.follow()

    async def _fall_behind(self, rig: Rig) -> Kept:
        """Cut the standby off until the primary has acknowledged more than it, and given out something that runs;
        returns what the primary has."""
        had = await Kept.of(rig)
        await self.proxy.black_hole()
        cut_ns = time.monotonic_ns()

        def has_begun() -> bool:
            long_ns = time.monotonic_ns() - round(NAPS_MS[0] * 1.5e6)
            its = rig.watcher.executing().values()
            return any(it.tenant == TENANT and cut_ns < it.mono_ns < long_ns for it in its)

        async with asyncio.timeout(60):
            while not has_begun() or min(map(len, (await Kept.of(rig)).without(had))) < LOST_MIN:
                await asyncio.sleep(0.1)
        has = await Kept.of(rig)
        await asyncio.sleep(REPLY_S)
        return has

    def url(self, database: str) -> str:
        hosts = ",".join(f"{LOOPBACK}:{it.port}" for it in (self.primary, self.standby))
        return f"postgresql://{USER}@{hosts}/{database}?target_session_attrs=read-write"


@asynccontextmanager
async def a_pair(mode: str) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        pair = Pair(stack.enter_context(installed(PostgresServer)), stack, mode)
        await pair.follow()
        yield pair


async def promotions(mode: str, folder: Path, *, seconds: float, every_s: float) -> Report:
    async with a_pair(mode) as pair:
        url = pair.url(await pair.primary.create_database())
        async with a_rig(url, scene(seconds), folder) as rig:
            how = {"seconds": seconds, "every_s": every_s}
            report = await under_failover(
                f"postgresql, {mode} standby",
                rig,
                lambda: pair.fail_over(rig),
                mend=pair.change_places,
                lost=pair.lost,
                **how,
            )
            ((raised,),) = await rig.witness.ask(
                "SELECT count(*) FROM rota_event WHERE kind = 'store.generation_raised'"
            )
            assert raised == len(report.fired_s)
            return report


async def dying_members(folder: Path, *, seconds: float, every_s: float) -> Report:
    """The members die in turn, but for the last, where the witness looks; each comes back. Each node has a member of
    its own that it goes to first."""
    with installed(GaleraCluster) as cluster:
        database = await cluster.members[0].create_database()
        urls = [cluster.url(database, first=n) for n in range(3)]
        turn = 0

        async def fail_over() -> None:
            await asyncio.to_thread(cluster.members[turn % 2].kill)

        async def mend() -> None:
            nonlocal turn
            await asyncio.to_thread(cluster.members[turn % 2].start)
            turn += 1

        seen_at = cluster.members[2].url(database)
        async with a_rig(urls[0], scene(seconds), folder, seen_at=seen_at, node_urls=urls) as rig:
            how = {"seconds": seconds, "every_s": every_s}
            return await under_failover("galera of three", rig, fail_over, mend=mend, lost=[], **how)


@pytest.mark.timeout(240)
@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_a_standby_that_is_promoted_loses_nothing_or_it_is_named(tmp_path: Path, mode: str) -> None:
    """A synchronous standby has everything; what an asynchronous one lacks, nodes and clients name."""
    report = await promotions(mode, tmp_path, seconds=12, every_s=5)
    report.told()
    if mode == "async":
        (lost,) = report.lost
        assert min(map(len, lost)) >= LOST_MIN, "void: the database lost hardly anything"


async def test_what_runs_and_the_store_does_not_know_ends_before_it_is_given_again(
    postgres_url: str, tmp_path: Path
) -> None:
    """The store goes back to when the second item was ready. The first, which it knows, is not disturbed."""
    async with a_shift(postgres_url, tmp_path, settings=SHORT) as shift, opened(postgres_url) as store:
        await shift.control.limits.set_quota("acme", cap=1)
        await shift.start("node-0", "node-1")
        first, second = (await shift.assign("acme", 2, info={"ms": 0, "gate": "go"})).items
        await shift.until(lambda: len(shift.watcher.executing()) == 1, "one of them to execute")
        (begun,) = shift.watcher.executing()
        known, unknown = (first.id, second.id) if begun == first.id else (second.id, first.id)

        async def is_begun() -> bool:
            return (await shift.witness.ask(f"SELECT state FROM rota_queue WHERE item_id = {known}"))[0][0] == "running"

        await shift.until_asked(is_begun, "its start to be written")
        backup = await Backup.of(store)
        await shift.control.limits.set_quota("acme", cap=2)
        await shift.until(lambda: len(shift.watcher.executing()) == 2, "both to execute")
        beats = dict(await shift.witness.ask("SELECT node_id, beat FROM rota_lease"))

        async def is_renewed() -> bool:
            now = dict(await shift.witness.ask("SELECT node_id, beat FROM rota_lease"))
            return all(now[it] > beat + 1 for it, beat in beats.items())

        await shift.until_asked(is_renewed, "renewals that the store will lose")
        await backup.restore(store)
        await shift.until(lambda: unknown not in shift.watcher.executing(), "what the store does not know to end")
        assert known in shift.watcher.executing()
        shift.watcher.open_gate("go")
        await shift.until_idle(60)
        outcomes = {
            it: [(row["attempt"], row["outcome"]) for row in await shift.attempts(it)] for it in (known, unknown)
        }
        assert outcomes == {known: [(1, "succeeded")], unknown: [(1, "succeeded")]}, "one end for each, with one number"
        assert (len(shift.starts(known)), len(shift.starts(unknown))) == (1, 2)
        assert shift.judged().clean
        named = await shift.witness.ask("SELECT data FROM rota_event WHERE kind = 'store.lost'")
        assert any(f'"{unknown}.1"' in data for (data,) in named)


@pytest.mark.timeout(240)
async def test_a_galera_member_that_dies_takes_nothing_with_it(tmp_path: Path) -> None:
    (await dying_members(tmp_path, seconds=12, every_s=5)).told()


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["sync", "async"])
async def test_five_minutes_of_promotions_lose_nothing_or_it_is_named(tmp_path: Path, mode: str) -> None:
    report = await promotions(mode, tmp_path, seconds=MINUTES_S, every_s=EVERY_S)
    report.told()
    assert len(report.fired_s) >= 5


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_five_minutes_of_dying_galera_members_lose_nothing(tmp_path: Path) -> None:
    report = await dying_members(tmp_path, seconds=MINUTES_S, every_s=EVERY_S)
    report.told()
    assert len(report.fired_s) >= 5
