"""A rolling upgrade: nodes of a release before and of this one in one cluster (docs/operations.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rota.model.trigger import Every
from tests.cluster.processes import ROOT
from tests.cluster.releases import THIS, installed, source_of
from tests.cluster.shift import a_shift
from tests.cluster.upgrading import CLOSED_S, PAUSED, TENANT, Upgrade, write_jobs
from tests.factories import a_definition, allow
from tests.servers.postgres import PostgresServer

JOBS = 6
FIRST_RELEASE = "a4f9f34"
"""0.1.0"""
STORES = ("sqlite", "postgres", "mariadb")


@pytest.mark.nightly
@pytest.mark.timeout(180)
async def test_the_commit_before_and_this_one_work_in_one_cluster(
    postgres_server: PostgresServer, tmp_path: Path
) -> None:
    before = source_of("HEAD~1", tmp_path / "before")
    async with postgres_server.fresh_database() as url, a_shift(url, tmp_path) as shift:
        rule = Every(every_s=1)
        await shift.control.jobs.apply([a_definition(f"job-{n}", rule=rule, overlap=allow(10**6)) for n in range(JOBS)])
        shift.node("old", settings={"PYTHONPATH": f"{before}:{ROOT}"})
        shift.node("new")
        await shift.start("old")
        await shift.start("new")

        async def both_fire() -> bool:
            shares = await shift.witness.shares()
            return shares["old"] > JOBS and shares["new"] > JOBS

        await shift.until_asked(both_fire, "both to fire", 60)
        shift.nodes["old"].kill()
        count = (await shift.witness.shares())["new"]

        async def goes_on() -> bool:
            return (await shift.witness.shares())["new"] > count + 3 * JOBS

        await shift.until_asked(goes_on, "the new one to take over", 60)
        await asyncio.sleep(1)
        rows = await shift.witness.ask("SELECT job_id, slot_at FROM rota_run WHERE cause = 'slot' ORDER BY 1, 2")
        by_job: dict[int, list[int]] = {}
        for job_id, slot_at in rows:
            by_job.setdefault(job_id, []).append(slot_at // 1_000_000)
        for slots in by_job.values():
            assert slots == list(range(slots[0], slots[-1] + 1)), "a slot is missing or there twice"
        assert shift.surprises() == []


@asynccontextmanager
async def an_empty(store: str, request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[str]:
    """The URL of a store without tables."""
    if store == "sqlite":
        yield f"sqlite:///{folder}/rota.db"
        return
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
        yield url


async def upgraded(url: str, folder: Path, *, last: str, mutant: str | None = None) -> list[str]:
    """Let the first release make a store and work on it, replace its nodes one by one; returns what was wrong then."""
    old = installed(FIRST_RELEASE, folder / "first")
    await old.rota(url, "store", "migrate")
    await old.rota(url, "job", "apply", str(write_jobs(folder / "jobs.yaml")))
    await old.rota(url, "job", "pause", PAUSED)
    await old.rota(url, "tenant", "set", TENANT, "--cap", "6")
    async with a_shift(url, folder, migrate=False) as shift:
        upgrade = Upgrade(shift, closed_s=CLOSED_S if mutant is None else 20)
        await upgrade.start("node-1", old)
        await upgrade.start("node-2", old)
        await upgrade.assign(old, 120)
        await upgrade.until_all_work("old nodes")
        await THIS.rota(url, "store", "migrate")

        await upgrade.stop("node-1")
        await upgrade.start("node-1", THIS, mutant=mutant)
        await upgrade.assign(old, 120)
        await upgrade.until_all_work("a new node beside an old one")

        if last == "killed":
            upgrade.kill("node-2")
        else:
            await upgrade.stop("node-2")
        await upgrade.start("node-2", THIS, mutant=mutant)
        await upgrade.assign(THIS, 30)
        await THIS.rota(url, "job", "resume", PAUSED)
        await upgrade.until_all_work("new nodes")

        await upgrade.finish(THIS)
        wrong = await upgrade.wrong()
        await THIS.rota(url, "store", "check")
        print(await THIS.rota(url, "cluster", "doctor"))  # it must not find an error
        await upgrade.stop("node-1")
        await upgrade.stop("node-2")
        return wrong


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("last", ["killed", "stopped"])
@pytest.mark.parametrize("store", STORES)
async def test_a_store_of_the_first_release_is_upgraded_node_by_node_with_nothing_lost_or_doubled(
    store: str, last: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with an_empty(store, request, tmp_path) as url:
        wrong = await upgraded(url, tmp_path, last=last)
    assert not wrong, "\n".join(wrong)


CAUGHT_BY = {
    "doubled_slots": "is there 2 times",
    "dropped_slots": "is missing",
    "forgotten_items": "state='ready'",
    "taken_items": "outcome='lost'",
}


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", CAUGHT_BY)
async def test_a_release_that_takes_over_in_a_wrong_way_is_caught(mutant: str, tmp_path: Path) -> None:
    """The test above has teeth."""
    last = "stopped" if mutant == "taken_items" else "killed"
    wrong = await upgraded(f"sqlite:///{tmp_path}/rota.db", tmp_path, last=last, mutant=mutant)
    caught = [it for it in wrong if CAUGHT_BY[mutant] in it]
    print(f"\nmutant {mutant}: {len(wrong)} wrong, e.g. {caught[:1]}")
    assert caught, wrong
