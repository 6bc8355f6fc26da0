"""S: bounds of memory, CPU time and processes hold, and the one that was met is named."""

import asyncio
import os
import signal

import pytest

from rota.errors import CannotStart
from rota.execution.isolation import cgroup
from rota.execution.isolation.process_trees import ProcessTrees
from rota.model.work import Bounds
from tests.execution.isolation.trees import all_output, python

HAS_MEMORY_GROUPS = cgroup.controlled("memory") is not None
HAS_PROCESS_GROUPS = cgroup.controlled("pids") is not None


async def test_running_out_of_memory_is_named(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(python("b = bytearray(200 << 20)", bounds=Bounds(memory_mb=40)))
    end = await tree.ended()
    output = await all_output(tree)
    if HAS_MEMORY_GROUPS:
        assert (end.oom, end.signal, end.exceeded) == (True, signal.SIGKILL, ("memory",))
    else:
        assert (end.oom, end.code) == (False, 1)
        assert "MemoryError" in output


async def test_memory_of_all_processes_of_a_tree_counts_together(process_trees: ProcessTrees) -> None:
    script = "import os, time\nfor _ in range(4): os.fork()\nb = b'x' * (8 << 20)\ntime.sleep(1000)"
    tree = await process_trees.start(python(script, bounds=Bounds(memory_mb=60)))
    if HAS_MEMORY_GROUPS:
        while tree in process_trees.live and not cgroup.counter(
            tree._order.limits.groups[0], "memory.oom_control", "oom_kill"
        ):
            await asyncio.sleep(0.01)
        tree.kill()
        assert (await tree.ended()).oom
    os.close(tree.output)


async def test_a_tree_within_its_memory_is_not_blamed(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(python("b = bytearray(1 << 20)", bounds=Bounds(memory_mb=200)))
    end = await tree.ended()
    assert (end.code, end.oom, end.exceeded) == (0, False, ())
    os.close(tree.output)


async def test_cpu_time_is_bounded_and_named(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(python("while True: pass", bounds=Bounds(cpu_s=0.5)))
    end = await tree.ended()
    assert (end.signal, end.exceeded) == (signal.SIGXCPU, ("cpu",))
    os.close(tree.output)


async def test_the_number_of_processes_is_bounded_and_named(process_trees: ProcessTrees) -> None:
    script = """
import os, time
for count in range(100):
    try:
        if os.fork() == 0:
            time.sleep(1000)
    except BlockingIOError:
        print(count, flush=True)
        break
"""
    tree = await process_trees.start(python(script, bounds=Bounds(processes_max=8)))
    end = await tree.ended()
    if HAS_PROCESS_GROUPS:
        assert (end.leftovers, end.exceeded) == (7, ("processes",))
        assert await all_output(tree) == "7\n"
    else:
        os.close(tree.output)


async def test_the_groups_of_a_tree_are_gone_with_it(process_trees: ProcessTrees) -> None:
    tree = await process_trees.start(python("", bounds=Bounds(memory_mb=100, processes_max=5)))
    groups = tree._order.groups
    await tree.ended()
    os.close(tree.output)
    await process_trees.close()
    assert not any(map(os.path.exists, groups))


async def test_a_program_that_cannot_start_leaves_no_group(process_trees: ProcessTrees, kind: object) -> None:
    with pytest.raises(CannotStart):
        await process_trees.start(python("", bounds=Bounds(memory_mb=100, processes_max=5, directory="/nowhere")))
    await process_trees.close()
    assert list(process_trees.folder.parent.iterdir()) == []
