"""Every attempt works in a new folder of its own, which is empty before it and gone after it."""

import asyncio
import json
import os
import resource
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rota.execution.work_folders import WorkFolders, remove_tree
from rota.model.states import Outcome
from rota.model.work import Bounds
from tests.execution.harness import rig
from tests.execution.isolation.rig import IS_ROOT, NOBODY, PYTHON, wait_until

LOOK = """
import os
here = os.getcwd()
print(here, oct(os.stat(here).st_mode & 0o777), os.stat(here).st_uid == os.getuid(), os.listdir())
open('left', 'w').close()
os.makedirs('a/b')
os.chmod('a/b', 0)
"""
APP = """
import os
import rota
app = rota.App()

@app.task
def look():
    found = [os.getcwd(), os.listdir()]
    open('left', 'w').close()
    os.makedirs('a/b')
    return found

@app.task
def lost():
    os.chdir('/')

@app.task
def helped():
    import beside
    return beside.NAME
"""


@pytest.mark.parametrize("user", [None, "nobody"] if IS_ROOT else [None])
async def test_a_program_begins_in_an_empty_folder_of_its_user_that_goes_with_it(
    tmp_path: Path, user: str | None
) -> None:
    async with rig(tmp_path) as runner:
        attempts = [runner.shell(PYTHON, "-I", "-S", "-c", LOOK, bounds=Bounds(user=user)) for _ in range(2)]
        assert {end.outcome for end in await runner.do_all(attempts)} == {Outcome.SUCCEEDED}
        said = [runner.log(attempt).decode().split(maxsplit=1) for attempt in attempts]
        assert {words for _, words in said} == {"0o700 True []\n"}
        assert len({folder for folder, _ in said}) == 2
        for folder, _ in said:
            wait_until(lambda folder=folder: not Path(folder).parent.exists(), "it is removed")


async def test_a_directory_of_the_task_is_used_instead_and_left_alone(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "kept").write_text("")
    async with rig(tmp_path) as runner:
        attempt = runner.shell("ls", bounds=Bounds(directory=str(own)))
        await runner.do(attempt)
        assert runner.log(attempt) == b"kept\n"
    assert (own / "kept").exists()


async def test_each_item_of_a_worker_finds_its_folder_empty(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("NAME = 'beside'")
    async with rig(tmp_path, APP, paths=(str(tmp_path),)) as runner:
        first = await runner.do(runner.call("look"))
        await runner.do(runner.call("lost"))
        second = await runner.do(runner.call("look"))
        assert first.result == second.result, "one worker, and one folder"
        assert first.result is not None
        assert first.result.endswith(",[]]")
        folder = first.result.split('"')[1]
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700  # noqa: PTH116 - pathlib is not for coroutines
        assert (await runner.do(runner.call("helped"))).result == '"beside"', "imports do not go by the working folder"
    assert not Path(folder).parent.exists()


LOADED = """
ME = os.urandom(8).hex()
os.mkdir('cache')
open('cache/file', 'w').close()
open('settings', 'w').close()

@app.task
def look(remove=""):
    found = [ME, sorted(os.listdir()), os.listdir('cache')]
    open('left', 'w').close()
    if remove: os.remove(remove)
    return found
"""


async def test_what_the_app_wrote_when_it_was_loaded_is_found_by_every_item(tmp_path: Path) -> None:
    async with rig(tmp_path, LOADED) as runner:
        first = (await runner.do(runner.call("look"))).result
        second = (await runner.do(runner.call("look", params={"remove": "settings"}))).result
        third = (await runner.do(runner.call("look"))).result
    assert first is not None
    assert third is not None
    assert first == second, "one worker"
    worker, *found = json.loads(first)
    assert found == [["cache", "settings"], ["file"]]
    other, *found_by_other = json.loads(third)
    assert found_by_other == found
    assert other != worker, "a file of the app that an item has removed comes with a new worker"


def test_folders_that_a_dead_agent_left_are_removed_and_those_of_a_living_one_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    living, dead = WorkFolders(), WorkFolders()
    kept, left = living.make(None), dead.make(None)
    (left / "file").write_text("")
    os.close(dead._lock)  # as the end of its process does
    after = WorkFolders()
    assert kept.exists()
    assert not left.parent.exists()
    asyncio.run(living.close())
    asyncio.run(after.close())
    assert list(tmp_path.iterdir()) == []


class Race:
    """Does something at the very moment of a call of this process: what a stranger would have to be lucky for."""

    deed: Callable[[str, tuple[Any, ...]], None] | None = None

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.deed is not None:
            self.deed(event, arguments)


RACE = Race()
sys.addaudithook(RACE)


@pytest.fixture
def race() -> Iterator[Race]:
    yield RACE
    RACE.deed = None


@pytest.fixture
async def work_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkFolders]:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = WorkFolders()
    yield found
    await found.close()


def test_a_folder_is_given_away_only_while_nobody_else_can_put_a_link_in_its_place(
    work_folders: WorkFolders, race: Race
) -> None:
    given = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.chown":
            given.append((Path(arguments[0]).name, Path(arguments[0]).parent.stat().st_uid))

    race.deed = look
    work_folders.make("nobody", "work")
    assert given == ([("work", 0), ("1", 0)] if IS_ROOT else [])


def test_nothing_outside_is_touched_when_a_folder_is_exchanged_while_it_is_removed(
    tmp_path: Path, work_folders: WorkFolders, race: Race
) -> None:
    """Another task of the same user moves a folder away, and puts a link to one of root in its place."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o755)
    (victim / "bait").write_text("kept")
    folder = work_folders.make(None)
    (folder / "inner").mkdir()
    (folder / "inner" / "bait").write_text("")

    def exchange(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "os.remove" and Path(arguments[0]).name == "bait":
            race.deed = None
            (folder / "inner" / "bait").unlink()
            (folder / "inner").rename(folder / "moved")
            (folder / "inner").symlink_to(victim)

    race.deed = exchange
    remove_tree(folder)
    assert race.deed is None, "it was exchanged"
    assert (victim / "bait").read_text() == "kept"
    assert stat.S_IMODE(victim.stat().st_mode) == 0o755
    remove_tree(folder)
    assert not folder.exists()


def test_a_folder_of_any_depth_is_removed_with_few_descriptors(work_folders: WorkFolders) -> None:
    folder = work_folders.make(None)
    at = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 10, hard))  # noqa: PTH208
    try:
        remove_tree(folder)
        assert not folder.exists()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        subprocess.run(["rm", "-rf", folder], check=True)  # pytest could not remove it


def test_folders_that_their_owner_has_closed_are_removed() -> None:
    """Root may do that anyway: so another user tries, where others can go."""
    with tempfile.TemporaryDirectory(prefix="rota-closed-") as name:
        place = Path(name)
        (place / "a" / "b" / "c").mkdir(parents=True)
        (place / "a" / "b" / "file").write_text("")
        for path in (*place.rglob("*"), place):
            os.chown(path, NOBODY if IS_ROOT else -1, -1)
        (place / "a" / "b").chmod(0)
        (place / "a").chmod(0o500)
        child = os.fork()
        if child == 0:
            with suppress(BaseException):
                if IS_ROOT:
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                remove_tree(place / "a")
            os._exit((place / "a").exists())
        assert os.waitpid(child, 0)[1] == 0


FOREIGN = """
import os, sys
os.rename(sys.argv[1], 'data')
os.mkdir('own')
open('own/file', 'w').close()
"""


def foreign(place: Path) -> Path:
    """A folder of nobody, with a file of nobody and two folders of root, of which one is empty."""
    data = place / "data"
    (data / "audit").mkdir(parents=True)
    (data / "empty").mkdir()
    (data / "file").write_text("")
    (data / "audit" / "line").write_text("kept")
    (data / "audit").chmod(0o750)
    place.chmod(0o777)
    for path in (data, data / "file"):
        os.chown(path, NOBODY, NOBODY)
    return data


@pytest.mark.skipif(not IS_ROOT, reason="only an agent of root could empty folders of others")
async def test_what_a_task_moves_into_its_folder_is_removed_only_as_far_as_it_could_do_that_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(prefix="rota-foreign-") as name:
        place = Path(name)
        monkeypatch.setattr("tempfile.tempdir", name)  # what stays has no lock: another runner would remove it
        data = foreign(place)
        (place / "rig").mkdir()
        with capture_logs() as lines:
            async with rig(place / "rig") as runner:
                attempt = runner.shell(PYTHON, "-I", "-S", "-c", FOREIGN, str(data), bounds=Bounds(user="nobody"))
                assert (await runner.do(attempt)).outcome is Outcome.SUCCEEDED
                root = runner.runner._work_folders.root
        (line,) = root.rglob("line")
        assert line.read_text() == "kept"
        assert stat.S_IMODE(line.parent.stat().st_mode) == 0o750
        assert {path.name for path in line.parent.parent.iterdir()} == {"audit"}, "the rest was of the task's user"
        told = [line["folder"] for line in lines if line["event"] == "work_folder.kept"]
        assert set(told) == {str(root / "1")}


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a folder to somebody else")
def test_what_a_dead_agent_left_is_removed_only_as_far_as_its_owner_could_do_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = WorkFolders()
    left = dead.make("nobody")
    foreign(tmp_path).rename(left / "data")
    os.close(dead._lock)  # as the end of its process does
    after = WorkFolders()
    assert (left / "data" / "audit" / "line").read_text() == "kept"
    assert [path.name for path in (left / "data").iterdir()] == ["audit"]
    asyncio.run(after.close())
    assert list(tmp_path.iterdir()) == [dead.root]
