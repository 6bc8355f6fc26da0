"""The firing test has teeth: known wrong ways to fire are caught by the same rig and the same judge."""

from pathlib import Path

import pytest

from tests.cluster.nemesis import Faults
from tests.cluster.rig import Scene, under_faults

CAUGHT_BY = {
    "advance_first": {"lost"},
    "node_clock": {"early"},
    "no_revision_check": {"phantom", "lost", "foreign"},
    "pruned_dedup": {"doubled", "lost"},
}
SECONDS = 7


async def catch(mutant: str, url: str, folder: Path) -> None:
    skew_s = -7 if mutant == "pruned_dedup" else 7
    faults = Faults(swallow=0.25, freeze_s=3)
    scene = Scene(seconds=SECONDS, seed=1, skew_s=skew_s, herd=0, changers=6, calm_s=2.5, faults=faults, mutant=mutant)
    outcome = await under_faults(url, scene, folder)
    print(f"\nmutant {mutant}: {outcome.verdict}")
    found = {kind for kind, count in outcome.verdict.kinds.items() if count}
    assert found & CAUGHT_BY[mutant], f"{mutant} was not caught: {outcome}"


@pytest.mark.parametrize("mutant", CAUGHT_BY)
async def test_a_wrong_way_to_fire_is_caught(mutant: str, postgres_url: str, tmp_path: Path) -> None:
    await catch(mutant, postgres_url, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", CAUGHT_BY)
async def test_a_wrong_way_to_fire_is_caught_on_mariadb(mutant: str, mariadb_url: str, tmp_path: Path) -> None:
    await catch(mutant, mariadb_url, tmp_path)
