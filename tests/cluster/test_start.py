"""Nodes start whatever others are doing: together on an empty store, or beside one that froze in the middle of it."""

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from rota.cli.faults import STORE_REFUSED
from tests.cluster.processes import NodeProcess
from tests.cluster.witness import Witness

STORES = ("postgres", "mariadb")
START_S = 60.0
MIGRATION_LOCK = {
    "postgres": "SELECT pg_advisory_lock(7700770077)",
    "mariadb": "SELECT GET_LOCK(CONCAT('rota.', DATABASE()), 0)",
}


async def start(nodes: Sequence[NodeProcess]) -> None:
    """Start nodes and wait until each says that it has."""
    for node in nodes:
        node.start()
    try:
        async with asyncio.timeout(START_S):
            while not all("node.started" in node.log for node in nodes):
                await asyncio.sleep(0.05)
    finally:
        for node in nodes:
            node.kill()


@pytest.mark.parametrize("store", STORES)
async def test_three_nodes_start_together_on_an_empty_store_and_beside_a_frozen_one(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
        await start([NodeProcess(f"node-{n}", url, tmp_path) for n in range(3)])
        async with Witness(url) as frozen:
            await frozen.ask(MIGRATION_LOCK[store])
            await start([NodeProcess("late", url, tmp_path)])


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("wrong", ["user", "database"])
async def test_a_node_that_its_store_lets_not_in_ends_with_an_error(
    store: str, wrong: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
        bad = re.sub(r"//[^@]*@", "//nobody:guessed@", url) if wrong == "user" else re.sub(r"/[^/]*$", "/nowhere", url)
        node = NodeProcess("node-0", bad, tmp_path)
        node.start()
        try:
            assert await asyncio.to_thread(node.ended, START_S) == STORE_REFUSED, node.log
        finally:
            node.kill()
        assert "refuses this connection" in node.log
        assert "guessed" not in node.log
