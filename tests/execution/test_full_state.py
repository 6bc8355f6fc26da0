"""A node whose state folder is full cannot execute: it says so, and what it was given is nobody's loss."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from rota.errors import InvalidInput
from rota.execution.log_directory import DirectoryLogs
from rota.execution.runner import ProcessRunner, RunnerSettings
from tests.execution.harness import Heard, fill, rig


async def on_a_full_disk(folder: Path, disk: Path) -> dict[str, object]:
    async with rig(folder, "@app.task\ndef one(): return 1\n", state_dir=str(disk / "state")) as runner:
        before = await runner.do(runner.shell("true"))
        filler = fill(disk)
        while_full = [await runner.do(runner.shell("true")), await runner.do(runner.call("one"))]
        why = runner.runner.unable()
        filler.unlink()
        after = [await runner.do(runner.shell("true")), await runner.do(runner.call("one"))]
        return {
            "ends": [(it.outcome, it.cause, it.message) for it in (before, *while_full, *after)],
            "why": why,
            "then": runner.runner.unable(),
        }


async def start_on_a_full_disk(folder: Path, disk: Path) -> dict[str, object]:
    settings = RunnerSettings(node="test", state_dir=str(disk / "state"))
    runner = ProcessRunner(settings, DirectoryLogs(folder / "logs"))
    why = ""
    filler = fill(disk)
    try:
        await runner.open(Heard())
    except InvalidInput as error:
        why = str(error)
    left = [name for folder in (disk / "state", tempfile.gettempdir()) for name in os.listdir(folder)]  # noqa: PTH208
    filler.unlink()
    await runner.open(Heard())
    await runner.close()
    return {"why": why, "left": left}


def in_a_small_disk(tmp_path: Path, what: str) -> dict[str, Any]:
    """What a function of this file says of a disk of 256 KiB, on which the state folder is."""
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "tmp").mkdir()
    code = (
        "import asyncio, json, pathlib; from tests.execution import test_full_state as here; "
        f"folder, disk = pathlib.Path({str(tmp_path)!r}), pathlib.Path({str(disk)!r}); "
        "(disk / 'state').mkdir(mode=0o700); "
        f"print(json.dumps(asyncio.run(here.{what}(folder, disk))))"
    )
    mount = f"mount -t tmpfs -o size=256k none '{disk}' && exec '{sys.executable}' -c \"$0\""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, code],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_a_full_state_folder_is_no_loss_and_heals_by_itself(tmp_path: Path) -> None:
    seen = in_a_small_disk(tmp_path, "on_a_full_disk")
    why = str(seen["why"])
    assert re.fullmatch(rf"{tmp_path}/disk/state/agent-[0-9a-f]+ cannot be written to: No space left on device", why)
    assert seen["then"] == ""
    words = f"this node cannot execute anything at present: {why}"
    assert seen["ends"] == [
        ["succeeded", "", ""],
        ["lost", "unable", words],
        ["lost", "unable", words],
        ["succeeded", "", ""],
        ["succeeded", "", ""],
    ]


async def test_a_state_folder_that_was_made_anew_is_no_loss(tmp_path: Path) -> None:
    """What this agent writes has no place in it any more."""
    async with rig(tmp_path, state_dir=str(tmp_path / "state")) as runner:
        assert (await runner.do(runner.shell("true"))).outcome == "succeeded"
        shutil.rmtree(tmp_path / "state")
        (tmp_path / "state").mkdir(mode=0o700)
        end = await runner.do(runner.shell("true"))
        why = runner.runner.unable()
    assert (end.outcome, end.cause) == ("lost", "unable"), end
    assert end.message == f"this node cannot execute anything at present: {why}"
    assert why.startswith(f"{tmp_path}/state/agent-")
    assert why.endswith(" cannot be written to: No such file or directory")


async def test_a_folder_of_working_folders_that_is_gone_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Made anew it has no lock, so it must not be where other runners remove what dead ones left.
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    async with rig(tmp_path, "@app.task\ndef one(): return 1\n") as runner:
        root = runner.runner._work_folders.root
        root.rmdir()
        ends = [await runner.do(runner.call("one")), await runner.do(runner.shell("true"))]
        root.mkdir(mode=0o711)
        after = [await runner.do(runner.shell("true")), await runner.do(runner.call("one"))]
    words = f"this node cannot execute anything at present: {root} cannot be written to: No such file or directory"
    assert [(end.outcome, end.cause, end.message) for end in ends] == [("lost", "unable", words)] * 2
    assert [end.outcome for end in after] == ["succeeded", "succeeded"]


def test_a_state_folder_that_is_full_at_the_start_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    seen = in_a_small_disk(tmp_path, "start_on_a_full_disk")
    assert seen == {
        "why": f"executor.state_path: {tmp_path}/disk/state cannot be written to: No space left on device; make room "
        "there, or set executor.state_path to a folder of this user alone",
        "left": [],
    }


async def test_a_missing_place_for_working_folders_is_named_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(InvalidInput, match=r"^TMPDIR: .*/gone/.*No such file or directory; .* set TMPDIR"):
        async with rig(tmp_path):
            pass
    assert os.listdir(tmp_path / "state") == []  # noqa: PTH208 - pathlib is not for coroutines
    (tmp_path / "gone").mkdir()
    async with rig(tmp_path) as runner:
        assert (await runner.do(runner.shell("true"))).outcome == "succeeded"
