"""The simulation sees a missing lock: transactions are under way at the same time, and a lock left out shows."""

from __future__ import annotations

import pytest

from rota.sim import interleaving
from rota.sim.history import Counts
from rota.sim.interleaving import InterleavedStore
from rota.sim.loop import SimClock, SimLoop, dice, simulate
from tests.contract.lock_scenes import SCENES, Locked, without_the_lock

SEEDS = 60


@pytest.fixture(autouse=True)
def no_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaving, "FAULTY", 0.0)


def played(scene: Locked, seed: int) -> Counts:
    counts = Counts()

    async def play(loop: SimLoop) -> None:
        store = InterleavedStore(SimClock(loop, seed, name="store"), loop, dice(seed, "store"), counts)
        await scene.scene(store, store)

    simulate(play, seed=seed)
    return counts


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_what_a_lock_guards_holds_in_every_order(scene: Locked) -> None:
    assert sum(played(scene, seed).lock_waits for seed in range(SEEDS)) > 0, "void: nobody waited for anybody"


@pytest.mark.parametrize("scene", SCENES, ids=str)
def test_a_lock_that_is_left_out_shows(scene: Locked) -> None:
    with without_the_lock(scene.rank):
        shown = 0
        for seed in range(SEEDS):
            try:
                played(scene, seed)
            except AssertionError:
                shown += 1
    print(f"{scene}: {shown} of {SEEDS} seeds")
    assert shown > 0
