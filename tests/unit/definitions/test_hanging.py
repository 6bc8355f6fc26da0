"""One file that hangs does not delay the others, and is named."""

from __future__ import annotations

import asyncio
import os
import threading
from datetime import date
from pathlib import Path

import pytest

from rota.definitions.folder import Watched
from tests.factories import load

TODAY = date(2026, 1, 1)
GOOD = "jobs:\n  fine:\n    cron: '0 3 * * *'\n    shell: [echo, hello]\n"
APP = "import rota\napp = rota.App()\n@app.task\ndef {name}(): pass\n"


def names(loaded: object) -> set[str]:
    return {definition.name for definition in loaded.definitions}  # type: ignore[attr-defined]


async def test_a_file_whose_import_does_not_return_delays_no_other(tmp_path: Path) -> None:
    (tmp_path / "fine.yaml").write_text(GOOD)
    (tmp_path / "app.py").write_text(APP.format(name="quick"))
    for number in range(3):
        (tmp_path / f"a{number}.py").write_text(f"import time\ntime.sleep(1000)\n{APP.format(name='slow')}")
    watched = Watched([tmp_path], lambda: TODAY, patience_s=3)
    async with asyncio.timeout(60):
        while "quick" not in names(loaded := await watched.load()):  # it is read by a process of its own
            continue
    assert names(loaded) == {"fine", "quick"}
    assert sorted(Path(problem.file or "").name for problem in loaded.problems) == ["a0.py", "a1.py", "a2.py"]
    assert {problem.reason for problem in loaded.problems} == {
        "is still being read after 3 s; the others do not wait for it"
    }
    async with asyncio.timeout(20):
        again = await watched.load()
    assert again.problems == loaded.problems, "it is not begun anew"


async def test_a_slow_file_comes_when_it_is_ready_and_then_stays(tmp_path: Path) -> None:
    go = tmp_path / "go"
    (tmp_path / "fine.yaml").write_text(GOOD)
    (tmp_path / "slow.py").write_text(
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.01)\n{APP.format(name='slow')}"
    )
    watched = Watched([tmp_path], lambda: TODAY, patience_s=2)
    first = await watched.load()
    assert names(first) == {"fine"}
    seen = await watched.fingerprint()
    assert await watched.fingerprint() == seen
    go.touch()
    async with asyncio.timeout(60):
        while await watched.fingerprint() == seen:
            await asyncio.sleep(0.05)
    second = await watched.load()
    assert names(second) == {"fine", "slow"}
    assert second.problems == ()
    go.unlink()
    third = await watched.load()
    assert names(third) == {"fine", "slow"}, "what it was is in force until it is read anew"


async def test_one_file_alone_has_all_the_time(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(f"import time\ntime.sleep(1)\n{APP.format(name='slow')}")
    assert names(await Watched([tmp_path], lambda: TODAY, patience_s=0.1).load()) == {"slow"}


async def test_a_file_on_a_disk_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody writes to stands for the disk: it comes in place of the file after the look at it."""
    (tmp_path / "fine.yaml").write_text(GOOD)
    hanging = tmp_path / "hanging.yaml"
    hanging.write_text(GOOD)
    really_open = os.open
    hangs = threading.Event()

    def slow_open(path: object, *args: int, **more: int) -> int:
        if str(path) == str(hanging):
            hangs.wait()
        return really_open(path, *args, **more)  # type: ignore[arg-type, call-overload]

    monkeypatch.setattr(os, "open", slow_open)
    async with asyncio.timeout(20):
        loaded = await load(tmp_path, today=TODAY, timeout_s=5)
    hangs.set()
    assert names(loaded) == {"fine"}
    assert [(Path(it.file or "").name, it.reason) for it in loaded.problems] == [
        ("hanging.yaml", "could not be read within 5 s")
    ]


async def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fine.yaml").write_text(GOOD)
    os.mkfifo(tmp_path / "pipe.yaml")
    os.mkfifo(tmp_path / "pipe.py")
    async with asyncio.timeout(10):
        loaded = await load(tmp_path, today=TODAY)
    assert names(loaded) == {"fine"}
    assert {it.reason for it in loaded.problems} == {"is not a regular file"}
    monkeypatch.setattr("rota.definitions.folder._refusal", lambda path: None)  # it comes after the look
    async with asyncio.timeout(10):
        loaded = await load(tmp_path / "pipe.yaml", today=TODAY)
    assert [it.reason for it in loaded.problems] == ["is not a regular file"]
