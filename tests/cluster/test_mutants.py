"""The firing test has teeth: known wrong ways to fire are caught by the same rig and the same judge."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cluster.nemesis import Faults
from tests.cluster.rig import Scene, under_faults
from tests.servers.mariadb import MariadbDatabases
from tests.servers.postgres import PostgresDatabases

CAUGHT_BY = {
    "advance_first": {"lost"},
    "node_clock": {"early"},
    "no_revision_check": {"phantom", "lost", "foreign"},
    "pruned_dedup": {"doubled", "lost"},
}
WITHOUT_CRASH = {"node_clock", "no_revision_check"}
"""Wrong while nothing crashes: a node that dies often on a slow machine has no time to show it."""
SECONDS = 7
SEEDS = (1, 2, 3)
"""A crash has to meet a node in the moment in which it is wrong, which a slow machine may need a second scene for."""


async def catch(mutant: str, server: PostgresDatabases | MariadbDatabases, folder: Path) -> None:
    skew_s = -7 if mutant == "pruned_dedup" else 7
    faults = Faults(swallow=0.25, freeze_s=3)
    if mutant in WITHOUT_CRASH:
        faults = replace(faults, kill_s=0)
    for seed in SEEDS:
        scene = Scene(
            seconds=SECONDS, seed=seed, skew_s=skew_s, herd=0, changers=6, calm_s=2.5, faults=faults, mutant=mutant
        )
        place = folder / str(seed)
        place.mkdir()
        async with server.fresh_database() as url:
            outcome = await under_faults(url, scene, place)
        print(f"\nmutant {mutant}: {outcome.verdict}")
        if any(outcome.verdict.kinds[kind] for kind in CAUGHT_BY[mutant]):
            return
    pytest.fail(f"{mutant} was not caught: {outcome}")


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param("advance_first", marks=pytest.mark.nightly),  # the simulation catches these two every time
        pytest.param("pruned_dedup", marks=pytest.mark.nightly),
        "node_clock",
        "no_revision_check",
    ],
)
async def test_a_wrong_way_to_fire_is_caught(mutant: str, postgres_server: PostgresDatabases, tmp_path: Path) -> None:
    await catch(mutant, postgres_server, tmp_path)


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.parametrize("mutant", CAUGHT_BY)
async def test_a_wrong_way_to_fire_is_caught_on_mariadb(
    mutant: str, mariadb_server: MariadbDatabases, tmp_path: Path
) -> None:
    await catch(mutant, mariadb_server, tmp_path)
