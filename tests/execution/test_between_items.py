"""What an item does to its process never reaches the next item: it is put back, or the worker is replaced."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.execution.harness import Rig, rig

APP = """
import ctypes, json, locale, resource, threading
libc = ctypes.CDLL(None)
ME = os.urandom(8).hex()
def seen():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    return {
        "programs": sorted(subprocess.check_output(["env", "-u", "ROTA_TREE", "-u", "PWD"]).decode().splitlines()),
        "folder": os.path.dirname(os.getcwd()), "umask": umask(),
        "mode": os.environ.get("MODE"), "path": os.environ.get("PATH"),
        "handler": str(signal.getsignal(signal.SIGUSR1)),
        "ignored": str(signal.getsignal(signal.SIGTERM)).partition(" at 0x")[0],
        "blocked": sorted(map(str, signal.pthread_sigmask(signal.SIG_BLOCK, []))),
        "alarm": signal.getitimer(signal.ITIMER_REAL), "locale": locale.setlocale(locale.LC_ALL),
        "nice": os.nice(0), "limits": limits, "recursion": sys.getrecursionlimit(),
        "zone": time.tzname, "argv": sys.argv, "stdin": os.fstat(0).st_rdev,
        "threads": sorted(t.name for t in threading.enumerate() if t.name.startswith("left")),
    }
def umask():
    was = os.umask(0o022)
    os.umask(was)
    return was
def changes():
    os.mkdir(HERE + "/elsewhere"); os.chdir(HERE + "/elsewhere"); os.rmdir(HERE + "/elsewhere")
    os.umask(0o077); os.environ["MODE"] = "mine"; os.environ["TZ"] = "Asia/Tokyo"; time.tzset(); del os.environ["PATH"]
    os.putenv("FOR_PROGRAMS", "mine"); os.unsetenv("HOME"); libc.setenv(b"LANG", b"de", 1)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGUSR1, print); signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
    signal.setitimer(signal.ITIMER_REAL, 1000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 10, hard))
    sys.setrecursionlimit(500); sys.argv.append("more"); locale.setlocale(locale.LC_ALL, "C.UTF-8"); os.close(0)
@app.task
def look(what=""):
    here = [ME, seen()]
    if what: globals()[what]()
    return here
@app.task
async def alook(what=""):
    here = [ME, seen()]
    if what: globals()[what]()
    return here
def thread():
    threading.Thread(target=time.sleep, args=(1000,), name="left", daemon=True).start()
def ended():
    threading.Thread(target=print, name="left").start()
def limit():
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
def nicer():
    os.nice(5)
@app.task
def speaks(text="", end=""):
    if text: libc.printf(text.encode())
    if end: sys.__stdout__.write(end)
@app.task
async def aspeaks(text="", end=""):
    if text: libc.printf(text.encode())
    if end: sys.__stdout__.write(end)
@app.task
def large():
    subprocess.Popen(["sleep", "1000"])
    return ME + "x" * 100_000
@app.task
async def helper():
    await asyncio.to_thread(print, "helped")
    return ME
@app.task
async def overlap(name="", what=""):
    here = [ME, seen()]
    if what: globals()[what]()
    open(HERE + "/" + name + ".up", "w").write("up")
    while not os.path.exists(HERE + "/" + name): await asyncio.sleep(0.01)
    return here
"""

PATIENT = """
from rota.execution.worker import leftovers
leftovers.THREADS_S = 30
"""
"""For threads that end soon, however busy the machine is."""

KINDS = [("look", 1), ("alook", 1), ("look", 3), ("alook", 3)]


async def look(runner: Rig, name: str, concurrency: int, what: str = "") -> tuple[str, dict[str, Any]]:
    end = await runner.do(runner.call(name, params={"what": what}, concurrency=concurrency))
    assert end.result is not None, end
    me, seen = json.loads(end.result)
    return me, seen


@pytest.mark.parametrize(("name", "concurrency"), KINDS)
async def test_what_an_item_changes_in_its_process_the_next_does_not_see(
    tmp_path: Path, name: str, concurrency: int
) -> None:
    async with rig(tmp_path, APP) as runner:
        first, before = await look(runner, name, concurrency)
        await look(runner, name, concurrency, "changes")
        again, after = await look(runner, name, concurrency)
    assert after == before
    assert again == first, "nothing of it needs another process"


@pytest.mark.parametrize(("name", "concurrency"), KINDS)
@pytest.mark.parametrize(("what", "told"), [("thread", "threads"), ("limit", "limit"), ("nicer", "priority")])
async def test_what_cannot_be_put_back_costs_the_worker(
    tmp_path: Path, name: str, concurrency: int, what: str, told: str
) -> None:
    async with rig(tmp_path, APP, environment={"PATH": "/usr/bin:/bin"}) as runner:
        first, before = await look(runner, name, concurrency)
        attempt = runner.call(name, params={"what": what}, concurrency=concurrency)
        await runner.do(attempt)
        again, after = await look(runner, name, concurrency)
        log = runner.log(attempt).decode()
    assert after == before
    if again == first:
        assert what != "thread", "root may put these back"
        return
    assert log.startswith("[rota: the task left")
    assert told in log


@pytest.mark.parametrize(("name", "concurrency"), KINDS)
async def test_a_thread_that_ends_at_once_costs_nothing(tmp_path: Path, name: str, concurrency: int) -> None:
    async with rig(tmp_path, APP + PATIENT) as runner:
        first, _ = await look(runner, name, concurrency, "ended")
        again, _ = await look(runner, name, concurrency)
    assert again == first


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_threads_that_asyncio_made_for_an_item_cost_nothing(tmp_path: Path, concurrency: int) -> None:
    async with rig(tmp_path, APP + PATIENT) as runner:
        ends = [await runner.do(runner.call("helper", concurrency=concurrency)) for _ in range(3)]
    assert len({end.result for end in ends}) == 1, ends


@pytest.mark.parametrize(("name", "concurrency"), [("speaks", 1), ("aspeaks", 1), ("speaks", 3), ("aspeaks", 3)])
@pytest.mark.parametrize("what", ["text", "end"])
async def test_what_an_item_left_in_a_buffer_is_in_its_own_log(
    tmp_path: Path, name: str, concurrency: int, what: str
) -> None:
    async with rig(tmp_path, APP) as runner:
        attempts = [runner.call(name, params={what: f"of {n}"}, concurrency=concurrency) for n in range(3)]
        for attempt in attempts:
            await runner.do(attempt)
        logs = [runner.log(attempt) for attempt in attempts]
    assert logs == [b"of 0", b"of 1", b"of 2"]


@pytest.mark.parametrize("what", ["changes", "thread"])
async def test_a_worker_that_is_never_idle_gets_no_more_items_after_one_that_changed_it(
    tmp_path: Path, what: str
) -> None:
    async with rig(tmp_path, APP) as runner:
        stays = runner.call("overlap", params={"name": "stays"}, concurrency=3)
        runner.begin(stays)
        await runner.appears("stays.up")
        (tmp_path / "first").touch()
        (tmp_path / "second").touch()
        changed = json.loads(
            (await runner.do(runner.call("overlap", params={"name": "first", "what": what}, concurrency=3))).result
            or ""
        )
        if what == "thread":  # one that runs beside it could have made the thread
            (tmp_path / "stays").touch()
            await runner.end(stays)
        async with asyncio.timeout(30):
            while True:
                fresh = json.loads(
                    (await runner.do(runner.call("overlap", params={"name": "second"}, concurrency=3))).result or ""
                )
                if fresh[0] != changed[0]:
                    break
                assert what == "thread"
        (tmp_path / "stays").touch()
        end = await runner.end(stays)
    assert fresh[1]["threads"] == []
    assert fresh[1]["mode"] is None
    assert end.outcome == "succeeded", "the other one is not harmed"


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_what_an_item_with_a_large_result_leaves_behind_is_seen_too(tmp_path: Path, concurrency: int) -> None:
    """Such a result is told at once, before whatever else there is to tell."""
    async with rig(tmp_path, APP) as runner:
        first = await runner.do(runner.call("large", concurrency=concurrency))
        again = await runner.do(runner.call("large", concurrency=concurrency))
    assert first.result != again.result
