"""P3: the switch kills a tree at its deadline, whatever the state of the agent."""

import signal
from pathlib import Path

import pytest

from rota.clock import SystemClock
from rota.errors import DeadlinePassed
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.isolation.tree_order import TreeSpec
from tests.execution.isolation.rig import KINDS, Rig, wait_until

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


async def test_a_passed_deadline_starts_nothing(process_trees: ProcessTrees, folder: Path) -> None:
    process_trees.renew(boottime() - 0.001)
    with pytest.raises(DeadlinePassed, match="sleeper was not started: the deadline of this node has passed"):
        await process_trees.start(sleeper())
    assert [path.name for path in process_trees.folder.iterdir()] == ["agent.json"]


async def test_nothing_starts_before_the_first_renewal(kind: BoundaryKind, folder: Path) -> None:
    process_trees = await ProcessTrees.open(kind, state_dir=folder / "other", node="n1")
    with pytest.raises(DeadlinePassed):
        await process_trees.start(sleeper())
    await process_trees.close()


async def test_the_switch_says_that_it_was_the_switch(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(sleeper())
    process_trees.renew(boottime())
    end = await tree.ended()
    assert (end.killed_by_switch, end.signal, end.supervisor_killed) == (True, signal.SIGKILL, False)


async def test_hold_moves_the_switch_but_not_the_start(process_trees: ProcessTrees) -> None:
    held = await process_trees.start(sleeper(hold_s=1000.0))
    brief = await process_trees.start(sleeper())
    process_trees.renew(boottime())
    assert (await brief.ended()).killed_by_switch
    assert held in process_trees.live
    with pytest.raises(DeadlinePassed):
        await process_trees.start(sleeper(hold_s=1000.0))
