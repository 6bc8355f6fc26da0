"""Files and folders: one broken file does not stop the others, and no code runs in this process."""

import asyncio
import hashlib
import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.definitions import folder
from rota.definitions.folder import Watched
from rota.definitions.loaded import Loaded
from rota.model.job import Definition, Task
from rota.model.value import encode
from rota.model.work import Backoff, Bounds, Rate, Retry
from tests.factories import a_definition, load

TODAY = date(2026, 11, 15)
APP = "import rota\napp = rota.App()\n"


def job(name: str) -> str:
    return f"jobs: {{{name}: {{every_s: 5, shell: [x]}}}}\n"


def task(name: str) -> str:
    return f"@app.task(every_s=5)\ndef {name}(): ...\n"


def names(loaded: Loaded) -> list[str]:
    return [definition.name for definition in loaded.definitions]


async def only_problem(path: Path, timeout_s: float = 30.0) -> str:
    loaded = await load(path, today=TODAY, timeout_s=timeout_s)
    assert loaded.definitions == ()
    (problem,) = loaded.problems
    assert problem.file == str(path)
    return str(problem).removeprefix(str(path))


async def test_a_folder_is_read_with_all_its_folders_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(job("second"))
    (tmp_path / "a.yml").write_text(job("first"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "c.py").write_text(APP + task("third"))
    assert await load(tmp_path, today=TODAY) == await load(str(tmp_path), today=TODAY)
    assert names(await load(tmp_path, today=TODAY)) == ["first", "second", "third"]


async def test_hidden_files_helpers_and_backups_are_passed_over(tmp_path: Path) -> None:
    for name in (".a.yaml", "_helper.py", "a.yaml~", "#a.yaml#", ".#a.yaml", "~a.yaml", "a.yaml.bak", "notes.txt"):
        (tmp_path / name).write_text("broken: [")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.py").write_text("broken: [")
    assert await load(tmp_path, today=TODAY) == Loaded((), ())


async def test_one_broken_file_does_not_stop_the_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("jobs: [")
    (tmp_path / "b.yaml").write_text(job("good"))
    (tmp_path / "c.py").write_text("def f(:")
    (tmp_path / "d.yaml").write_bytes(b"\xff")
    loaded = await load(tmp_path, today=TODAY)
    assert names(loaded) == ["good"]
    assert [Path(problem.file or "").name for problem in loaded.problems] == ["a.yaml", "c.py", "d.yaml"]


async def test_a_job_that_is_defined_twice_is_not_loaded_and_both_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(job("same"))
    (tmp_path / "b.py").write_text(APP + task("Same") + task("other"))
    loaded = await load(tmp_path, today=TODAY)
    assert names(loaded) == ["other"]
    assert [str(each) for each in loaded.problems] == [
        f"{tmp_path}/b.py: jobs.Same: is defined in {tmp_path}/a.yaml too"
    ]


async def test_links_that_leave_the_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text(job("outside"))
    home = tmp_path / "home"
    (home / "..data").mkdir(parents=True)
    (home / "..data" / "jobs.yaml").write_text(job("inside"))
    (home / "jobs.yaml").symlink_to("..data/jobs.yaml")
    (home / "again.yaml").symlink_to("jobs.yaml")
    (home / "leaves.yaml").symlink_to(tmp_path / "outside.yaml")
    (home / "leaves").symlink_to(tmp_path)
    (home / "dangling.yaml").symlink_to("nowhere.yaml")
    loaded = await load(home, today=TODAY)
    assert names(loaded) == ["inside"]
    assert sorted((Path(each.file or "").name, each.reason) for each in loaded.problems) == [
        ("dangling.yaml", "is not a regular file"),
        ("leaves", "is a link that leaves the folder"),
        ("leaves.yaml", "is a link that leaves the folder"),
    ]


async def test_what_is_no_file_with_jobs_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.yaml")
    (tmp_path / "large.yaml").write_text("#" * (1024 * 1024 + 1))
    (tmp_path / "notes.txt").write_text("")
    assert await only_problem(tmp_path / "fifo.yaml") == ": is not a regular file"
    assert await only_problem(tmp_path / "large.yaml") == ": is larger than 1024 KiB"
    assert (
        await only_problem(tmp_path / "notes.txt") == ": is not a file with jobs; their names end in .yaml, .yml, .py"
    )
    assert await only_problem(tmp_path / "nowhere.yaml") == ": there is no such file or folder"


async def test_the_number_of_files_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "FILES_MAX", 2)
    for name in "abc":
        (tmp_path / f"{name}.yaml").write_text(job(name))
    loaded = await load(tmp_path, today=TODAY)
    assert names(loaded) == ["a", "b"]
    assert [each.reason for each in loaded.problems] == ["has more than 2 files; the rest was not read"]


async def test_a_python_file_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    (tmp_path / "beside.py").write_text("NAME = 'by_name'\n")
    witness = f"import os, sys\nfrom beside import NAME\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    file.write_text(witness + APP + "@app.task(name=NAME)\ndef f(): ...\n")
    assert names(await load(file, today=TODAY)) == ["by_name"]
    assert (tmp_path / "pid").read_text() != str(os.getpid())
    assert "beside" not in sys.modules
    assert not (tmp_path / "__pycache__").exists()


async def test_what_a_python_file_prints_does_not_spoil_the_answer(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    file.write_text(f"import os\nprint('[[], []]' * 1000)\nos.write(1, b'x' * 100000)\n{APP}{task('quiet')}")
    assert names(await load(file, today=TODAY)) == ["quiet"]


async def test_threads_and_processes_that_a_file_leaves_behind_do_not_delay(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    left = "import subprocess, threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    file.write_text(f"{left}subprocess.Popen(['sleep', '60'])\n{APP}{task('f')}")
    assert names(await load(file, today=TODAY, timeout_s=20)) == ["f"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("x = 1\n", ": has no app"),
        ("x = 1\ndef f(:\n", ":2: is not valid Python: invalid syntax"),
        ("x = '\0'\n", ": is not valid Python"),
        ("import sys\nsys.exit(3)\n", ":2: calls sys.exit(3) at import"),
        (
            "import os, sys\nsys.stderr.write('last words\\x1b[0m')\nsys.stderr.flush()\nos._exit(3)\n",
            r": ended with exit code 3 at import: last words\x1b[0m",
        ),
        ("import os\nos._exit(0)\n", ": ended at import, before its jobs were known"),
        ("import os\nos.kill(os.getpid(), 9)\n", ": was ended by signal 9 at import"),
        ("1 / 0\n", ":1: raises ZeroDivisionError at import: division by zero"),
        ("raise KeyboardInterrupt\n", ":1: raises KeyboardInterrupt at import"),
        ("import nowhere\n", ":1: raises ModuleNotFoundError at import: No module named 'nowhere'"),
        ("while True: print('x' * 100000)\n", ": printed more than 10 MiB at import"),
        ("import os, sys\nos.write(int(sys.orig_argv[-2]), b'[')\nos._exit(0)\n", ": spoiled the answer"),
        (APP + "\n@app.task(cron='61 * * * *')\ndef f(): ...\n", ":4: f.cron: minute: 61"),
        (APP + "b = rota.App()\n@app.task\ndef f(): ...\n@b.task(name='F')\ndef g(): ...\n", ": F.name: two apps"),
        (
            APP + "b = rota.App()\napp.on_fail(print)\nb.on_fail(print)\n",
            ": default/default/on_fail: is there twice",
        ),
        (APP + "app.on_start(print)\n\napp.on_start(print)\n", ":5: on_start: there is a listener already"),
        (APP + "for i in range(200): app.task(name=f'n{i}', params={'a': 'x' * 60000})(print)\n", ": has definitions"),
    ],
)
async def test_a_broken_python_file_is_named_with_what_is_wrong(tmp_path: Path, source: str, problem: str) -> None:
    file = tmp_path / "jobs.py"
    file.write_text(source)
    assert (await only_problem(file)).startswith(problem)


async def test_a_python_file_that_does_not_end_is_stopped_with_all_it_started(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    child = (
        f"import subprocess\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(subprocess.Popen(['sleep', '60']).pid))\n"
    )
    file.write_text(child + "while True: pass\n")
    for timeout_s in (2, 8, 32):  # a slow machine takes its time to come that far
        assert (await only_problem(file, timeout_s=timeout_s)).startswith(
            f": did not come to an end within {timeout_s} s"
        )
        if (tmp_path / "pid").exists():
            break
    assert await ends_soon(int((tmp_path / "pid").read_text()))


async def test_an_answer_that_was_not_made_by_the_sdk_is_checked_again(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    lie = '[[{"name":"a/b","schedule":{"rule":{"type":"every","every_s":-1}},"tasks":[]}],[]]'
    file.write_text(f"import os, sys\nfd = int(sys.orig_argv[-2])\nos.write(fd, {lie!r}.encode())\nos._exit(0)\n")
    assert "the name must be" in await only_problem(file)


async def test_a_python_file_tells_what_a_node_can_call_of_it(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    file.write_text(
        "import rota\napp = rota.App(tenant='acme')\nother = rota.App()\n"
        + task("nightly")
        + "@other.task\ndef by_hand(): ...\n"
        + "@app.on_start\ndef started(told): ...\n@other.on_fail\ndef failed(told): ...\n"
    )
    loaded = await load(file, today=TODAY)
    assert loaded.problems == ()
    assert loaded.handlers == ("acme/default/nightly", "default/default/by_hand")
    assert loaded.listeners == ("listener:acme/default/on_start", "listener:default/default/on_fail")
    assert loaded.digest == hashlib.sha256(file.read_bytes()).hexdigest()


async def test_a_folder_tells_what_can_be_called_of_all_its_apps(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(job("first"))
    assert (await load(tmp_path, today=TODAY))[2:7] == ((), (), "", (), ())
    (tmp_path / "b.py").write_text(APP + task("second") + "@app.on_start\ndef started(told): ...\n")
    alone = await load(tmp_path, today=TODAY)
    assert alone.handlers == ("default/default/second",)
    home = str(tmp_path / "b.py")
    assert alone.homes == (("default/default/second", home), ("listener:default/default/on_start", home))
    assert alone.digest == hashlib.sha256((tmp_path / "b.py").read_bytes()).hexdigest()
    (tmp_path / "c.py").write_text(APP + task("third") + "@app.on_fail\ndef failed(told): ...\n")
    both = await Watched([tmp_path], lambda: TODAY).load()
    assert both.handlers == ("default/default/second", "default/default/third")
    assert both.listeners == ("listener:default/default/on_start", "listener:default/default/on_fail")
    assert len(both.digest) == 64
    assert both.digest != alone.digest


async def test_an_answer_about_handlers_that_was_not_made_by_the_sdk_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "jobs.py"
    fine = Loaded(
        (a_definition("a", tasks=(Task(name="main", runner="python", config={"handler": "a"}),)),),
        (),
        ("default/default/a",),
        ("listener:default/default/on_start",),
        "0" * 64,
    )
    assert (await load(told(file, fine), today=TODAY)).handlers == ("default/default/a",)
    (good,) = fine.definitions
    lies = [
        fine._replace(handlers=("default/default/b",)),
        fine._replace(handlers=("default/default/a", "other/default/b")),
        fine._replace(listeners=("listener:default/default/on_everything",)),
        fine._replace(digest="x" * 10_000),
        fine._replace(definitions=(a_definition("a", tasks=()),)),
        fine._replace(definitions=(a_definition("a"),)),
        fine._replace(definitions=(with_task(good, config={"handler": "b"}),)),
    ]
    for lie in lies:
        assert "spoiled the answer about its handlers" in await only_problem(told(file, lie))
    for task, field in [
        (with_task(good, timeout_s=-1.0), "a.timeout_s"),
        (with_task(good, concurrency=10**6), "a.concurrency"),
        (with_task(good, env={"LD_PRELOAD": "x"}), "a.env"),
        (with_task(good, retry=Retry(max=10**6)), "a.retries.max"),
        (with_task(good, retry=Retry(backoff=Backoff(seconds=()))), "a.retries.backoff.seconds"),
        (with_task(good, retry=Retry(only=("9" * 5000,))), "a.retries.only"),
        (with_task(good, bounds=Bounds(user="a b")), "a.user"),
        (msgspec.structs.replace(good, rate=Rate(max=1, period_s=0.0)), "a.rate.period_s"),
    ]:
        assert f": {field}: " in await only_problem(told(file, fine._replace(definitions=(task,))))


def told(file: Path, answer: Loaded) -> Path:
    """A file that answers by itself."""
    lines = f"import os, sys\nos.write(int(sys.orig_argv[-2]), {encode(answer)!r}.encode())\nos._exit(0)\n"
    file.write_text(lines)
    return file


def with_task(definition: Definition, **fields: Any) -> Definition:
    return msgspec.structs.replace(definition, tasks=(msgspec.structs.replace(definition.tasks[0], **fields),))


async def ends_soon(pid: int) -> bool:
    """A process that was killed may take a moment to go."""
    for _ in range(100):
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.05)
    return False


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
