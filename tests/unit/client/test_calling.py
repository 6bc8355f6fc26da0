"""Tasks are called as people call them: sent with `delay` and `map`, checked at the call, with results that come back
as values. Under the testing kit; with real nodes: tests/e2e."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
import rota.testing
from rota.control.runs import Explained, RunControl
from rota.errors import StoreUnavailable

app = rota.App()
seen: list[Any] = []


@app.task(retries=2, timeout_s=30)
def add(a: int, b: int = 0) -> int:
    """Add two numbers."""
    seen.append((a, b))
    return a + b


@app.task
async def slowly(a: int) -> int:
    await asyncio.sleep(60)
    return a


@app.task
def pair(a: int) -> tuple[int, str]:
    return a, str(a)


@app.task(retries=1)
def breaks(why: str) -> None:
    raise ValueError(why)


@app.task
def anything(info: object, number: int, **more: object) -> dict[str, object]:
    return {"info": info, "number": number, "more": more}


@app.task
async def calls_another(a: int) -> int:
    return 10 * await add.delay(a, 1)


@app.task
def waits_plainly() -> int:
    return add.delay(1).result()


@pytest.fixture(autouse=True)
def kit() -> Any:
    seen.clear()
    with rota.testing.kit(app, now="2026-01-01T00:00Z") as made:
        yield made


def test_a_task_is_sent_and_its_result_comes_back(kit: rota.testing.Kit) -> None:
    handle = add.delay(1, b=2)
    assert not handle.done()
    assert handle.result(timeout=10) == 3
    assert handle.done()
    run = handle.run()
    assert (run.id, run.result, run.items[0].info) == (handle.id, 3, {"a": 1, "b": 2})
    assert kit.client.run(handle.id) == run == kit.runs()[-1], "one shape for a run, wherever it is seen"


def test_a_task_can_still_be_called_right_here() -> None:
    assert add(1, 2) == 3
    coroutine = slowly(1)
    assert asyncio.iscoroutine(coroutine)
    coroutine.close()
    assert (add.__name__, add.__doc__, list(inspect.signature(add).parameters)) == (
        "add",
        "Add two numbers.",
        ["a", "b"],
    )
    assert add.name == "add"


def test_many_calls_are_one_run_and_their_results_keep_their_order() -> None:
    handles = add.map([1, 2, 3], [10, 20, 30])
    assert handles.result(timeout=10) == [11, 22, 33]
    assert len({it.id for it in handles}) == 1
    assert [it.result() for it in handles] == [11, 22, 33]
    assert add.map(iter([5])).result() == [5]


async def test_handles_can_be_awaited() -> None:
    assert await add.delay(1, 2) == 3
    assert await (await add.delay_async(3, 4)) == 7
    assert await add.map([1, 2]) == [1, 2]
    assert await (await slowly.map_async([1, 2])) == [1, 2]


def test_arguments_are_checked_at_the_call_and_nothing_is_sent(kit: rota.testing.Kit) -> None:
    wrong: Any = add
    with pytest.raises(TypeError, match=r"add\(\) missing a required argument: 'a'; it takes \(a, b=0\)$"):
        wrong.delay()
    with pytest.raises(TypeError, match=r"add\(\) got an unexpected keyword argument 'c'"):
        wrong.delay(1, c=2)
    with pytest.raises(TypeError, match=r"add\(\) too many positional arguments"):
        wrong.map([1], [2], [3])
    with pytest.raises(rota.InvalidInput, match=r"^b: holds .*set.*, which JSON cannot say"):
        wrong.delay(1, {1, 2})
    with pytest.raises(rota.InvalidInput, match="differ in length: 2, 1"):
        wrong.map([1, 2], [3])
    with pytest.raises(rota.InvalidInput, match="the list is empty"):
        wrong.map([])
    with pytest.raises(TypeError, match="takes a list for each parameter"):
        wrong.map("ab")
    with pytest.raises(rota.InvalidInput, match="1 to 10000 calls"):
        add.map(range(10_001))
    assert kit.runs() == []


def test_a_parameter_without_a_name_is_refused_at_the_call() -> None:
    other = rota.App()

    @other.task
    def total(*numbers: int) -> int:
        return sum(numbers)

    with pytest.raises(TypeError, match=r"total\(\) has the parameter \*numbers, which has no name to be sent by"):
        total.delay(1, 2)


def test_parameters_may_have_any_name() -> None:
    """`info` and `number` are what assigned items hand over; a call hands over what the caller says."""
    assert anything.delay({"x": 1}, number=7, extra=True).result() == {
        "info": {"x": 1},
        "number": 7,
        "more": {"extra": True},
    }


def test_a_tuple_comes_back_as_the_tuple_that_the_function_promised() -> None:
    assert pair.delay(1).result() == (1, "1")


def test_a_failure_is_raised_with_its_reason_and_the_remote_traceback(kit: rota.testing.Kit) -> None:
    handle = breaks.delay("no paper")
    with pytest.raises(rota.TaskFailed) as caught:
        handle.result()
    error = caught.value
    assert str(error).startswith(f"breaks failed (run {handle.id}): ValueError: no paper\n\nTraceback (most recent")
    assert "raise ValueError(why)" in error.traceback
    assert (error.run_id, error.state, error.message) == (handle.id, "failed", "ValueError: no paper")
    assert isinstance(error.__cause__, ValueError)
    assert handle.run().attempts == 2, "the task's own retries count"
    with pytest.raises(rota.TaskFailed):
        breaks.map(["a", "b"]).result()
    assert handle.run().result is None


def test_a_cancelled_call_is_told_as_that() -> None:
    handle = add.options(start_in_s=60).delay(1)
    handle.cancel()
    with pytest.raises(rota.TaskFailed, match="add cancelled"):
        handle.result()


def test_waiting_too_long_says_what_the_call_waits_for(kit: rota.testing.Kit) -> None:
    elsewhere = rota.App(project="elsewhere")

    @elsewhere.task
    def work() -> None: ...

    elsewhere.lend(kit.client)
    handle = work.delay()
    with pytest.raises(TimeoutError, match=r"work did not end within 5 s: .*has the handler default/elsewhere/work"):
        handle.result(timeout=5)
    assert any("has the handler default/elsewhere/work" in reason for reason in handle.explain())


def test_options_differ_from_the_tasks_own_for_what_is_sent_by_them(kit: rota.testing.Kit) -> None:
    later = add.options(start_in_s=3600, retries=0)
    assert later.delay(1).result() == 1
    assert kit.now >= datetime(2026, 1, 1, 1, tzinfo=UTC)
    once = add.options(key="order-17")
    assert once.delay(1).id == once.delay(1).id
    assert pair.options(key="order-17").delay(1).result() == (1, "1"), "the keys of two tasks never meet"
    several = add.options(key="many")
    assert [it.id for it in several.map([1, 2])] == [it.id for it in several.map([1, 2])]
    with pytest.raises(rota.Refused, match="the key many was used before, for 2 calls of add in run "):
        several.map([1, 2, 3])
    long = add.options(key="k" * 200)
    assert long.delay(1).id == long.delay(1).id
    add.options(start_within_s=5).delay(2).result()
    with pytest.raises(rota.InvalidInput, match="timeout_s: "):
        add.options(timeout=-1)
    with pytest.raises(rota.InvalidInput, match="timeout: timeout_s is given too"):
        add.options(timeout=5, timeout_s=7)
    wrong: Any = add
    with pytest.raises(rota.InvalidInput, match="cap: belongs to the job, not to one call"):
        wrong.options(cap=3)
    with pytest.raises(rota.InvalidInput, match="retry: is not known; did you mean retries"):
        wrong.options(retry=3)


def test_the_tasks_own_timeout_retries_and_bounds_are_the_defaults() -> None:
    made = rota.App()

    @made.task(timeout=7, retries=3, memory_mb=100, env={"A": "b"}, warn_s=5, grace_s=1, group="fast", quota="mail")
    def work() -> None: ...

    _, call = made.call_of("work", {"timeout_s": 9})
    done = call.work
    assert (done.timeout_s, done.retry.max, done.bounds.memory_mb, done.env) == (9, 3, 100, {"A": "b"})
    assert (done.warn_s, done.grace_s, done.group, done.quota) == (5, 1, "fast", "mail")
    _, call = app.call_of("add", {})
    assert call.work.timeout_s == 30


def test_the_tasks_cap_holds_for_calls_and_for_its_job_together() -> None:
    made = rota.App()
    running: list[int] = []
    most = [0]

    @made.task(cap=2, every_s=1, overlap={"policy": "allow", "live_max": 10})
    async def work() -> None:
        running.append(1)
        most[0] = max(most[0], len(running))
        await asyncio.sleep(10)
        running.pop()

    with rota.testing.kit(made) as kit:
        for _ in range(3):
            work.delay()
        kit.advance(seconds=30)
        assert most[0] == 2


def test_a_cap_without_a_stored_job_is_refused_with_what_to_do(kit: rota.testing.Kit) -> None:
    made = rota.App(project="capped")

    @made.task(cap=2)
    def work() -> None: ...

    made.lend(kit.client)
    with pytest.raises(rota.Refused, match=r"capped/work has a cap or a rate, which its job counts.*rota job apply"):
        work.delay()


def test_a_task_sends_another_and_awaits_it() -> None:
    assert calls_another.delay(4).result() == 50
    with pytest.raises(rota.TaskFailed, match="make it async, and await"):
        waits_plainly.delay().result()


def test_time_passes_while_a_test_waits(kit: rota.testing.Kit) -> None:
    before = kit.now
    assert slowly.delay(3).result() == 3
    assert timedelta(seconds=60) <= kit.now - before < timedelta(seconds=63)
    with pytest.raises(TimeoutError, match="slowly did not end within 1 s"):
        slowly.delay(3).result(timeout=1)


def test_one_reader_waits_for_all_handles_and_looks_more_and_more_seldom(
    kit: rota.testing.Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = kit._engine.store
    read: list[int] = []
    loads = store.loads

    async def counted(ids: Any, *more: Any) -> Any:
        read.append(len(ids))
        return await loads(ids, *more)

    monkeypatch.setattr(store, "loads", counted)
    handles = slowly.map(range(200))
    assert handles.result() == list(range(200))
    waits = [count for count in read if count > 16]  # the others are what the node reads for its 16 seats
    assert waits[0] == 200, "all together"
    assert len(waits) < 2000, "in 13 times 60 s"


def test_a_task_is_pickled_by_its_name_as_functions_are() -> None:
    assert pickle.loads(pickle.dumps(add)) is add


def test_a_task_of_another_app_can_be_a_task_of_this_one_too() -> None:
    other = rota.App(project="other")
    again = other.task(add)
    assert again.function is add.function
    assert again(1, 2) == 3


def test_ids_have_one_name_and_the_old_ones_work_with_a_warning() -> None:
    made = app.assign(["n1"], [1], handler=anything)
    assert (made.id, made.items[0].id) == (app.client.run(made.id).id, app.client.run(made.id).items[0].id)
    with pytest.warns(DeprecationWarning, match="Assigned.run_id is now called id"):
        assert made.run_id == made.id
    with pytest.warns(DeprecationWarning, match="AssignedItem.uuid is now called id"):
        assert made.items[0].uuid == str(made.items[0].id)


def test_a_store_that_cannot_say_why_stops_nobody_from_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait itself outlives an outage; so must the question what it waits for. Without a limit: tests/e2e."""

    async def away(_: RunControl, run_id: int) -> Explained:
        raise StoreUnavailable("nobody answers")

    monkeypatch.setattr(RunControl, "explain", away)
    with pytest.raises(TimeoutError, match="slowly did not end within 1 s: the store does not say why: nobody answers"):
        slowly.delay(1).result(timeout=1)


def test_what_json_cannot_hold_is_refused_however_deep_it_is() -> None:
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(rota.InvalidInput, match="info: is nested too deeply, or holds itself"):
        anything.delay(itself, 1)


def test_errors_come_home_whole_from_another_process() -> None:
    for error in (
        rota.TaskFailed("add", run_id=7, state="failed", message="no paper", traceback="Traceback"),
        rota.InvalidInput.of("field", "is wrong"),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
