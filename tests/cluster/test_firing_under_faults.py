"""Three nodes on one store; they are killed, frozen, cut off, lied to about commits, and one has a wrong clock, while
operators change the jobs: every slot has exactly one row and none is early (P1, P2)."""

from pathlib import Path

import pytest

from tests.cluster.nemesis import Faults
from tests.cluster.rig import Outcome, Scene, under_faults

SECONDS = 60
SLOTS_MIN = 5000
EFFECT = {"kills": 10, "swallowed": 10, "freezes": 4, "resets": 3, "cuts": 2, "changes": 100, "unknown": 1}
STORES = ("postgres", "mariadb")


def judge_whole(outcome: Outcome, scene: Scene, store: str) -> None:
    """A run passes if its faults had effect and nothing was lost, doubled, early or made up."""
    print(f"\nfiring under faults, {store}, {scene.seconds:g} s, seed {scene.seed}: {outcome}")
    scale = scene.seconds / SECONDS
    void = outcome.void(skew_s=scene.skew_s, **{name: int(low * scale) for name, low in EFFECT.items()})
    assert not void, f"void: {void}"
    assert outcome.clean, outcome.evidence()
    assert outcome.verdict.slots >= SLOTS_MIN * scale


@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("store", "seconds", "skew_s"),
    [("postgres", 40, 7), pytest.param("mariadb", SECONDS, -7, marks=pytest.mark.nightly)],
)
async def test_every_slot_has_one_run_under_faults(
    store: str, seconds: float, skew_s: float, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scene = Scene(seconds=seconds, seed=1, skew_s=skew_s)
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
        judge_whole(await under_faults(url, scene, tmp_path), scene, store)


EXECUTED_S = 30
EXECUTED_MIN = 500
"""Fewer slots than above: two cores execute less than they fire while nodes, with all their processes, keep dying."""


def an_executing_scene(seconds: float, seed: int, skew_s: float) -> Scene:
    faults = Faults(kill_s=4.0, freeze_s=6.0, swallow=0.04)
    after_s = tuple(range(8, int(seconds), 15))
    return Scene(
        seconds=seconds, seed=seed, skew_s=skew_s, jobs=50, herd=100, herd_after_s=after_s, faults=faults, execute=True
    )


def judge_executed(outcome: Outcome, scene: Scene, store: str) -> None:
    """A run passes if, besides, everything that was fired was started exactly once, and again only when it was lost."""
    print(f"\nfirst starts under faults, {store}, {scene.seconds:g} s, seed {scene.seed}: {outcome}")
    scale = scene.seconds / EXECUTED_S
    effect = {"kills": 3, "swallowed": 5, "freezes": 2, "resets": 2, "cuts": 1, "changes": 40}
    void = outcome.void(skew_s=scene.skew_s, **{name: int(low * scale) for name, low in effect.items()})
    assert not void, f"void: {void}"
    assert outcome.clean, outcome.evidence()
    assert outcome.starts is not None
    assert outcome.starts.owed >= EXECUTED_MIN * scale, "void: too little was fired"
    assert outcome.starts.restarts > 0 or outcome.counts["lost"], "void: nothing was lost with a node"


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("store", "skew_s"), [("postgres", 7), pytest.param("mariadb", -7, marks=pytest.mark.nightly)])
async def test_every_run_has_one_first_start_under_faults(
    store: str, skew_s: float, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scene = an_executing_scene(EXECUTED_S, 1, skew_s)
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
        judge_executed(await under_faults(url, scene, tmp_path), scene, store)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("store", STORES)
async def test_every_run_has_one_first_start_under_faults_for_five_minutes(
    store: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    scene = an_executing_scene(300, seed, 7 if seed % 2 else -7)
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
        judge_executed(await under_faults(url, scene, tmp_path), scene, store)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(2, 5))
@pytest.mark.parametrize("store", STORES)
async def test_every_slot_has_one_run_under_faults_for_ten_minutes(
    store: str, seed: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    faults = Faults(kill_s=1.2 * seed, swallow=0.3 / seed)
    scene = Scene(seconds=600, seed=seed, skew_s=7 if seed % 2 else -7, faults=faults)
    async with request.getfixturevalue(f"{store}_server").fresh_database() as url:
        judge_whole(await under_faults(url, scene, tmp_path), scene, store)
