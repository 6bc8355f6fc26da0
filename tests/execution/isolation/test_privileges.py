"""What a program may do on its host: what its user may, less what makes root, and nothing to those who hold it."""

import asyncio
import os
import sys

import pytest

from rota.execution.isolation import kernel
from rota.execution.isolation.process_trees import ProcessTrees
from rota.execution.isolation.promises import BoundaryKind
from rota.model.work import Bounds
from tests.execution.isolation.rig import PYTHON, USERS
from tests.execution.isolation.trees import all_output, python, spec

STATUS = """
import os
for line in open('/proc/self/status'):
    if line.startswith(('Cap', 'NoNewPrivs')):
        print(*line.split())
print('Uid', os.getuid())
"""
ALIEN = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, deed):
    try:
        deed()
    except OSError as error:
        print(name, error.strerror)
    else:
        print(name, 'worked')
def ptrace(pid):
    if libc.ptrace(0x4206, pid, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
pid = int(sys.argv[1])
attempt('environ', lambda: open(f'/proc/{pid}/environ', 'rb').read())
attempt('mem', lambda: open(f'/proc/{pid}/mem', 'rb'))
attempt('maps', lambda: open(f'/proc/{pid}/maps', 'rb').read())
attempt('fd', lambda: open(f'/proc/{pid}/fd/0'))
attempt('cwd', lambda: os.readlink(f'/proc/{pid}/cwd'))
attempt('ptrace', lambda: ptrace(pid))
attempt('signal', lambda: os.kill(pid, signal.SIGSTOP))
"""


@pytest.mark.parametrize("user", USERS)
async def test_a_program_has_no_capability_and_can_gain_none(process_trees: ProcessTrees, user: str | None) -> None:
    tree = await process_trees.start(spec(PYTHON, "-I", "-S", "-c", STATUS, bounds=Bounds(user=user)))
    said = dict(line.split() for line in (await all_output(tree)).replace(":", "").splitlines())
    assert said.pop("NoNewPrivs") == "1"
    assert said.pop("Uid") == ("65534" if user else str(os.geteuid()))
    if os.geteuid() != 0:
        del said["CapBnd"]  # an ordinary user cannot empty it, and gains nothing from it
    assert said == dict.fromkeys(said, "0000000000000000")
    assert {"CapEff", "CapPrm", "CapInh", "CapAmb"} <= set(said)


async def test_a_program_that_root_owns_gets_no_capability_by_executing_another(process_trees: ProcessTrees) -> None:
    inner = f"import os; os.execv({sys.executable!r}, [{sys.executable!r}, '-I', '-S', '-c', {STATUS!r}])"
    said = await all_output(await process_trees.start(python(inner)))
    assert "CapEff: 0000000000000000" in said


@pytest.mark.parametrize("whom", ["agent", "zygote", "supervisor"])
async def test_a_program_cannot_read_trace_or_stop_those_who_hold_it(process_trees: ProcessTrees, whom: str) -> None:
    """By the numbers that they have in the agent's PID namespace; inside a namespace there is no such process, or it is
    one of the program's own tree."""
    waiting = await process_trees.start(python("import time; time.sleep(1000)"))
    pids = {"agent": os.getpid(), "zygote": process_trees.zygote_pid, "supervisor": waiting.record().supervisor.pid}
    tree = await process_trees.start(python(ALIEN, str(pids[whom])))
    said = dict(line.split(maxsplit=1) for line in (await all_output(tree)).splitlines())
    if not kernel.can_confine() and process_trees.kind is not BoundaryKind.NAMESPACE:
        del said["signal"]  # then a program can signal whoever is the same user; a stopped one is noticed
    assert "worked" not in said.values(), said
    assert len(said) >= 6


async def test_a_program_cannot_trace_or_stop_its_own_supervisor(process_trees: ProcessTrees) -> None:
    script = ALIEN.replace("int(sys.argv[1])", "os.getppid()")
    tree = await process_trees.start(python(script))
    async with asyncio.timeout(20):
        said = dict(line.split(maxsplit=1) for line in (await all_output(tree)).splitlines())
        end = await tree.ended()
    if not kernel.can_confine():
        del said["signal"]  # an init never gets it, and one that is stopped is noticed
    assert "worked" not in said.values(), said
    assert end.code == 0
