"""Programs that do what kills them miss, or put their supervisor out of action: they are gone all the same."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from rota.execution.attempt_outcome import outcome_of_tree
from rota.execution.isolation import cgroup, clearing
from rota.execution.isolation.process_tree import ProcessTree, TreeEnd
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.isolation.promises import BoundaryKind
from rota.model.states import Outcome
from rota.model.work import Bounds
from tests.execution.isolation.rig import IS_ROOT, KINDS, Witnesses, wait_until
from tests.execution.isolation.trees import first_line, spec

END_S = 20.0
WITNESS = """
import ctypes, fcntl, os, sys, threading, time
folder = sys.argv[1]
def witness(name):
    file = open(f'{folder}/.{name}', 'w')
    fcntl.flock(file, fcntl.LOCK_EX)
    os.rename(f'{folder}/.{name}', f'{folder}/{name}')
    return file
"""
HEADLESS = """
kept = [witness(f'{os.getpid()}')]
if os.fork() == 0:
    kept = [witness(f'child-{os.getpid()}')]
threading.Thread(target=time.sleep, args=(1000,)).start()
print('ready', flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
ESCAPED = """
kept = [witness('main')]
open(sys.argv[2] + '/cgroup.procs', 'w').write('0')
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        kept = [witness('daemon')]
        time.sleep(1000)
    os._exit(0)
os.wait()
while not os.path.exists(f'{folder}/daemon'):
    time.sleep(0.01)
print('ready', flush=True)
time.sleep(1000)
"""
NESTED = """
kept = [witness('main')]
inner = sys.argv[2] + '/inner'
os.mkdir(inner)
open(inner + '/cgroup.procs', 'w').write('0')
threading.Thread(target=time.sleep, args=(1000,)).start()
print('ready', flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
CHILD = """
kept = [witness('main')]
if os.fork() == 0:
    os.setsid()
    kept = [witness('child')]
print('ready', flush=True)
time.sleep(1000)
"""


TRACER = """
import ctypes, sys, time
libc, pid = ctypes.CDLL(None, use_errno=True), int(sys.argv[1])
for request in (0x4206, 0x4207):  # PTRACE_SEIZE, PTRACE_INTERRUPT
    if libc.ptrace(request, pid, 0, 0) < 0:
        sys.exit(str(ctypes.get_errno()))
print('holds it', flush=True)
time.sleep(1000)
"""


@pytest.fixture
def witnesses(folder: Path) -> Witnesses:
    return Witnesses(folder / "witnesses")


async def started(process_trees: ProcessTrees, script: str, witnesses: Witnesses, *arguments: str) -> ProcessTree:
    argv = (sys.executable, "-I", "-S", "-c", WITNESS + script, str(witnesses.folder), *arguments)
    tree = await process_trees.start(spec(*argv))
    await first_line(tree)
    return tree


async def ended(tree: ProcessTree) -> TreeEnd:
    async with asyncio.timeout(END_S):
        return await tree.ended()


async def test_a_process_whose_first_thread_has_exited_is_killed(
    process_trees: ProcessTrees, witnesses: Witnesses
) -> None:
    tree = await started(process_trees, HEADLESS, witnesses)
    wait_until(lambda: witnesses.alive == 2, "both are there")
    tree.kill()
    await ended(tree)
    assert witnesses.alive == 0


async def test_a_process_whose_first_thread_has_exited_is_found_without_its_supervisor(
    process_trees: ProcessTrees, witnesses: Witnesses
) -> None:
    tree = await started(process_trees, HEADLESS, witnesses)
    wait_until(lambda: witnesses.alive == 2, "both are there")
    os.kill(tree.record().supervisor.pid, signal.SIGKILL)
    await ended(tree)
    assert witnesses.alive == 0


@pytest.mark.skipif(BoundaryKind.CGROUP not in KINDS, reason="this host has no cgroup v2 for us")
@pytest.mark.parametrize("script", [ESCAPED, NESTED], ids=["left its group", "made a group of its own"])
@pytest.mark.parametrize("kind", [BoundaryKind.CGROUP], indirect=True)
async def test_a_program_that_moves_to_another_group_is_killed(
    process_trees: ProcessTrees, witnesses: Witnesses, script: str
) -> None:
    """As far as its user may, because the group belongs to it."""
    place = cgroup.unified()
    if script is NESTED:
        argv = (sys.executable, "-I", "-S", "-c", WITNESS + script, str(witnesses.folder))
        tree = await process_trees.start(spec("/bin/sh", "-c", f'exec "$@" {place}/rota.$ROTA_TREE', "-", *argv))
        await first_line(tree)
    else:
        tree = await started(process_trees, script, witnesses, str(place))
    tree.kill()
    await ended(tree)
    assert witnesses.alive == 0
    wait_until(lambda: not Path(f"{place}/rota.{tree.name}").exists(), "its group is removed")


Hold = Callable[[int], None]


@pytest.fixture(params=["stopped", *(["traced"] if IS_ROOT else [])])
def hold(request: pytest.FixtureRequest) -> Iterator[Hold]:
    """What keeps a supervisor from its work. Only root may trace one: programs have no capability."""
    tracers: list[subprocess.Popen[bytes]] = []

    def trace(pid: int) -> None:
        tracers.append(subprocess.Popen([sys.executable, "-I", "-S", "-c", TRACER, str(pid)], stdout=subprocess.PIPE))
        assert tracers[-1].stdout is not None
        assert tracers[-1].stdout.readline() == b"holds it\n"

    yield trace if request.param == "traced" else lambda pid: os.kill(pid, signal.SIGSTOP)
    for tracer in tracers:
        with tracer:
            tracer.kill()


async def test_a_supervisor_that_is_held_up_is_noticed_and_its_tree_killed(
    process_trees: ProcessTrees, witnesses: Witnesses, hold: Hold
) -> None:
    tree = await started(process_trees, CHILD, witnesses)
    wait_until(lambda: witnesses.alive == 2, "both are there")
    hold(tree.record().supervisor.pid)
    end = await ended(tree)
    assert (end.supervisor_stopped, end.supervisor_killed) == (True, False)
    told = outcome_of_tree(end, Bounds(), "the program")
    assert (told.outcome, told.cause) == (Outcome.FAILED, "supervisor")
    stay = 1 if process_trees.kind is BoundaryKind.GROUP else 0
    assert witnesses.alive <= stay, "only a process group does not hold those who leave it"
    clearing.clear(tree.record())


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not BoundaryKind.NAMESPACE], indirect=True)
async def test_a_zygote_that_was_stopped_is_replaced(process_trees: ProcessTrees) -> None:
    """Tasks in a namespace cannot reach theirs."""
    before = process_trees.zygote_pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    async with asyncio.timeout(END_S):
        tree = await process_trees.start(spec("true"))
        assert (await tree.ended()).code == 0
    assert process_trees.zygote_pid != before
    assert not psutil.pid_exists(before)
