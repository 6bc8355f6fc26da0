"""The life of workers and of the crew: started when needed, ended when not, replaced when they cannot be trusted."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from rota.model.states import Outcome
from rota.runners.boundary.promises import BoundaryKind
from rota.runners.hand import FILES_MAX
from rota.runners.wire import Report
from tests.runners.harness import LEASE_S, Heard, Rig, boottime_s, rig, write_app

APP = """
@app.task
def pid(): return os.getpid()
@app.task
def one(): return 1
@app.task
async def waits():
    while not os.path.exists(HERE + "/go"): await asyncio.sleep(0.01)
"""


async def gone(crew: Rig, count: int = 0) -> None:
    async with asyncio.timeout(20):
        while len(crew.crew._yard.trees) > count:
            await asyncio.sleep(0.01)


async def test_a_worker_without_work_ends(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, idle_s=0.3) as crew:
        await crew.do(crew.call("one"))
        assert len(crew.crew._yard.trees) == 1
        await gone(crew)
        async with asyncio.timeout(20):
            while crew.crew._pools or crew.crew._room.used:
                await asyncio.sleep(0.01)
        assert (await crew.do(crew.call("one"))).outcome is Outcome.SUCCEEDED


async def test_an_idle_worker_gives_its_place_to_one_that_is_needed(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, processes_max=2) as crew:
        for tenant in ("a", "b", "c", "a", "d"):
            assert (await crew.do(crew.call("one", tenant=tenant))).outcome is Outcome.SUCCEEDED
            assert crew.crew._room.used <= 2
        assert (await crew.do(crew.shell("true"))).outcome is Outcome.SUCCEEDED


async def test_what_finds_no_place_waits_and_all_of_it_is_done(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, processes_max=2) as crew:
        attempts = [crew.call("one", tenant=f"t{number % 5}") for number in range(15)]
        attempts += [crew.shell("true") for _ in range(5)]
        ends = await crew.do_all(attempts)
        assert [end for end in ends if end.outcome is not Outcome.SUCCEEDED] == []
        assert crew.crew._room.used <= 2


async def test_long_items_soon_get_a_worker_each(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as crew:
        attempts = [crew.call("waits") for _ in range(4)]
        crew.begin(*attempts)
        for attempt in attempts:
            await crew.start(attempt)
        assert len(crew.crew._yard.trees) == 4
        (tmp_path / "go").touch()
        assert {(await crew.end(attempt)).outcome for attempt in attempts} == {Outcome.SUCCEEDED}


async def test_a_changed_app_file_is_loaded_by_new_workers(tmp_path: Path) -> None:
    async with rig(tmp_path, "@app.task\ndef version(): return 1\n" + APP) as crew:
        old = crew.call("waits", concurrency=2)
        crew.begin(old)
        await crew.start(old)
        assert (await crew.do(crew.call("version"))).result == "1"
        write_app(tmp_path / "app.py", "@app.task\ndef version(): return 2\n" + APP, tmp_path)
        async with asyncio.timeout(20):
            while (await crew.do(crew.call("version"))).result != "2":
                await asyncio.sleep(0.05)
        assert (await crew.do(crew.call("version"))).result == "2"
        (tmp_path / "go").touch()
        assert (await crew.end(old)).outcome is Outcome.SUCCEEDED


async def test_a_worker_of_a_changed_app_ends_what_it_has_however_long_that_takes(tmp_path: Path) -> None:
    async with rig(tmp_path, "@app.task\ndef version(): return 1\n" + APP) as crew:
        old = crew.call("waits")
        crew.begin(old)
        await crew.start(old)
        (hand,) = (hand for pool in crew.crew._pools.values() for hand in pool.hands)
        write_app(tmp_path / "app.py", "@app.task\ndef version(): return 2\n" + APP, tmp_path)
        async with asyncio.timeout(20):
            while not hand.is_retiring:  # it is looked at again when something waits, but not all the time
                await crew.do(crew.call("version"))
                await asyncio.sleep(0.05)
        assert (await crew.do(crew.call("version"))).result == "2"
        for _, _, waiter, what in list(crew.crew._timers._heap):
            if waiter is hand:
                waiter.ring(what)  # as when the time has come in which it should have been ready
        (tmp_path / "go").touch()
        assert (await crew.end(old)).outcome is Outcome.SUCCEEDED


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
    async with rig(tmp_path, APP + code) as crew:
        ends = await crew.do_all(
            [crew.call("one"), crew.call("one"), crew.call("pid"), crew.call("one", concurrency=3)]
        )
        assert {(end.outcome, end.started_s) for end in ends} == {(Outcome.FAILED, None)}
        assert all(words in end.message for end in ends), ends[0].message
        await gone(crew)
        assert sum(pool._hired for pool in crew.crew._pools.values()) <= 3


async def test_a_user_or_directory_that_is_not_there_fails_with_its_name(tmp_path: Path) -> None:
    from rota.model.work import Bounds

    async with rig(tmp_path, APP) as crew:
        user = await crew.do(crew.call("one", bounds=Bounds(user="nobody-of-that-name")))
        folder = await crew.do(crew.call("one", bounds=Bounds(directory="/no/such/folder")))
    assert user.outcome is folder.outcome is Outcome.FAILED
    assert "nobody-of-that-name" in user.message
    assert "/no/such/folder" in folder.message


async def test_nothing_begins_after_the_deadline(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, renewed=False) as crew:
        ends = await crew.do_all([crew.shell("touch", str(tmp_path / "ran")), crew.call("one")])
        crew.crew.renew(boottime_s() + LEASE_S)
        assert (await crew.do(crew.call("one"))).outcome is Outcome.SUCCEEDED
        crew.crew.renew(boottime_s() - 0.001)
        late = await crew.do(crew.call("one"))
    assert {(end.outcome, end.started_s) for end in (*ends, late)} == {(Outcome.LOST, None)}
    assert "lease is over" in late.message
    assert not (tmp_path / "ran").exists()


async def test_what_runs_at_the_deadline_is_lost_unless_it_holds_out(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as crew:
        doomed = [crew.shell("sleep", "60"), crew.call("waits"), crew.call("waits", concurrency=2)]
        held = crew.call("waits", hold_s=60)
        crew.begin(*doomed, held)
        for attempt in (*doomed, held):
            await crew.start(attempt)
        crew.crew.renew(boottime_s())
        ends = [await crew.end(attempt) for attempt in doomed]
        assert {end.outcome for end in ends} == {Outcome.LOST}
        assert "could not renew its lease" in ends[0].message
        (tmp_path / "go").touch()
        assert (await crew.end(held)).outcome is Outcome.SUCCEEDED


async def test_the_death_of_what_watches_over_processes_makes_their_items_lost(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, boundary=str(BoundaryKind.GROUP)) as crew:
        attempts = [crew.shell("sleep", "60"), crew.call("waits")]
        crew.begin(*attempts)
        for attempt in attempts:
            await crew.start(attempt)
        for tree in crew.crew._yard.trees:
            os.kill(tree.record().supervisor.pid, signal.SIGKILL)
        ends = [await crew.end(attempt) for attempt in attempts]
        assert {end.outcome for end in ends} == {Outcome.LOST}
        assert (await crew.do(crew.call("one"))).outcome is Outcome.SUCCEEDED


async def test_the_death_of_the_zygote_makes_items_lost_and_a_new_one_goes_on(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, boundary=str(BoundaryKind.NAMESPACE)) as crew:
        attempts = [crew.shell("sleep", "60"), crew.call("waits"), crew.call("waits", concurrency=2)]
        crew.begin(*attempts)
        for attempt in attempts:
            await crew.start(attempt)
        zygote = crew.crew._yard._zygote
        assert zygote is not None
        os.kill(zygote.pid, signal.SIGKILL)
        ends = [await crew.end(attempt) for attempt in attempts]
        assert {end.outcome for end in ends} == {Outcome.LOST}
        assert (await crew.do(crew.call("one"))).outcome is Outcome.SUCCEEDED


async def test_closing_kills_what_is_left_and_reports_it_as_lost(tmp_path: Path) -> None:
    async with rig(tmp_path, APP, processes_max=3) as crew:
        attempts = [crew.shell("sleep", "60"), crew.call("waits"), crew.call("waits", concurrency=2)]
        crew.begin(*attempts)
        for attempt in attempts:
            await crew.start(attempt)
        waiting = [crew.call("waits", tenant="waiting"), crew.shell("sleep", "60")]
        crew.begin(*waiting)
        attempts += waiting
        trees = crew.crew._yard.trees
        await crew.crew.close()
        ends = [crew.heard.ends[attempt.item_id, 1] for attempt in attempts]
    assert len(trees) == 3
    assert not any(os.path.exists(f"/proc/{tree.pid}") for tree in trees)  # noqa: ASYNC240, PTH110
    assert {(end.outcome, end.message) for end in ends} == {(Outcome.LOST, "this node was stopped")}


async def test_a_closed_crew_begins_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as crew:
        await crew.crew.close()
        crew.begin(attempt := crew.call("one"))
        assert (await crew.end(attempt)).outcome is Outcome.LOST


async def test_a_second_attempt_at_an_item_that_is_still_here_is_lost(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as crew:
        first = crew.call("waits")
        second = crew.call("waits", item_id=first.item_id, attempt=2)
        crew.begin(first)
        assert (await crew.do(second)).outcome is Outcome.LOST
        (tmp_path / "go").touch()
        assert (await crew.end(first)).outcome is Outcome.SUCCEEDED


async def test_a_thousand_items_of_many_kinds_each_end_exactly_once(tmp_path: Path) -> None:
    """The listener of the rig refuses to be told twice."""
    async with rig(tmp_path, APP) as crew:
        attempts = [crew.call("one", concurrency=1 + number % 3, tenant=f"t{number % 2}") for number in range(1000)]
        ends = await crew.do_all(attempts)
        heard: Heard = crew.heard
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
    async with rig(tmp_path, app, environment={"PATH": os.environ["PATH"], "ROTA_STORE": "secret"}) as crew:
        import json

        end = await crew.do(crew.call("look"))
        empty, names, kinds = json.loads(end.result or "")
    assert empty == ""
    assert set(names) - {"LC_CTYPE"} == {"HOME", "LANG", "PATH", "ROTA_TREE"}
    assert set(kinds) <= {"/dev/null", "pipe", "socket", "anon_inode"}


async def test_a_crew_that_was_closed_and_opened_again_begins_anew(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as crew:
        assert (await crew.do(crew.call("one"))).outcome is Outcome.SUCCEEDED
        await crew.crew.close()
        await crew.crew.open(crew.heard)
        crew.crew.renew(boottime_s() + LEASE_S)
        ends = await crew.do_all([crew.call("one"), crew.shell("true")])
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
    async with rig(tmp_path, app) as crew:
        ends = [await crew.do(crew.call("burns", bounds=Bounds(cpu_s=2))) for _ in range(4)]
    assert [end.outcome for end in ends] == [Outcome.SUCCEEDED] * 4


async def test_whatever_files_workers_tell_of_a_bounded_number_is_remembered(tmp_path: Path) -> None:
    def told(by: str) -> Report:
        return Report(files=[(f"{by}-{number}.py", (0, 0, 0)) for number in range(5 * FILES_MAX)])

    async with rig(tmp_path, APP) as crew:
        attempts = [crew.call("waits") for _ in range(3)]
        crew.begin(*attempts[:2])
        for attempt in attempts[:2]:
            await crew.start(attempt)
        (pool,) = crew.crew._pools.values()
        for number, hand in enumerate(pool.hands):
            hand._understand(told(str(number)))
        crew.begin(attempts[2])
        await crew.start(attempts[2])  # in a worker that begins with what both have told
        assert len(pool.hands) == 3
        pool.hands[-1]._understand(told("last"))
        assert max(len(hand.files) for hand in pool.hands) <= FILES_MAX + 1, "the app's own file, and so many others"
        (tmp_path / "go").write_text("")
