"""The file of an app and the modules beside it: processes of a task find it, and changes are noticed."""

from __future__ import annotations

import asyncio
import os
from datetime import date
from pathlib import Path

import pytest

from rota.definitions.folder import Watched
from tests.execution.harness import Rig, rig, write_app

APP = """
import concurrent.futures, multiprocessing
ME = os.urandom(8).hex()
def square(n): return n * n
@app.task
def squares(how):
    context = multiprocessing.get_context(how)
    with context.Pool(2) as pool: first = pool.map(square, range(4))
    with concurrent.futures.ProcessPoolExecutor(2, context) as pool: second = list(pool.map(square, range(4)))
    return [first, second, ME]
"""


@pytest.mark.parametrize("how", ["spawn", "forkserver", "fork"])
async def test_functions_of_the_app_run_in_processes_of_every_start_method(tmp_path: Path, how: str) -> None:
    async with rig(tmp_path, APP) as runner:
        first = runner.call("squares", params={"how": how}, timeout_s=60)
        ends = [await runner.do(first), await runner.do(runner.call("squares", params={"how": how}, timeout_s=60))]
        log = runner.log(first)
    assert [end.outcome for end in ends] == ["succeeded", "succeeded"], (ends, log)
    assert ends[0].result is not None
    assert ends[0].result.startswith("[[0,1,4,9],[0,1,4,9],")
    assert ends[1].result == ends[0].result, "what multiprocessing itself keeps is no reason for another worker"
    assert log == b""


async def until(runner: Rig, name: str, wanted: str) -> None:
    async with asyncio.timeout(30):
        while (await runner.do(runner.call(name))).result != wanted:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("where", ["at its beginning", "in a function"])
async def test_a_changed_module_beside_the_file_is_loaded_by_new_workers(tmp_path: Path, where: str) -> None:
    line = "from helper.inner import VERSION"
    top, inside = (line, "pass") if where == "at its beginning" else ("", line)
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper" / "inner.py").write_text("VERSION = 1")
    async with rig(tmp_path, f"{top}\n@app.task\ndef version():\n    {inside}\n    return VERSION\n") as runner:
        assert (await runner.do(runner.call("version"))).result == "1"
        (tmp_path / "helper" / "inner.py").write_text("VERSION = 22")
        await until(runner, "version", "22")


async def test_a_changed_module_of_the_node_is_loaded_by_new_workers(tmp_path: Path) -> None:
    (tmp_path / "mod.py").write_text("def f(): return 1")
    async with rig(tmp_path, modules=("mod",), paths=(str(tmp_path),)) as runner:

        def ask() -> object:
            return runner.do(runner.attempt(runner="python", config={"function": "mod:f"}))

        assert (await runner.do(runner.attempt(runner="python", config={"function": "mod:f"}))).result == "1"
        (tmp_path / "mod.py").write_text("def f(): return 22")
        async with asyncio.timeout(30):
            while (await runner.do(runner.attempt(runner="python", config={"function": "mod:f"}))).result != "22":
                await asyncio.sleep(0.05)


async def test_a_changed_module_beside_the_file_changes_the_digest_and_is_watched(tmp_path: Path) -> None:
    (tmp_path / "_helper.py").write_text("VERSION = 1")
    write_app(tmp_path / "app.py", "from _helper import VERSION\n@app.task\ndef version(): return VERSION\n", tmp_path)
    watched = Watched([tmp_path / "app.py"], lambda: date(2026, 1, 1))
    before = await watched.load()
    seen = await watched.fingerprint()
    assert before.problems == ()
    (tmp_path / "_helper.py").write_text("VERSION = 22")
    assert await watched.fingerprint() != seen
    after = await watched.load()
    assert after.digest != before.digest
    (tmp_path / "_helper.py").write_text("VERSION = 1")
    assert (await watched.load()).digest == before.digest
    assert os.fspath(tmp_path) not in before.digest
