"""A tree whose supervisor was killed from outside is lost, whatever the agent does about it afterwards."""

import os
import signal

import psutil

from rota.execution.attempt_outcome import outcome_of_tree
from rota.execution.isolation.process_trees import ProcessTrees
from rota.model.states import Outcome
from rota.model.work import Bounds
from tests.execution.isolation.rig import wait_until
from tests.execution.isolation.trees import first_line, shell


async def test_to_kill_what_was_already_ended_from_outside_is_not_to_have_ended_it(process_trees: ProcessTrees) -> None:
    """Else that would be a failure of the task, and use a retry."""
    tree = await process_trees.start(shell("echo ready; exec sleep 1000"))
    await first_line(tree)
    supervisor = psutil.Process(tree.record().supervisor.pid)
    supervisor.kill()
    wait_until(lambda: _has_ended(supervisor), "the supervisor has ended")  # this loop has not seen it yet
    tree.kill()
    end = await tree.ended()
    assert end.supervisor_killed
    assert outcome_of_tree(end, Bounds(), "the program").outcome is Outcome.LOST
    os.close(tree.output)


async def test_to_kill_it_first_is_to_have_ended_it(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(shell("echo ready; exec sleep 1000"))
    await first_line(tree)
    tree.kill()
    tree.kill()
    end = await tree.ended()
    assert (end.supervisor_killed, end.signal) == (False, signal.SIGKILL)
    os.close(tree.output)


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
