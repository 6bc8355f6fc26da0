"""A log store that is full, gone or in the way costs output only, and the log says where something is missing."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rota.errors import LogUnreadable
from rota.execution.log_directory import CUT, DirectoryLogs, LogState, piece
from rota.model.run import LogKey
from rota.model.states import Outcome
from rota.model.work import Attempt
from tests.execution.harness import Rig, fill, rig

STEPS = """
for step in 1 2 3; do
  while [ ! -e {here}/go$step ]; do sleep 0.02; done
  head -c $(cat {here}/go$step) /dev/zero | tr '\\0' $step
done
"""


def printer(runner: Rig) -> Attempt:
    """A program that prints, at each of three words, so many of one digit."""
    return runner.shell("sh", "-c", STEPS.format(here=runner.folder))


async def say(runner: Rig, step: int, size: int) -> None:
    (runner.folder / "new").write_text(str(size))
    (runner.folder / "new").rename(runner.folder / f"go{step}")


async def written(runner: Rig, attempt: Attempt, text: bytes) -> None:
    async with asyncio.timeout(30):
        while text not in runner.log(attempt):
            await asyncio.sleep(0.02)


async def on_a_full_disk(folder: Path, disk: Path) -> dict[str, object]:
    """What becomes of the output of a program whose log store is full for a while. `disk` has 256 KiB."""
    async with rig(folder) as runner:
        runner.runner._log_writer._logs = runner.logs = DirectoryLogs(disk / "logs")
        attempt = printer(runner)
        runner.begin(attempt)
        await say(runner, 1, 10)
        await written(runner, attempt, b"1" * 10)
        filler = fill(disk)
        await say(runner, 2, 100_000)
        async with asyncio.timeout(30):
            while not runner.runner._log_writer._is_refused:
                await asyncio.sleep(0.02)
        await asyncio.sleep(1.5)
        filler.unlink()
        await say(runner, 3, 10)
        end = await runner.end(attempt)
        return {"outcome": end.outcome, "bytes": end.log_bytes, "log": runner.log(attempt).decode()}


async def stays_full(folder: Path, disk: Path) -> dict[str, object]:
    async with rig(folder) as runner:
        runner.runner._log_writer._logs = runner.logs = DirectoryLogs(disk / "logs")
        attempt = runner.shell("sh", "-c", "echo first; sleep 1.5; head -c 1000000 /dev/zero | tr '\\0' x")
        end = await runner.do(attempt)
        key = LogKey(attempt.run_id, attempt.item_id, attempt.attempt)
        last = piece(runner.logs, key, len(runner.log(attempt)), 1000, over=True)
        return {
            "outcome": end.outcome,
            "bytes": end.log_bytes,
            "log": runner.log(attempt).decode(),
            "last": last.data.decode(),
            "state": last.state,
        }


def in_a_small_disk(name: str, tmp_path: Path) -> dict[str, object]:
    """Run one of the above where a disk of 256 KiB is mounted that nobody else sees."""
    disk = tmp_path / "disk"
    disk.mkdir()
    code = (
        "import asyncio, json, pathlib; from tests.execution import test_log_gaps as here; "
        f"print(json.dumps(asyncio.run(here.{name}(pathlib.Path({str(tmp_path)!r}), pathlib.Path({str(disk)!r})))))"
    )
    mount = f"mount -t tmpfs -o size=256k none '{disk}' && exec '{sys.executable}' -c \"$0\""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", mount, code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_a_disk_that_was_full_for_a_while_leaves_a_gap_that_is_marked(tmp_path: Path) -> None:
    seen = in_a_small_disk("on_a_full_disk", tmp_path)
    log = str(seen["log"])
    assert seen["outcome"] == Outcome.SUCCEEDED
    head, _, rest = log.partition("\n[rota: ")
    missing, _, tail = rest.partition(" bytes are missing here: they could not be kept]\n")
    assert set(head) <= {"1", "2"}
    assert set(tail) <= {"2", "3"}, "nothing that was not printed"
    assert tail.endswith("3" * 10)
    assert head.count("2") + tail.count("2") + int(missing) == 100_000
    assert head.count("1") == 10
    assert seen["bytes"] == len(log)


def test_a_disk_that_stays_full_leaves_what_was_written_and_says_how_much_is_missing(tmp_path: Path) -> None:
    seen = in_a_small_disk("stays_full", tmp_path)
    log = str(seen["log"])
    assert seen["outcome"] == Outcome.SUCCEEDED
    assert log.startswith("first\nx")
    note = re.compile(r"\n\[rota: (\d+) bytes (?:of this output )?are missing here: they could not be kept\]\n")
    whole = log + str(seen["last"])
    assert set(note.sub("", whole.removeprefix("first\n"))) == {"x"}, "nothing that was not printed"
    assert note.sub("", whole).count("x") + sum(map(int, note.findall(whole))) == 1_000_000
    assert seen["state"] in (LogState.CUT, LogState.ENDED)
    assert CUT not in whole.encode(), "its host has not ended"


@pytest.mark.parametrize("what", ["removed", "a file in its place"])
async def test_a_folder_that_is_taken_away_leaves_a_gap_that_is_marked(tmp_path: Path, what: str) -> None:
    async with rig(tmp_path) as runner:
        attempt = printer(runner)
        runner.begin(attempt)
        await say(runner, 1, 10)
        await written(runner, attempt, b"1" * 10)
        shutil.rmtree(tmp_path / "logs")
        if what != "removed":
            (tmp_path / "logs").write_text("in the way")
        await say(runner, 2, 10)
        if what == "removed":
            await written(runner, attempt, b"2" * 10)
        else:
            async with asyncio.timeout(30):
                while not runner.runner._log_writer._is_refused:
                    await asyncio.sleep(0.02)
            assert runner.log(attempt) == b""
            (tmp_path / "logs").unlink()
        await say(runner, 3, 10)
        end = await runner.end(attempt)
        log = runner.log(attempt)
    lost = 10 if what == "removed" else 20
    kept = b"2" * (20 - lost) + b"3" * 10
    assert end.outcome is Outcome.SUCCEEDED
    assert log == b"\n[rota: %d bytes are missing here: they could not be kept]\n" % lost + kept


def test_a_log_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    logs, key = DirectoryLogs(tmp_path), LogKey(1, 2, 1)
    logs.append(key, 0, b"x")
    (tmp_path / "0" / "1" / "2.1.log").unlink()
    (tmp_path / "0" / "1" / "2.1.log").symlink_to("/etc/passwd")
    with pytest.raises(LogUnreadable, match=r"2\.1\.log cannot be read: "):
        logs.read(key, 0, 10)
