"""A start on an idle cluster waits for no poll: the node of these tests never looks by itself, and starts what another
process has triggered all the same. That is a condition, not a time: without the word it would wait for a day."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.model.job import JobName
from rota.model.states import RunState
from rota.storage.sql.wake_sockets import WakeSockets
from rota.storage.sql.word import WordSender
from rota.wiring import open_store
from tests.cluster.processes import NodeProcess
from tests.factories import MANUAL, a_definition

STORES = ("sqlite", "postgres", "mariadb")
PATIENT_S = 60.0
REST_S = 3.0
"""After so long it has looked at all that it looks at when it comes."""
UNTOLD_S = 3.0


@asynccontextmanager
async def a_resting_node(
    store: str, request: pytest.FixtureRequest, folder: Path
) -> AsyncIterator[tuple[Control, JobName]]:
    """A client of a cluster with one node that rests, and a job to be triggered."""
    if store == "sqlite":
        async with _rests(f"sqlite:///{folder}/rota.db", folder) as found:
            yield found
        return
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url, _rests(url, folder) as found:
        yield found


@asynccontextmanager
async def _rests(url: str, folder: Path) -> AsyncIterator[tuple[Control, JobName]]:
    client = open_store(url, SystemClock(), actor="client")
    await client.migrate()
    control, job = Control(client, SystemClock()), a_definition(rule=MANUAL)
    await control.jobs.apply([job])
    node = NodeProcess("resting", url, folder, program=("tests.cluster.resting_node",))
    node.start()
    try:
        async with asyncio.timeout(PATIENT_S):
            while not (await client.nodes()).nodes:
                await asyncio.sleep(0.1)
        await asyncio.sleep(REST_S)
        yield control, job.full_name
    finally:
        node.kill()
        await client.close()


async def succeeded(control: Control, run_id: int) -> None:
    while (await control.runs.detail(run_id)).run.state is not RunState.SUCCEEDED:
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("store", STORES)
async def test_what_another_process_triggers_starts_though_nobody_looks(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with a_resting_node(store, request, tmp_path) as (control, job):
        for _ in range(3):
            run = await control.jobs.trigger(job, {})
            async with asyncio.timeout(PATIENT_S):
                await succeeded(control, run.id)


@pytest.mark.parametrize("store", ["sqlite", "mariadb"])
async def test_with_the_word_left_out_it_does_not(store: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """The test above has teeth."""
    async with a_resting_node(store, request, tmp_path) as (control, job):
        with patch.object(WakeSockets, "tell"), patch.object(WordSender, "tell"):
            run = await control.jobs.trigger(job, {})
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(UNTOLD_S):
                await succeeded(control, run.id)
