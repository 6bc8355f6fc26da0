"""P3: the switch kills a tree at its deadline, whatever the state of the agent."""

import signal
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.runners.boundary import BoundaryKind, DeadlinePassed, TreeSpec, Yard
from tests.runners.boundary.rig import KINDS, Rig, wait_until

LEASE_S = 4.0
HOLD_S = 6.0


def boottime() -> float:
    return SystemClock().boottime()


def sleeper(**changes: object) -> TreeSpec:
    return TreeSpec(**{"argv": ("/bin/sleep", "1000"), "env": {}, "label": "sleeper", **changes})


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_agent_loses_its_trees_at_the_deadline_and_those_that_hold_later(
    rig: Rig, kind: BoundaryKind
) -> None:
    shapes = ("plain", "stubborn") if kind is BoundaryKind.GROUP else ("plain", "double_fork", "storm", "stubborn")
    short = [rig.add(shape) for shape in shapes]
    long = [rig.add(shape, hold_s=HOLD_S) for shape in shapes]
    rig.start(kind, lease_s=LEASE_S)
    began = boottime()
    wait_until(lambda: boottime() > began + LEASE_S, "a lease has passed")
    assert all(tree.alive for tree in (*short, *long)), "renewals keep them alive"
    rig.signal(signal.SIGSTOP)
    wait_until(lambda: not any(tree.alive for tree in short), "the switch has killed them")
    assert all(tree.alive for tree in long)
    wait_until(lambda: not any(tree.alive for tree in long), "the switch has killed those that hold")
    rig.signal(signal.SIGCONT)
    assert all(rig.next_line()["switch"] for _ in rig.trees)


async def test_a_passed_deadline_starts_nothing(yard: Yard, folder: Path) -> None:
    yard.renew(boottime() - 0.001)
    with pytest.raises(DeadlinePassed, match="sleeper was not started: the deadline of this node has passed"):
        await yard.start(sleeper())
    assert [path.name for path in yard.folder.iterdir()] == ["agent.json"]


async def test_nothing_starts_before_the_first_renewal(kind: BoundaryKind, folder: Path) -> None:
    yard = await Yard.open(kind, state_dir=folder / "other", node="n1")
    with pytest.raises(DeadlinePassed):
        await yard.start(sleeper())
    await yard.close()


async def test_the_switch_says_that_it_was_the_switch(yard: Yard) -> None:
    tree = await yard.start(sleeper())
    yard.renew(boottime())
    end = await tree.ended()
    assert (end.killed_by_switch, end.signal, end.lost) == (True, signal.SIGKILL, False)


async def test_hold_moves_the_switch_but_not_the_start(yard: Yard) -> None:
    held = await yard.start(sleeper(hold_s=1000.0))
    brief = await yard.start(sleeper())
    yard.renew(boottime())
    assert (await brief.ended()).killed_by_switch
    assert held in yard.trees
    with pytest.raises(DeadlinePassed):
        await yard.start(sleeper(hold_s=1000.0))
