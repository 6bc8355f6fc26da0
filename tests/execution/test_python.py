"""Python tasks in warm workers: what a function gets, what becomes of what it returns, raises and leaves behind."""

import json
from pathlib import Path

import pytest

from rota.model.states import Outcome
from rota.model.work import MESSAGE_MAX, RESULT_MAX, Bounds
from tests.execution.harness import rig, write_app

APP = """
class Special(LookupError): pass

@app.task
def pid(): return os.getpid()
@app.task
async def apid(): return os.getpid()
@app.task
def echo(a, b=2): return [a, b]
@app.task
def anything(**params): return params
@app.task
def assigned(number, info): return [number, info]
@app.task
def given(value): return eval_(value)
@app.task
def special(): raise Special("no\\0pe \\ud800")
@app.task
async def aspecial(): raise Special("x" * 100_000)
@app.task
def leave(code): sys.exit(code)
@app.task
def crash(): os._exit(3)
@app.task
def segfault(): os.kill(os.getpid(), signal.SIGSEGV)
@app.task
def silent(): os._exit(0)
@app.task
def hungry(): return len(bytearray(1 << 31))
@app.task
def awaitable():
    async def inner(): return "inner"
    return inner()
@app.task
def own_loop():
    async def inner(): return "own"
    return asyncio.run(inner())
@app.task
def forks():
    child = os.fork()
    if child: os.waitpid(child, 0)
    return "once"
@app.task
def leaves_child():
    return subprocess.Popen(["sleep", "1000"]).pid
@app.task
def daemonises():
    subprocess.run(["sh", "-c", "setsid sleep 1000 > /dev/null 2>&1 & echo $!"])
    return os.getpid()
@app.task
async def stray():
    async def later():
        await asyncio.sleep(0.01)
        open(HERE + "/stray", "w").write("ran")
    asyncio.get_running_loop().create_task(later())
@app.task
async def pause():
    await asyncio.sleep(0.05)

RESULTS = {
    "nan": float("nan"), "inf": [float("inf")], "set": {1}, "bytes": b"x", "surrogate": "\\ud800",
    "big": "x" * 10_000_000,
    "circle": None, "edge": "x" * (256 * 1024 - 2), "over": "x" * (256 * 1024 - 1), "umlaut": "ä" * 140_000,
}
RESULTS["circle"] = [RESULTS]
RESULTS["deep"] = []
for _ in range(100_000): RESULTS["deep"] = [RESULTS["deep"]]
def eval_(name): return RESULTS[name]
"""


async def test_functions_run_in_a_warm_worker_that_is_used_again(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        pids = {(await runner.do(runner.call(name))).result for name in ("pid", "apid", "pid", "apid")}
    assert len(pids) == 1


async def test_no_worker_ever_serves_two_tenants(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        one = await runner.do(runner.call("apid", tenant="one"))
        other = await runner.do(runner.call("apid", tenant="other"))
        assert len(runner.runner._process_trees.live) == 2
    assert one.outcome is other.outcome is Outcome.SUCCEEDED


async def test_tasks_with_other_bounds_variables_or_hold_get_workers_of_their_own(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        await runner.do(runner.call("pid"))
        await runner.do(runner.call("pid", bounds=Bounds(directory="/usr")))
        await runner.do(runner.call("pid", env={"A": "1"}))
        await runner.do(runner.call("pid", hold_s=5))
        await runner.do(runner.call("pid", env={"A": "1"}))
        assert len(runner.runner._process_trees.live) == 4


async def test_parameters_are_keyword_arguments(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        both = await runner.do(runner.call("echo", params={"a": {"x": [1, None]}, "b": "ü"}))
        one = await runner.do(runner.call("echo", params={"a": 1}, concurrency=3))
        any_ = await runner.do(runner.call("anything", params={"x": 1.5}))
    assert [json.loads(end.result or "") for end in (both, one, any_)] == [[{"x": [1, None]}, "ü"], [1, 2], {"x": 1.5}]


@pytest.mark.parametrize("concurrency", [1, 3])
async def test_wrong_parameters_fail_before_the_function_starts(tmp_path: Path, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        unknown = await runner.do(runner.call("echo", params={"a": 1, "c": 2}, concurrency=concurrency))
        missing = await runner.do(runner.call("echo", concurrency=concurrency))
        too_many = await runner.do(runner.call("pid", params={"x": 1}, concurrency=concurrency))
    assert {end.outcome for end in (unknown, missing, too_many)} == {Outcome.FAILED}
    assert unknown.started_s is None
    assert unknown.message == "TypeError: echo() does not take c; it takes a, b"
    assert missing.message == "TypeError: echo() is not given a; it takes a, b"
    assert too_many.message == "TypeError: pid() does not take x; it takes no parameters"


async def test_an_assigned_item_hands_over_its_number_and_info_where_they_are_wanted(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        end = await runner.do(runner.call("assigned", number="A-1", info='{"k": [1]}', name="default"))
        without = await runner.do(runner.call("pid", number="A-2", info='{"k": [1]}', name="default"))
    assert json.loads(end.result or "") == ["A-1", {"k": [1]}]
    assert without.outcome is Outcome.SUCCEEDED


@pytest.mark.parametrize("concurrency", [1, 4])
async def test_an_exception_is_a_failure_with_its_type_text_bases_and_traceback(
    tmp_path: Path, concurrency: int
) -> None:
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call("special", concurrency=concurrency)
        end = await runner.do(attempt)
        long = await runner.do(runner.call("aspecial", concurrency=concurrency))
        log = runner.log(attempt).decode()
    assert (end.outcome, end.cause) == (Outcome.FAILED, "Special LookupError Exception")
    assert end.message == "Special: no\\x00pe \\ud800"
    assert log.startswith("Traceback (most recent call last):\n")
    assert 'app.py", line' in log
    assert "execution/worker" not in log
    assert len(long.message) == MESSAGE_MAX
    assert end.log_bytes == len(log.encode())


async def test_leaving_by_sys_exit_is_an_exit_code(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        ends = [await runner.do(runner.call("leave", params={"code": code})) for code in (0, None, 75, "words")]
        again = await runner.do(runner.call("leave", params={"code": 75}, concurrency=2))
        alive = await runner.do(runner.call("leave", params={"code": 0}, concurrency=2))
    assert [end.outcome for end in ends[:2]] == [Outcome.SUCCEEDED] * 2
    assert [(end.code, end.cause) for end in ends[2:]] == [(75, "75 SystemExit"), (1, "1 SystemExit")]
    assert (again.code, alive.outcome) == (75, Outcome.SUCCEEDED)


@pytest.mark.parametrize(
    ("name", "cause", "words"),
    [
        ("crash", "3", "exit code 3"),
        ("segfault", "139 SIGSEGV", "signal 11 (SIGSEGV)"),
        ("silent", "0", "exit code 0 before the function returned"),
    ],
)
async def test_a_function_that_ends_its_worker_fails_and_the_next_gets_another(
    tmp_path: Path, name: str, cause: str, words: str
) -> None:
    async with rig(tmp_path, APP) as runner:
        end = await runner.do(runner.call(name))
        after = await runner.do(runner.call("pid"))
    assert (end.outcome, end.cause) == (Outcome.FAILED, cause)
    assert words in end.message
    assert after.outcome is Outcome.SUCCEEDED


async def test_a_crash_among_several_items_makes_all_of_them_lost(tmp_path: Path) -> None:
    app = """
        @app.task
        async def perhaps(bad):
            await asyncio.sleep(0.2)
            if bad: os._exit(3)
            await asyncio.sleep(60)
    """
    async with rig(tmp_path, app) as runner:
        attempts = [runner.call("perhaps", concurrency=4, params={"bad": bad}) for bad in (False, True, False)]
        ends = await runner.do_all(attempts)
    assert {end.outcome for end in ends} == {Outcome.LOST}
    assert "which of its items is to blame is not known" in ends[0].message


async def test_running_out_of_memory_in_a_worker_is_named(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        end = await runner.do(runner.call("hungry", bounds=Bounds(memory_mb=400)))
    assert end.outcome is Outcome.FAILED
    assert end.cause.split()[0] == "memory"


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_result_that_is_not_json_is_a_failure_that_says_so(tmp_path: Path, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        for name in ("nan", "inf", "set", "bytes", "surrogate", "circle", "deep"):
            end = await runner.do(runner.call("given", params={"value": name}, concurrency=concurrency))
            assert (end.outcome, end.cause, end.result) == (Outcome.FAILED, "result", None)
            assert "cannot be written as JSON" in end.message


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_a_result_of_10_mb_fails_with_its_size_the_bound_and_what_to_do(tmp_path: Path, concurrency: int) -> None:
    async with rig(tmp_path, APP) as runner:
        big = await runner.do(runner.call("given", params={"value": "big"}, concurrency=concurrency))
        edge = await runner.do(runner.call("given", params={"value": "edge"}, concurrency=concurrency))
        over = await runner.do(runner.call("given", params={"value": "over"}, concurrency=concurrency))
        umlaut = await runner.do(runner.call("given", params={"value": "umlaut"}, concurrency=concurrency))
    assert big.outcome is over.outcome is umlaut.outcome is Outcome.FAILED
    assert f"10000002 bytes as JSON; at most {RESULT_MAX} are kept" in big.message
    assert "return where it is" in big.message
    assert len(edge.result or "") == RESULT_MAX


async def test_every_kind_of_function_is_called_as_it_wants(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        ends = [await runner.do(runner.call(name)) for name in ("awaitable", "own_loop", "forks")]
        shared = await runner.do(runner.call("awaitable", concurrency=2))
    assert [end.result for end in (*ends, shared)] == ['"inner"', '"own"', '"once"', '"inner"']


@pytest.mark.parametrize("name", ["leaves_child", "daemonises"])
async def test_a_worker_that_is_left_with_processes_is_killed_before_the_end_is_told(tmp_path: Path, name: str) -> None:
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call(name)
        end = await runner.do(attempt)
        assert not runner.runner._process_trees.live
        assert end.outcome is Outcome.SUCCEEDED
        assert b"left processes behind" in runner.log(attempt)
        after = await runner.do(runner.call("pid"))
        assert after.outcome is Outcome.SUCCEEDED


async def test_a_shared_worker_that_is_left_with_processes_is_replaced(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        end = await runner.do(runner.call("leaves_child", concurrency=3))
        assert end.outcome is Outcome.SUCCEEDED
        assert not runner.runner._process_trees.live


async def test_nothing_of_an_item_goes_on_in_the_loop_of_the_next(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        await runner.do(runner.call("stray"))
        for _ in range(3):
            await runner.do(runner.call("pause"))
    assert not (tmp_path / "stray").exists()


async def test_several_items_of_one_task_share_a_worker_and_run_together(tmp_path: Path) -> None:
    together = """
        seen = []
        @app.task
        async def meet():
            seen.append(1)
            while len(seen) < 10: await asyncio.sleep(0.01)
            return os.getpid()
        lock = __import__("threading").Barrier(10)
        @app.task
        def barrier(): return lock.wait(10) and None or os.getpid()
    """
    async with rig(tmp_path, together) as runner:
        async_ends = await runner.do_all([runner.call("meet", concurrency=10) for _ in range(10)])
        sync_ends = await runner.do_all([runner.call("barrier", concurrency=10) for _ in range(10)])
        assert len(runner.runner._process_trees.live) == 2
    for ends in (async_ends, sync_ends):
        assert {end.outcome for end in ends} == {Outcome.SUCCEEDED}
        assert len({end.result for end in ends}) == 1


async def test_a_function_of_a_module_runs_only_if_the_module_is_allowed(tmp_path: Path) -> None:
    """S18."""
    (tmp_path / "allowed_module.py").write_text(
        "def f(x): return x\nclass C:\n    @staticmethod\n    def g(): return 'g'\n"
    )
    async with rig(tmp_path, modules=("allowed_module",), paths=(str(tmp_path),)) as runner:

        async def called(function: str, **params: int) -> tuple[str, str]:
            end = await runner.do(runner.attempt(runner="python", config={"function": function}, params=params))
            return str(end.outcome), end.result or end.message

        assert await called("allowed_module:f", x=3) == ("succeeded", "3")
        assert await called("allowed_module:C.g") == ("succeeded", '"g"')
        assert await called("os:getpid") == ("failed", "this node may not import os; it may import allowed_module")
        assert await called("allowed_module2:f") == (
            "failed",
            "this node may not import allowed_module2; it may import allowed_module",
        )
        assert await called("allowed_module:h") == ("failed", "the module allowed_module has no function h")


async def test_what_a_node_does_not_have_fails_with_its_name(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        none = await runner.do(runner.call("no_such_task"))
        unknown = await runner.do(runner.attempt(runner="magic"))
    assert none.message == "this node has no app with default/default/no_such_task"
    known = "magic: is not a known kind of task; known are shell, python, http"
    assert unknown.message == f"this node cannot run this task: {known}"


async def test_a_task_that_the_file_lost_fails_and_what_is_there_is_named(tmp_path: Path) -> None:
    async with rig(tmp_path, "@app.task\ndef one(): pass\n") as runner:
        apps = write_app(tmp_path / "app.py", "@app.task\ndef two(): pass\n", tmp_path)
        runner.runner.set_apps({**apps, "default/default/one": str(tmp_path / "app.py")})
        end = await runner.do(runner.call("one"))
    assert end.outcome is Outcome.FAILED
    assert end.message.endswith("app.py has no default/default/one; it has default/default/two")


START, FAIL = "listener:default/default/on_start", "listener:default/default/on_fail"


async def test_listeners_of_the_app_are_called_with_the_item(tmp_path: Path) -> None:
    app = """
        @app.on_start
        def begin(told):
            seen = [told.id, told.token, told.number, told.info, told.tenant]
            open(HERE + "/told", "w").write(repr(seen))
        @app.on_fail
        async def fail(told): open(HERE + "/failed", "w").write(repr([told.id, told.number, told.message]))
    """
    async with rig(tmp_path, app) as runner:
        begun = runner.attempt(
            runner="python",
            config={"listener": START},
            number="N1",
            info='{"a":1}',
            token=9,
            external=True,
        )
        end = await runner.do(begun)
        about = {"id": 77, "number": "N7", "message": "went wrong"}
        failed = await runner.do(runner.attempt(runner="python", config={"listener": FAIL}, params=about))
    assert end.outcome is failed.outcome is Outcome.SUCCEEDED, (end.message, failed.message)
    assert (tmp_path / "told").read_text() == repr([begun.item_id, 9, "N1", {"a": 1}, "default"])
    assert (tmp_path / "failed").read_text() == repr([77, "N7", "went wrong"])
