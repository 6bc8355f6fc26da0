"""A rolling upgrade: nodes of the commit before and of this one in one cluster (docs/failure.md)."""

from __future__ import annotations

import asyncio
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from rota.model.trigger import Every
from tests.cluster.processes import ROOT
from tests.cluster.shift import a_shift
from tests.factories import a_definition, allow
from tests.servers.postgres import PostgresServer

JOBS = 6


def source_of(commit: str, folder: Path) -> Path:
    """The product as it was, in a folder of its own."""
    packed = subprocess.run(["git", "archive", commit, "src/rota"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


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
