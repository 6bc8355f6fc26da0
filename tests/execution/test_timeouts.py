"""The ladder: warn, ask, kill. Time counts from the first line; the end is told when death was seen."""

import asyncio
from pathlib import Path

import pytest

from rota.execution.live_attempt import TERMINATE
from rota.model.states import Outcome
from rota.model.work import AttemptEnd
from tests.execution.harness import PATIENCE_S, rig

APP = """
import itertools
ME = os.urandom(8).hex()
def up(name="up"): open(HERE + "/" + name, "w").write("up")
@app.task
def sleeps():
    print("before", flush=True)
    up()
    time.sleep(60)
@app.task
def stubborn():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        try:
            up()
            time.sleep(1)
        except BaseException: pass
@app.task
async def asleeps():
    try: await asyncio.sleep(60)
    finally: open(HERE + "/cleaned", "a").write("x")
@app.task
async def astubborn():
    while True:
        try: await asyncio.sleep(60)
        except asyncio.CancelledError: open(HERE + "/ignored", "a").write("x")
@app.task
async def late():
    try: await asyncio.sleep(60)
    except asyncio.CancelledError: return "finished all the same"
@app.task
async def blocks(): time.sleep(60)
@app.task
def quick(): return "quick"
@app.task
async def waits(name="file"):
    while not os.path.exists(HERE + "/" + name): await asyncio.sleep(0.01)
    return "waited"
@app.task
def cleans():
    try:
        while True:
            open(HERE + "/working", "w").write("x")
            try: time.sleep(0.01)
            except Exception: pass
    finally:
        open(HERE + "/cleaned", "a").write(f"{ME} ")
@app.task
def shells():
    try: os.system(f"echo up > {HERE}/up; sleep 60")
    finally: open(HERE + "/cleaned", "w").write("shells")
@app.task
def short():
    until = time.monotonic() + 0.008
    while time.monotonic() < until: pass
@app.task
def cleans_slowly():
    try:
        up()
        time.sleep(60)
    finally:
        code = subprocess.call(["sh", "-c", f"until [ -e {HERE}/go ]; do sleep 0.02; done; sleep 0.5"])
        open(HERE + "/cleaned", "w").write(str(code))
@app.task
def terminates(how):
    import multiprocessing
    process = multiprocessing.get_context(how).Process(target=time.sleep, args=(60,))
    process.start()
    process.terminate()
    process.join()
    return process.exitcode
@app.task
def swallows():
    while True:
        try:
            up()
            time.sleep(60)
        except BaseException: pass
def step(n): return n + 1
def spin():
    try:
        while True: pass
    finally: done("spin")
def count():
    n = 0
    try:
        while n >= 0: n += 1
    finally: done("count")
def steps():
    n = 0
    try:
        while True: n = step(n)
    finally: done("steps")
def done(name): open(HERE + "/done", "w").write(name)
@app.task
def loops(name):
    signal.signal(signal.SIGVTALRM, lambda *_: open(HERE + "/looping", "w").write("for a while"))
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.05)
    globals()[name]()
@app.task
def spins():
    file = os.open(HERE + "/up", os.O_CREAT | os.O_WRONLY)
    sum(itertools.chain(map(os.write, [file], [b"up"]), range(10**12)))  # when that is written, it is in C code
"""

TIMED_OUT = (Outcome.TIMED_OUT, "timeout")


def kind(end: AttemptEnd) -> tuple[Outcome, str]:
    return end.outcome, end.cause


def seconds(end: AttemptEnd) -> float:
    assert end.started_s is not None
    return end.ended_s - end.started_s


async def test_a_program_is_asked_and_ends(tmp_path: Path) -> None:
    code = f"trap 'echo asked; exit 3' TERM; echo ready; echo up > {tmp_path}/up; while true; do sleep 0.05; done"
    async with rig(tmp_path) as runner:
        attempt = runner.shell("sh", "-c", code, timeout_s=60, warn_s=0.1)
        runner.begin(attempt)
        await runner.heard.until(lambda: len(runner.heard.warnings) == 1)
        await runner.appears("up")
        await runner.fire_timer(attempt)
        end = await runner.end(attempt)
        log = runner.log(attempt)
        warnings = runner.heard.warnings
    assert kind(end) == TIMED_OUT
    assert end.message == "did not end within 60 s and stopped with exit code 3"
    assert log.startswith(b"ready\n")
    assert log.endswith(b"asked\n")
    assert warnings == [(attempt.item_id, 1, "takes longer than 0.1 s")]
    assert seconds(end) >= 0.1


async def test_a_program_that_ignores_the_word_is_killed_with_all_it_started(tmp_path: Path) -> None:
    code = f"trap '' TERM; setsid sleep 1000 & echo $! > {tmp_path}/child; while true; do sleep 1; done"
    async with rig(tmp_path) as runner:
        attempt = runner.shell("sh", "-c", code, timeout_s=60, grace_s=0.3)
        runner.begin(attempt)
        await runner.appears("child")
        asked_s = await runner.fire_timer(attempt)
        end = await runner.end(attempt)
        assert not runner.runner._process_trees.live
    assert kind(end) == TIMED_OUT
    assert end.message == "did not end within 60 s and was killed"
    assert end.ended_s - asked_s >= 0.3


@pytest.mark.parametrize(("name", "grace_s"), [("sleeps", 30), ("spins", 1), ("swallows", 1)])
async def test_a_plain_function_gets_an_exception_and_is_killed_if_that_has_no_effect(
    tmp_path: Path, name: str, grace_s: float
) -> None:
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call(name, timeout_s=60, grace_s=grace_s)
        runner.begin(attempt)
        await runner.appears("up")
        asked_s = await runner.fire_timer(attempt)
        end = await runner.end(attempt)
        after = await runner.do(runner.call("quick"))
        log = runner.log(attempt)
    how = "stopped when it was told to" if name == "sleeps" else "was killed"
    assert kind(end) == TIMED_OUT
    assert end.message == f"did not end within 60 s and {how}"
    assert after.result == '"quick"'
    assert log.startswith(b"before\nTraceback" if name == "sleeps" else b"")
    if name != "sleeps":
        assert end.ended_s - asked_s >= grace_s


@pytest.mark.parametrize("how", ["timeout", "cancel"])
@pytest.mark.parametrize("concurrency", [1, 3])
async def test_finally_runs_in_a_plain_function_that_must_end_and_its_worker_lives_on(
    tmp_path: Path, concurrency: int, how: str
) -> None:
    async with rig(tmp_path, APP) as runner:
        for number in range(2):
            (tmp_path / "working").unlink(missing_ok=True)
            attempt = runner.call("cleans", timeout_s=60, grace_s=30, concurrency=concurrency)
            runner.begin(attempt)
            await runner.start(attempt)
            await runner.appears("working")
            if how == "cancel":
                runner.runner.cancel([attempt.item_id])
            else:
                await runner.fire_timer(attempt)
            end = await runner.end(attempt)
            assert end.outcome == ("timed_out" if how == "timeout" else "cancelled")
            assert end.message.endswith("stopped when it was told to")
            workers = (tmp_path / "cleaned").read_text().split()
            assert len(workers) == number + 1
    assert len(set(workers)) == 1


@pytest.mark.parametrize("name", ["spin", "count", "steps"])
async def test_finally_runs_wherever_a_loop_is_interrupted(tmp_path: Path, name: str) -> None:
    """Python 3.11 to 3.13 take what a signal's handler raises in some of these loops for an error outside the `try`."""
    async with rig(tmp_path, APP) as runner:
        for _ in range(3):
            attempt = runner.call("loops", params={"name": name}, timeout_s=60)
            runner.begin(attempt)
            await runner.appears("looping")
            runner.runner.cancel([attempt.item_id])
            end = await runner.end(attempt)
            assert end.message.endswith("stopped when it was told to")
            assert (tmp_path / "done").read_text() == name
            (tmp_path / "done").unlink()
            (tmp_path / "looping").unlink()


async def test_finally_runs_although_a_child_process_holds_the_function_up(tmp_path: Path) -> None:
    """`os.system` is C code that sees no exception before its child ends: the signal ends that."""
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call("shells", timeout_s=60, grace_s=10)
        runner.begin(attempt)
        await runner.appears("up")
        await runner.fire_timer(attempt)
        end = await runner.end(attempt)
        text = (tmp_path / "cleaned").read_text()
    assert kind(end) == TIMED_OUT
    assert text == "shells"


async def test_a_function_that_cleans_up_has_all_of_its_grace(tmp_path: Path) -> None:
    """Neither it nor what it has started gets a signal meanwhile."""
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call("cleans_slowly", timeout_s=60, grace_s=60)
        runner.begin(attempt)
        await runner.appears("up")
        await runner.fire_timer(attempt)
        live = runner.live(attempt)
        async with asyncio.timeout(PATIENCE_S):
            while not live.is_stopping:
                await asyncio.sleep(0.01)
            await runner.fire_timer(attempt, TERMINATE)
            while live.timers_set > 1:
                await asyncio.sleep(0.01)
        (tmp_path / "go").touch()
        end = await runner.end(attempt)
    assert end.message == "did not end within 60 s and stopped when it was told to"
    assert (tmp_path / "cleaned").read_text() == "0"


@pytest.mark.parametrize("how", ["fork", "spawn"])
async def test_processes_of_a_task_end_by_a_signal_as_usual(tmp_path: Path, how: str) -> None:
    async with rig(tmp_path, APP) as runner:
        end = await runner.do(runner.call("terminates", params={"how": how}, timeout_s=60))
    assert end.result == "-15"


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_a_word_for_one_item_never_reaches_the_next_in_its_worker(tmp_path: Path, concurrency: int) -> None:
    """Items are cancelled at about the time when they end by themselves."""
    async with rig(tmp_path, APP) as runner:
        for number in range(60):
            one = runner.call("short", concurrency=concurrency)
            runner.begin(one)
            await runner.start(one)
            await asyncio.sleep(number % 12 * 0.001)
            runner.runner.cancel([one.item_id])
            next_one = await runner.do(runner.call("short", concurrency=concurrency))
            assert next_one.outcome is Outcome.SUCCEEDED, next_one
            assert (await runner.end(one)).outcome in (Outcome.SUCCEEDED, Outcome.CANCELLED)


async def test_a_plain_function_that_ignores_the_signal_is_killed(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call("stubborn", timeout_s=60, grace_s=0.2)
        runner.begin(attempt)
        await runner.appears("up")
        asked_s = await runner.fire_timer(attempt)
        end = await runner.end(attempt)
    assert kind(end) == TIMED_OUT
    assert end.message == "did not end within 60 s and was killed"
    assert end.ended_s - asked_s >= 0.2


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_coroutine_is_cancelled_and_its_worker_lives_on(tmp_path: Path, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        end = await runner.do(runner.call("asleeps", timeout_s=0.3, concurrency=concurrency))
        trees = runner.runner._process_trees.live
        assert len(trees) == 1
        again = await runner.do(runner.call("asleeps", timeout_s=0.1, concurrency=concurrency))
        assert runner.runner._process_trees.live == trees
    assert kind(end) == kind(again) == TIMED_OUT
    assert end.message == "did not end within 0.3 s and stopped when it was told to"
    assert (tmp_path / "cleaned").read_text() == "xx"


@pytest.mark.parametrize("concurrency", [1, 5])
@pytest.mark.parametrize("name", ["astubborn", "blocks"])
async def test_a_coroutine_that_goes_on_is_killed_with_its_worker(tmp_path: Path, name: str, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        end = await runner.do(runner.call(name, timeout_s=0.3, grace_s=0.2, concurrency=concurrency))
        assert not runner.runner._process_trees.live
    assert kind(end) == TIMED_OUT
    assert end.message == "did not end within 0.3 s and was killed"
    assert seconds(end) >= 0.5


@pytest.mark.parametrize("concurrency", [1, 5])
async def test_a_result_after_the_time_was_up_does_not_count(tmp_path: Path, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        end = await runner.do(runner.call("late", timeout_s=0.2, concurrency=concurrency))
    assert kind(end) == TIMED_OUT
    assert end.result is None


async def test_a_timeout_leaves_another_tenants_item_unharmed(tmp_path: Path) -> None:
    """Acceptance 2: also when a whole worker must be killed."""
    async with rig(tmp_path, APP) as runner:
        other = runner.call("waits", tenant="other", concurrency=2)
        another = runner.call("waits", tenant="another")
        runner.begin(other, another)
        await runner.start(other)
        await runner.start(another)
        for name, concurrency in (("stubborn", 1), ("sleeps", 1), ("blocks", 2), ("sleeps", 2)):
            end = await runner.do(runner.call(name, timeout_s=0.2, grace_s=0.1, concurrency=concurrency, tenant="slow"))
            assert kind(end) == TIMED_OUT
        (tmp_path / "file").touch()
        ends = [await runner.end(other), await runner.end(another)]
    assert [end.result for end in ends] == ['"waited"'] * 2


async def test_items_that_share_a_killed_worker_are_lost_and_only_they(tmp_path: Path) -> None:
    app = (
        APP
        + """
@app.task
def mixed(name):
    while True:
        try:
            up(name)
            time.sleep(60)
        except BaseException: pass
"""
    )
    async with rig(tmp_path, app) as runner:
        good = runner.call("mixed", params={"name": "good"}, concurrency=2, timeout_s=None)
        bad = runner.call("mixed", params={"name": "bad"}, concurrency=2, timeout_s=60, grace_s=0.1)
        runner.begin(good, bad)
        await runner.appears("good")
        await runner.appears("bad")
        await runner.fire_timer(bad)
        ends = [await runner.end(good), await runner.end(bad)]
    assert [end.outcome for end in ends] == [Outcome.LOST, Outcome.TIMED_OUT]
    assert "another item in it did not stop" in ends[0].message


async def test_time_counts_from_the_first_line_not_from_the_wait_for_a_worker(tmp_path: Path) -> None:
    async with rig(tmp_path, "time.sleep(4)\n@app.task\ndef quick(): return 1\n") as runner:
        end = await runner.do(runner.call("quick", timeout_s=3.5))
    assert end.outcome is Outcome.SUCCEEDED


async def test_no_item_waits_behind_a_running_one_in_a_worker(tmp_path: Path) -> None:
    """With one item at a time, what comes while a worker is busy goes to another one."""
    async with rig(tmp_path, APP) as runner:
        long = runner.call("waits")
        runner.begin(long)
        await runner.start(long)
        short = await runner.do(runner.call("quick", timeout_s=5))
        assert short.result == '"quick"'
        assert len(runner.runner._process_trees.live) == 2
        (tmp_path / "file").touch()
        assert (await runner.end(long)).result == '"waited"'


@pytest.mark.parametrize("make", ["shell", "plain", "coroutine", "shared"])
async def test_a_cancelled_attempt_ends_cancelled(tmp_path: Path, make: str) -> None:
    async with rig(tmp_path, APP) as runner:
        attempt = {
            "shell": runner.shell("sleep", "60"),
            "plain": runner.call("sleeps"),
            "coroutine": runner.call("asleeps"),
            "shared": runner.call("asleeps", concurrency=3),
        }[make]
        runner.begin(attempt)
        await runner.start(attempt)
        runner.runner.cancel([attempt.item_id, 999])
        runner.runner.cancel([attempt.item_id])
        end = await runner.end(attempt)
    assert kind(end) == (Outcome.CANCELLED, "cancel")


@pytest.mark.parametrize("make", ["shell", "plain", "coroutine", "shared"])
async def test_an_attempt_that_is_cancelled_at_once_ends_cancelled(tmp_path: Path, make: str) -> None:
    """Whether it waits, starts or has just started."""
    async with rig(tmp_path, APP) as runner:
        attempts = {
            "shell": [runner.shell("sleep", "60") for _ in range(5)],
            "plain": [runner.call("sleeps") for _ in range(5)],
            "coroutine": [runner.call("asleeps") for _ in range(5)],
            "shared": [runner.call("asleeps", concurrency=3) for _ in range(5)],
        }[make]
        for delay_s, attempt in zip((0, 0.001, 0.003, 0.01, 0.4), attempts, strict=True):
            runner.begin(attempt)
            await asyncio.sleep(delay_s)
            runner.runner.cancel([attempt.item_id])
        ends = [await runner.end(attempt) for attempt in attempts]
    assert {end.outcome for end in ends} == {Outcome.CANCELLED}


async def test_a_signal_for_one_item_never_hits_the_next(tmp_path: Path) -> None:
    """The item may end while the signal is under way; the worker then gets no other item."""
    async with rig(tmp_path, "@app.task\ndef nap(s): time.sleep(s)\n", processes_max=2) as runner:
        for _ in range(15):
            first = runner.call("nap", params={"s": 0.02})
            second = runner.call("nap", params={"s": 0.01})
            runner.begin(first, second)
            await runner.start(first)
            await asyncio.sleep(0.0195)
            runner.runner.cancel([first.item_id])
            assert (await runner.end(first)).outcome in (Outcome.CANCELLED, Outcome.SUCCEEDED)
            assert (await runner.end(second)).outcome is Outcome.SUCCEEDED


async def test_many_timers_of_items_that_ended_do_not_pile_up(tmp_path: Path) -> None:
    async with rig(tmp_path, "@app.task\nasync def nap(): await asyncio.sleep(0)\n", processes_max=1) as runner:
        for _ in range(4):
            await runner.do_all([runner.call("nap", concurrency=100, timeout_s=3600, warn_s=1800) for _ in range(1000)])
        assert len(runner.runner._timers) < 3000
