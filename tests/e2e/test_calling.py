"""A program sends calls to a running node, and gets their results: without a word of configuration but the store."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.e2e.rig import Home

APP = """
import rota

app = rota.App()


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task(retries=1)
def breaks(word: str) -> None:
    def inner():
        raise ValueError(word)
    inner()


@app.task
async def later(a: int) -> int:
    return a


@app.task(memory_mb=200, env={"COLOUR": "blue"})
def surroundings() -> dict[str, object]:
    import os
    here = rota.current()
    return {"colour": os.environ["COLOUR"], "job": here.job, "params": here.params}
"""

PROGRAM = """
import asyncio, json, time
import rota
from shop import add, app, breaks, later, surroundings

told = {}
told["plain"] = add(1, 2)
handle = add.delay(3, 4)
told["delay"] = handle.result(timeout=30)
told["map"] = add.map(range(50), range(50)).result(timeout=30)
told["once"] = len({add.options(key="order-1").delay(1, 1).id for _ in range(3)})

async def awaits():
    first = await later.delay_async(5)
    return await asyncio.gather(first, add.delay(1, 1), *(await add.map_async([1], [2])))

told["await"] = asyncio.run(awaits())
try:
    breaks.delay("no paper").result(timeout=30)
except rota.TaskFailed as error:
    told["failed"] = str(error)
    told["attempts"] = app.client.run(error.run_id).attempts
told["surroundings"] = surroundings.delay().result(timeout=30)
with app.client:
    told["inside"] = add.delay(8, 9).result(30)
began = time.monotonic()
nobody = rota.App(project="nobody", store=None)

@nobody.task
def work() -> None: ...

try:
    work.delay().result(timeout=1)
except TimeoutError as error:
    told["nobody"] = str(error)
print(json.dumps(told))
"""


@pytest.fixture
def program(home: Home) -> Home:
    home.write("shop.py", APP)
    home.write("program.py", PROGRAM)
    return home


def run(home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=home.path, env=home.env, capture_output=True, text=True, timeout=100)


def test_a_program_sends_calls_to_a_node_and_gets_their_results(program: Home) -> None:
    with program.start("up", "shop.py") as node:
        node.says("node.started ")
        done = run(program, "program.py")
        assert done.returncode == 0, done.stderr + node.log
    told = json.loads(done.stdout)
    assert told["plain"] == 3
    assert told["delay"] == 7
    assert told["map"] == [2 * n for n in range(50)]
    assert told["once"] == 1
    assert told["await"] == [5, 2, 3]
    first, _, trace = told["failed"].partition("\n\n")
    assert first.startswith("breaks failed (run ")
    assert first.endswith("): ValueError: no paper")
    assert trace.startswith("Traceback (most recent call last):")
    assert "in inner" in trace
    assert "rota/execution" not in trace
    assert told["attempts"] == 2
    assert told["surroundings"] == {"colour": "blue", "job": "default/default/surroundings", "params": {}}
    assert told["inside"] == 17
    assert told["nobody"].startswith("work did not end within 1 s: ")
    assert "the handler default/nobody/work" in told["nobody"]


def test_without_a_store_a_call_says_what_to_do(program: Home) -> None:
    done = run(program, "-c", "from shop import add; add.delay(1, 2)")
    assert done.returncode != 0
    assert done.stderr.strip().endswith("name another, or make one there: rota store migrate")


def test_without_a_node_a_result_says_that_nobody_is_there(program: Home) -> None:
    program.ok("store", "migrate")
    done = run(program, "-c", "from shop import add; add.delay(1, 2).result(timeout=0.5)")
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith("TimeoutError: add did not end within 0.5 s: ")
    assert "no node is running: start one with rota up FILE" in said


PATIENT = """
from rota.client import asynchronous
asynchronous.SAY_S = 0.2
OUTAGE
from shop import add
print(add.delay(1, 2).result())
"""
OUTAGE = """
from rota.control.runs import RunControl
from rota.errors import StoreUnavailable

async def away(self, run_id):
    raise StoreUnavailable("nobody answers")

RunControl.explain = away
"""


@pytest.mark.parametrize(
    ("outage", "why"),
    [("", "no node is running"), (OUTAGE, "the store does not say why: nobody answers")],
)
def test_who_waits_without_a_limit_is_told_what_for_and_not_in_his_output(program: Home, outage: str, why: str) -> None:
    program.ok("store", "migrate")
    command = [sys.executable, "-c", PATIENT.replace("OUTAGE", outage)]
    with subprocess.Popen(
        command, cwd=program.path, env=program.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stderr is not None
        assert waiting.stderr.readline().startswith(f"add waits (run 1): {why}")
        with program.start("up", "shop.py"):
            out, more = waiting.communicate(timeout=60)
    assert (out, more) == ("3\n", "")


def test_a_call_is_a_run_of_its_task_wherever_it_is_seen(program: Home) -> None:
    program.ok("store", "migrate")
    program.write("one.py", "from shop import add; h = add.delay(1, 2); print(h.run().job)")
    assert run(program, "one.py").stdout == "add\n"
    (told,) = program.json("run", "list")
    assert (told["job"], told["cause"]) == ("add", "call")
    assert program.json("run", "show", "1")["job"] == "add"
    program.ok("run", "cancel", "1")
    assert "run 1 is a call of add; call it again: add.delay(...)" in program.refused(4, "run", "retry", "1")
