"""The life of workers and of the runner: started when needed, ended when not, replaced when they cannot be trusted."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rota.execution import attempts as attempts_module
from rota.execution import runner as runner_module
from rota.execution.isolation.promises import BoundaryKind
from rota.execution.worker_process import FILES_MAX
from rota.execution.worker_protocol import WorkerReport
from rota.model.states import Outcome
from tests.execution.harness import LEASE_S, Heard, Rig, boottime_s, rig, write_app

APP = """
@app.task
def pid(): return os.getpid()
@app.task
def one(): return 1
@app.task
async def waits():
    while not os.path.exists(HERE + "/go"): await asyncio.sleep(0.01)
"""


async def gone(runner: Rig, count: int = 0) -> None:
    async with asyncio.timeout(20):
        while len(runner.runner._process_trees.live) > count:
            await asyncio.sleep(0.01)


async def test_a_worker_without_work_ends(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, idle_s=0.3) as runner:
        await runner.do(runner.call("one"))
        assert len(runner.runner._process_trees.live) == 1
        await gone(runner)
        async with asyncio.timeout(20):
            while runner.runner._pools or runner.runner._process_limit.used:
                await asyncio.sleep(0.01)
        assert (await runner.do(runner.call("one"))).outcome is Outcome.SUCCEEDED


async def test_an_idle_worker_gives_its_place_to_one_that_is_needed(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, processes_max=2) as runner:
        for tenant in ("a", "b", "c", "a", "d"):
            assert (await runner.do(runner.call("one", tenant=tenant))).outcome is Outcome.SUCCEEDED
            assert runner.runner._process_limit.used <= 2
        assert (await runner.do(runner.shell("true"))).outcome is Outcome.SUCCEEDED


async def test_what_finds_no_place_waits_and_all_of_it_is_done(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, processes_max=2) as runner:
        attempts = [runner.call("one", tenant=f"t{number % 5}") for number in range(15)]
        attempts += [runner.shell("true") for _ in range(5)]
        ends = await runner.do_all(attempts)
        assert [end for end in ends if end.outcome is not Outcome.SUCCEEDED] == []
        assert runner.runner._process_limit.used <= 2


async def test_long_items_soon_get_a_worker_each(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        attempts = [runner.call("waits") for _ in range(4)]
        runner.begin(*attempts)
        for attempt in attempts:
            await runner.start(attempt)
        assert len(runner.runner._process_trees.live) == 4
        (tmp_path / "go").touch()
        assert {(await runner.end(attempt)).outcome for attempt in attempts} == {Outcome.SUCCEEDED}


LOADING = """
began = time.monotonic()
time.sleep(0.05)
with open(f"{HERE}/{os.urandom(8).hex()}.loaded", "w") as file: file.write(f"{began} {time.monotonic()}")
@app.task
def noop(): ...
"""


def load_times(folder: Path) -> list[tuple[float, ...]]:
    return [tuple(map(float, file.read_text().split())) for file in folder.glob("*.loaded")]


async def test_workers_of_many_tenants_load_their_apps_a_few_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once they would take the processors from the node, and so its lease."""
    monkeypatch.setattr(runner_module, "STARTS_MAX", 3)
    async with rig(tmp_path, LOADING) as runner:
        ends = await runner.do_all([runner.call("noop", tenant=f"tenant-{n}") for n in range(20)])
    assert {end.outcome for end in ends} == {Outcome.SUCCEEDED}
    spans = load_times(tmp_path)
    assert len(spans) == 20
    assert max(sum(begin <= at < end for begin, end in spans) for at, _ in spans) <= 3


HANGING = """
try:
    file = open(HERE + "/first", "x")
except FileExistsError:
    pass
else:
    print("hangs", file=file, flush=True)
    time.sleep(60)
@app.task
def noop(): ...
"""


async def test_an_app_that_hangs_while_it_is_loaded_holds_up_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner_module, "STARTS_MAX", 1)
    monkeypatch.setattr(attempts_module, "SLOW_S", 0.2)
    async with rig(tmp_path, HANGING) as runner:
        runner.begin(runner.call("noop", tenant="hangs"))
        await runner.appears("first")
        ends = await runner.do_all([runner.call("noop", tenant=f"tenant-{n}") for n in range(3)])
    assert {end.outcome for end in ends} == {Outcome.SUCCEEDED}


async def test_a_changed_app_file_is_loaded_by_new_workers(tmp_path: Path) -> None:
    async with rig(tmp_path, "@app.task\ndef version(): return 1\n" + APP) as runner:
        old = runner.call("waits", concurrency=2)
        runner.begin(old)
        await runner.start(old)
        assert (await runner.do(runner.call("version"))).result == "1"
        write_app(tmp_path / "app.py", "@app.task\ndef version(): return 2\n" + APP, tmp_path)
        async with asyncio.timeout(20):
            while (await runner.do(runner.call("version"))).result != "2":
                await asyncio.sleep(0.05)
        assert (await runner.do(runner.call("version"))).result == "2"
        (tmp_path / "go").touch()
        assert (await runner.end(old)).outcome is Outcome.SUCCEEDED


async def test_a_worker_of_a_changed_app_ends_what_it_has_however_long_that_takes(tmp_path: Path) -> None:
    async with rig(tmp_path, "@app.task\ndef version(): return 1\n" + APP) as runner:
        old = runner.call("waits")
        runner.begin(old)
        await runner.start(old)
        (worker,) = (worker for pool in runner.runner._pools.values() for worker in pool.workers)
        write_app(tmp_path / "app.py", "@app.task\ndef version(): return 2\n" + APP, tmp_path)
        async with asyncio.timeout(20):
            while not worker.is_retiring:  # it is looked at again when something waits, but not all the time
                await runner.do(runner.call("version"))
                await asyncio.sleep(0.05)
        assert (await runner.do(runner.call("version"))).result == "2"
        for _, _, waiter, what in list(runner.runner._timers._heap):
            if waiter is worker:
                waiter.on_timer(what)  # as when the time has come in which it should have been ready
        (tmp_path / "go").touch()
        assert (await runner.end(old)).outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("raise RuntimeError('broken here')", "cannot be loaded: RuntimeError: broken here"),
        ("import no_such_module", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def (", "cannot be loaded: SyntaxError"),
        ("sys.exit(4)", "cannot be loaded: SystemExit: 4"),
        ("os.write(2, b'last words'); os._exit(5)", "ended with exit code 5 before it was ready: last words"),
        ("os.kill(os.getpid(), 9)", "signal 9 (SIGKILL) before it was ready"),
    ],
)
async def test_an_app_that_cannot_be_loaded_fails_its_items_and_is_not_tried_for_ever(
    tmp_path: Path, code: str, words: str
) -> None:
    async with rig(tmp_path, APP + code) as runner:
        ends = await runner.do_all(
            [runner.call("one"), runner.call("one"), runner.call("pid"), runner.call("one", concurrency=3)]
        )
        assert {(end.outcome, end.started_s) for end in ends} == {(Outcome.FAILED, None)}
        assert all(words in end.message for end in ends), ends[0].message
        await gone(runner)
        assert sum(pool._started_count for pool in runner.runner._pools.values()) <= 3


async def test_a_user_or_directory_that_is_not_there_fails_with_its_name(tmp_path: Path) -> None:
    from rota.model.work import Bounds

    async with rig(tmp_path, APP) as runner:
        user = await runner.do(runner.call("one", bounds=Bounds(user="nobody-of-that-name")))
        folder = await runner.do(runner.call("one", bounds=Bounds(directory="/no/such/folder")))
    assert user.outcome is folder.outcome is Outcome.FAILED
    assert "nobody-of-that-name" in user.message
    assert "/no/such/folder" in folder.message


async def test_nothing_begins_after_the_deadline(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, renewed=False) as runner:
        ends = await runner.do_all([runner.shell("touch", str(tmp_path / "ran")), runner.call("one")])
        runner.runner.renew(boottime_s() + LEASE_S)
        assert (await runner.do(runner.call("one"))).outcome is Outcome.SUCCEEDED
        runner.runner.renew(boottime_s() - 0.001)
        late = await runner.do(runner.call("one"))
    assert {(end.outcome, end.started_s) for end in (*ends, late)} == {(Outcome.LOST, None)}
    assert "lease is over" in late.message
    assert not (tmp_path / "ran").exists()


async def test_what_runs_at_the_deadline_is_lost_unless_it_holds_out(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        doomed = [runner.shell("sleep", "60"), runner.call("waits"), runner.call("waits", concurrency=2)]
        held = runner.call("waits", hold_s=60)
        runner.begin(*doomed, held)
        for attempt in (*doomed, held):
            await runner.start(attempt)
        runner.runner.renew(boottime_s())
        ends = [await runner.end(attempt) for attempt in doomed]
        assert {end.outcome for end in ends} == {Outcome.LOST}
        assert "could not renew its lease" in ends[0].message
        (tmp_path / "go").touch()
        assert (await runner.end(held)).outcome is Outcome.SUCCEEDED


async def test_the_death_of_what_watches_over_processes_makes_their_items_lost(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, boundary=str(BoundaryKind.GROUP)) as runner:
        attempts = [runner.shell("sleep", "60"), runner.call("waits")]
        runner.begin(*attempts)
        for attempt in attempts:
            await runner.start(attempt)
        for tree in runner.runner._process_trees.live:
            os.kill(tree.record().supervisor.pid, signal.SIGKILL)
        ends = [await runner.end(attempt) for attempt in attempts]
        assert {end.outcome for end in ends} == {Outcome.LOST}
        assert (await runner.do(runner.call("one"))).outcome is Outcome.SUCCEEDED


async def test_the_death_of_the_zygote_makes_items_lost_and_a_new_one_goes_on(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, boundary=str(BoundaryKind.NAMESPACE)) as runner:
        attempts = [runner.shell("sleep", "60"), runner.call("waits"), runner.call("waits", concurrency=2)]
        runner.begin(*attempts)
        for attempt in attempts:
            await runner.start(attempt)
        zygote = runner.runner._process_trees._zygote
        assert zygote is not None
        os.kill(zygote.pid, signal.SIGKILL)
        ends = [await runner.end(attempt) for attempt in attempts]
        assert {end.outcome for end in ends} == {Outcome.LOST}
        assert (await runner.do(runner.call("one"))).outcome is Outcome.SUCCEEDED


async def test_closing_kills_what_is_left_and_reports_it_as_lost(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, processes_max=3) as runner:
        attempts = [runner.shell("sleep", "60"), runner.call("waits"), runner.call("waits", concurrency=2)]
        runner.begin(*attempts)
        for attempt in attempts:
            await runner.start(attempt)
        waiting = [runner.call("waits", tenant="waiting"), runner.shell("sleep", "60")]
        runner.begin(*waiting)
        attempts += waiting
        trees = runner.runner._process_trees.live
        await runner.runner.close()
        ends = [runner.heard.ends[attempt.item_id, 1] for attempt in attempts]
    assert len(trees) == 3
    assert not any(os.path.exists(f"/proc/{tree.pid}") for tree in trees)  # noqa: ASYNC240, PTH110
    assert {(end.outcome, end.message) for end in ends} == {(Outcome.LOST, "this node was stopped")}


async def test_a_closed_runner_begins_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        await runner.runner.close()
        runner.begin(attempt := runner.call("one"))
        assert (await runner.end(attempt)).outcome is Outcome.LOST


async def test_a_second_attempt_at_an_item_that_is_still_here_is_lost(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        first = runner.call("waits")
        second = runner.call("waits", item_id=first.item_id, attempt=2)
        runner.begin(first)
        assert (await runner.do(second)).outcome is Outcome.LOST
        (tmp_path / "go").touch()
        assert (await runner.end(first)).outcome is Outcome.SUCCEEDED


async def test_a_thousand_items_of_many_kinds_each_end_exactly_once(tmp_path: Path) -> None:
    """The listener of the rig refuses to be told twice."""
    async with rig(tmp_path, APP) as runner:
        attempts = [runner.call("one", concurrency=1 + number % 3, tenant=f"t{number % 2}") for number in range(1000)]
        ends = await runner.do_all(attempts)
        heard: Heard = runner.heard
        assert {end.outcome for end in ends} == {Outcome.SUCCEEDED}
        assert len(heard.ends) == 1000


async def test_the_agent_runs_no_user_code_and_workers_get_nothing_of_it(tmp_path: Path) -> None:
    """S19: no descriptor but the outputs and the channel, no variable of the node, no input."""
    app = """
        @app.task
        def look():
            links = []
            for number in range(200):
                try: links.append(os.readlink(f"/proc/self/fd/{number}").partition(":")[0])
                except OSError: pass
            return [sys.stdin.read(), sorted(os.environ), sorted(set(links))]
    """
    async with rig(tmp_path, app, environment={"PATH": os.environ["PATH"], "ROTA_STORE": "secret"}) as runner:
        import json

        end = await runner.do(runner.call("look"))
        empty, names, kinds = json.loads(end.result or "")
    assert empty == ""
    assert set(names) - {"LC_CTYPE"} == {"HOME", "LANG", "PATH", "ROTA_TREE"}
    assert set(kinds) <= {"/dev/null", "pipe", "socket", "anon_inode"}


async def test_a_runner_that_was_closed_and_opened_again_begins_anew(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        assert (await runner.do(runner.call("one"))).outcome is Outcome.SUCCEEDED
        await runner.runner.close()
        await runner.runner.open(runner.heard)
        runner.runner.renew(boottime_s() + LEASE_S)
        ends = await runner.do_all([runner.call("one"), runner.shell("true")])
    assert [end.outcome for end in ends] == [Outcome.SUCCEEDED] * 2


async def test_a_limit_of_cpu_time_counts_for_each_attempt_alone(tmp_path: Path) -> None:
    from rota.model.work import Bounds

    app = """
        import time

        @app.task
        def burns():
            until = time.process_time() + 0.7
            while time.process_time() < until:
                pass
    """
    async with rig(tmp_path, app) as runner:
        ends = [await runner.do(runner.call("burns", bounds=Bounds(cpu_s=2))) for _ in range(4)]
    assert [end.outcome for end in ends] == [Outcome.SUCCEEDED] * 4


async def test_whatever_files_workers_tell_of_a_bounded_number_is_remembered(tmp_path: Path) -> None:
    def told(by: str) -> WorkerReport:
        return WorkerReport(files=[(f"{by}-{number}.py", (0, 0, 0)) for number in range(5 * FILES_MAX)])

    async with rig(tmp_path, APP) as runner:
        attempts = [runner.call("waits") for _ in range(3)]
        runner.begin(*attempts[:2])
        for attempt in attempts[:2]:
            await runner.start(attempt)
        (pool,) = runner.runner._pools.values()
        for number, worker in enumerate(pool.workers):
            worker._on_report(told(str(number)))
        runner.begin(attempts[2])
        await runner.start(attempts[2])  # in a worker that begins with what both have told
        assert len(pool.workers) == 3
        pool.workers[-1]._on_report(told("last"))
        assert max(len(worker.files) for worker in pool.workers) <= FILES_MAX + 1, (
            "the app's own file, and so many others"
        )
        (tmp_path / "go").write_text("")
