"""P10: no process of an attempt outlives its boundary, as far as the table of promises says so."""

import signal
from pathlib import Path

import pytest

from rota.execution.isolation import sweeping
from rota.execution.isolation.promises import BoundaryKind, promise
from tests.execution.isolation.rig import IS_ROOT, KINDS, NOBODY, SHAPES, STAY_IN_GROUP, USERS, Rig, wait_until

EACH = 10 // len(USERS)
STRONG = [kind for kind in KINDS if kind is not BoundaryKind.GROUP]


def fill(rig: Rig, shapes: tuple[str, ...] = SHAPES, each: int = EACH) -> None:
    """`each` trees of every shape for every user: 60 with the defaults."""
    for shape in shapes:
        for user in USERS:
            for _ in range(each):
                rig.add(shape, user)


@pytest.mark.parametrize("kind", STRONG)
def test_nobody_survives_the_sigkill_of_the_agent(rig: Rig, kind: BoundaryKind) -> None:
    fill(rig)
    rig.start(kind)
    assert len(rig.alive) == len(rig.trees) >= 60
    rig.kill()
    wait_until(lambda: not rig.alive, "all are gone", lambda: rig.alive)


@pytest.mark.parametrize("kind", KINDS)
def test_nobody_survives_the_sigkill_of_the_supervisors_under_a_living_agent(rig: Rig, kind: BoundaryKind) -> None:
    fill(rig)
    rig.start(kind)
    assert len(rig.alive) == len(rig.trees) >= 60
    rig.kill_supervisors()
    wait_until(lambda: not rig.alive, "all are gone", lambda: rig.alive)
    assert all(rig.next_line()["lost"] for _ in rig.trees)


@pytest.mark.parametrize("kind", KINDS)
def test_what_survives_when_agent_and_supervisors_are_killed_is_cleared_by_a_sweep(
    rig: Rig, kind: BoundaryKind
) -> None:
    fill(rig, each=2)
    rig.start(kind)
    rig.signal(signal.SIGSTOP)  # so that it does not see their end
    rig.kill_supervisors()
    rig.kill()
    if kind is BoundaryKind.NAMESPACE:
        wait_until(lambda: not rig.alive, "the kernel has killed all")
    else:
        assert set(rig.alive) >= {label for label in rig.trees if "storm" not in label}
    swept = sweeping.sweep_now(rig.state_dir)
    assert rig.alive == {}
    assert [former.empty for former in swept.formers] == [promise(kind).full]


@pytest.mark.skipif(BoundaryKind.GROUP not in KINDS, reason="needs Linux")
def test_a_process_group_loses_whoever_leaves_it_and_a_sweep_finds_them(rig: Rig) -> None:
    fill(rig)
    rig.start(BoundaryKind.GROUP)
    rig.kill()
    leavers = {label for label in rig.trees if label.partition("-")[0] in ("setsid", "double_fork")}
    stayers = {label for label in rig.trees if label.partition("-")[0] in STAY_IN_GROUP}
    wait_until(lambda: not stayers & rig.alive.keys(), "those in their group are gone")
    assert set(rig.alive) >= leavers


@pytest.mark.parametrize("kind", STRONG)
def test_a_large_storm_and_a_chain_of_forks_are_caught(rig: Rig, kind: BoundaryKind) -> None:
    rig.add("storm", STORM_LIVE="50")
    chains = [rig.add("chain", user) for user in USERS]
    rig.start(kind)
    rig.kill()
    wait_until(lambda: not rig.alive, "all are gone", lambda: rig.alive)
    assert all(chain.seen >= 2 for chain in chains)


@pytest.mark.skipif(not IS_ROOT, reason="as root, another user is tried too")
def test_an_agent_without_root_gets_the_strongest_boundary_that_it_may_make(folder: Path) -> None:
    rig = Rig(folder / "rig", user=NOBODY)
    try:
        for shape in SHAPES:
            for _ in range(2):
                rig.add(shape)
        rig.start(None)
        assert rig.facts["kind"] in (BoundaryKind.NAMESPACE, BoundaryKind.GUARDIAN)
        rig.kill()
        wait_until(lambda: not rig.alive, "all are gone", lambda: rig.alive)
    finally:
        rig.close()
