"""The testing kit: the real scheduler, dispatch rule and retries, on virtual time, with functions called right here."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import rota
from rota.control.assigning import Answer
from rota.errors import InvalidInput
from rota.model.states import RunState
from rota.testing import RunFailed, kit

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def app() -> rota.App:
    return rota.App()


def test_functions_are_called_at_their_instants_and_their_results_are_kept(app: rota.App) -> None:
    seen: list[datetime] = []

    with kit(app) as empty:
        assert empty.runs() == []

    @app.task(cron="0 3 * * *")
    def nightly() -> dict[str, int]:
        slot = rota.current().slot_at
        assert slot is not None
        seen.append(slot)
        return {"runs": len(seen)}

    with kit(app, now="2026-01-01T00:00Z") as world:
        world.advance(days=3)
        assert world.now == MIDNIGHT + timedelta(days=3)
        assert seen == [MIDNIGHT + timedelta(days=day, hours=3) for day in range(3)]
        runs = world.runs("nightly")
        assert [run.result for run in runs] == [{"runs": 1}, {"runs": 2}, {"runs": 3}]
        assert {run.state for run in runs} == {RunState.SUCCEEDED}
        assert [run.slot_at for run in runs] == seen
        assert [run.ended_at for run in runs] == seen, "no time passes in a plain function"


def test_what_is_due_at_the_last_instant_happens_and_what_comes_later_does_not(app: rota.App) -> None:
    calls: list[int] = []

    @app.task(every_s=60)
    def tick() -> None:
        calls.append(1)

    with kit(app) as world:
        world.until("2026-01-01T00:00:59.999Z")
        assert len(calls) == 0
        world.advance(0.001)
        assert len(calls) == 1
        world.advance(hours=1)
        assert len(calls) == 61
        world.advance()
        assert len(calls) == 61


def test_a_long_time_passes_quickly_and_exactly(app: rota.App) -> None:
    @app.task(every_s=3600)
    def hourly() -> None: ...

    with kit(app) as world:
        world.advance(days=60)
        runs = world.runs("hourly")
        assert len(runs) == 60 * 24
        assert all(run.due_at.minute == run.due_at.microsecond == 0 for run in runs)


def test_trigger_returns_what_the_function_returned(app: rota.App) -> None:
    @app.task(params={"by": 2})
    def double(n: int, by: int) -> int:
        return n * by

    with kit(app) as world:
        assert world.trigger("double", n=4) == 8
        assert world.trigger("double", n=4, by=5) == 20
        assert [run.params for run in world.runs()] == [{"n": 4}, {"n": 4, "by": 5}]


def test_retries_take_their_time_and_the_last_result_counts(app: rota.App) -> None:
    tries: list[float] = []

    @app.task(retries={"max": 3, "backoff": [10, 60]})
    def shaky() -> str:
        tries.append(rota.current().attempt)
        if len(tries) < 3:
            raise ConnectionError("down")
        return "up"

    with kit(app) as world:
        assert world.trigger("shaky") == "up"
        assert tries == [1, 2, 3]
        assert world.now == MIDNIGHT + timedelta(seconds=70)
        assert world.runs()[0].attempts == 3


def test_a_failure_raises_from_what_the_function_raised(app: rota.App) -> None:
    @app.task(retries=1)
    def broken() -> None:
        raise KeyError("k")

    with kit(app) as world:
        with pytest.raises(RunFailed, match="broken failed: KeyError: 'k'") as caught:
            world.trigger("broken")
        assert isinstance(caught.value.__cause__, KeyError)
        (run,) = world.runs()
        assert (run.state, run.attempts, run.message) == (RunState.FAILED, 2, "KeyError: 'k'")


def test_arguments_and_results_are_checked_as_in_a_worker(app: rota.App) -> None:
    @app.task
    def picky(n: int) -> object:
        return {n}

    with kit(app) as world:
        with pytest.raises(RunFailed, match="is not given n"):
            world.trigger("picky")
        with pytest.raises(RunFailed, match="does not take m"):
            world.trigger("picky", n=1, m=2)
        with pytest.raises(RunFailed, match="cannot be written as JSON"):
            world.trigger("picky", n=1)


def test_coroutines_wait_in_virtual_time_and_run_out_of_it(app: rota.App) -> None:
    @app.task(timeout=30)
    async def sleepy(seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "awake"

    with kit(app) as world:
        assert world.trigger("sleepy", seconds=20) == "awake"
        assert world.now == MIDNIGHT + timedelta(seconds=20)
        with pytest.raises(RunFailed, match="took longer than 30 s"):
            world.trigger("sleepy", seconds=31)
        assert world.now == MIDNIGHT + timedelta(seconds=50)


def test_a_plain_function_may_run_a_loop_of_its_own(app: rota.App) -> None:
    async def answer() -> int:
        return 42

    @app.task
    def inside() -> int:
        return asyncio.run(answer())

    with kit(app) as world:
        assert world.trigger("inside") == 42


async def test_a_test_may_be_a_coroutine(app: rota.App) -> None:
    @app.task
    async def work() -> int:
        await asyncio.sleep(3600)
        return 1

    with kit(app) as world:
        assert world.trigger("work") == 1
    await asyncio.sleep(0)


def test_overlap_is_the_products_own(app: rota.App) -> None:
    @app.task(every_s=10, overlap="forbid")
    async def slow() -> None:
        await asyncio.sleep(15)

    with kit(app) as world:
        world.advance(seconds=45)
        assert [(str(run.state), str(run.reason)) for run in world.runs("slow")] == [
            ("succeeded", "None"),
            ("skipped", "overlap"),
            ("succeeded", "None"),
            ("skipped", "overlap"),
        ]


def test_items_start_in_the_order_of_dispatch_under_their_caps(app: rota.App) -> None:
    """S2.15: the earlier the acceptable start, the earlier the start."""
    order: list[str] = []

    @app.task
    async def work(number: str) -> None:
        order.append(number)
        await asyncio.sleep(10)

    with kit(app) as world:
        world.client.create_tenant("acme", cap=2)
        hour = timedelta(hours=1)
        app.assign(
            ["late-1", "late-2"], tenant="acme", handler=work, start_at=MIDNIGHT + hour, end_at=MIDNIGHT + 3 * hour
        )
        app.assign(["soon-1", "soon-2"], tenant="acme", handler=work, start_at=MIDNIGHT + hour, end_at=MIDNIGHT + hour)
        world.until(MIDNIGHT + hour)
        assert order == ["soon-1", "soon-2"]
        world.advance(seconds=10)
        assert order == ["soon-1", "soon-2", "late-1", "late-2"]


def test_the_clients_interface_works_inside_and_outside_of_functions(app: rota.App) -> None:
    """S2.16, S2.17, S2.5: listeners are called, and may finish."""
    calls: list[tuple[str, str | None, str]] = []

    @app.on_start
    def started(told: rota.Told) -> None:
        calls.append(("start", told.number, ""))
        if told.number == "at once":
            assert app.finish(told.id, told.token, result=told.info) is Answer.FINISHED

    @app.on_timeout
    def late(told: rota.Told) -> None:
        calls.append(("timeout", told.number, told.message))

    @app.on_fail
    def failed(told: rota.Told) -> None:
        calls.append(("fail", told.number, told.message))

    with kit(app) as world:
        made = app.assign(["at once", "never", "bad"], [{"a": 1}, None, None], timeout_s=60)
        world.advance(1)
        assert sorted(calls) == [("start", number, "") for number in ("at once", "bad", "never")]
        detail = world.client.run(made.id)
        assert {item.number: str(item.state) for item in detail.items if item.ended_at} == {"at once": "succeeded"}
        assert detail.items[0].result == {"a": 1}
        del calls[:]
        assert app.finish(made.items[2].id, failed="bad luck") is Answer.FINISHED
        world.advance(1)
        assert calls == [("fail", "bad", "bad luck")]
        world.advance(60)
        assert [(what, number) for what, number, _ in calls[1:]] == [("timeout", "never"), ("fail", "never")]
        assert app.finish(made.items[1].id) is Answer.STALE


def test_what_would_fire_is_told_without_firing_it(app: rota.App) -> None:
    calls: list[Any] = []

    @app.task(cron="0 12 * * *")
    def noon() -> None:
        calls.append(1)

    @app.task(every_s=6 * 3600)
    def quarter() -> None:
        calls.append(1)

    @app.task
    def by_hand() -> None: ...

    app.calendar("weekend", weekdays="sat,sun")

    @app.task(cron="0 9 * * *", calendar="weekend")
    def leisure() -> None: ...

    with kit(app, now="2026-01-02T00:00Z") as world:  # a Friday
        day = MIDNIGHT + timedelta(days=1)
        hours = [(6, "quarter"), (12, "noon"), (12, "quarter"), (18, "quarter"), (24, "quarter"), (30, "quarter")]
        expected = [
            *((day + timedelta(hours=hour), job) for hour, job in hours),
            (day + timedelta(hours=33), "leisure"),
        ]
        assert world.would_fire(until="2026-01-03T09:00Z") == expected
        assert calls == []
        world.until("2026-01-03T09:00Z")
        fired = sorted((run.due_at, run.job) for run in world.runs() if run.state is RunState.SUCCEEDED)
        assert fired == expected, "the forecast comes true"


def test_a_slot_that_jitter_holds_back_is_told_too(app: rota.App) -> None:
    @app.task(cron="0 0 * * *", jitter_s=3600)
    def nightly() -> None: ...

    with kit(app, now="2026-01-01T23:59Z") as world:
        world.until("2026-01-02T00:00:01Z")
        assert world.runs() == []
        expected = world.would_fire(until="2026-01-02T12:00Z")
        world.until("2026-01-02T12:00Z")
        assert [(run.due_at, run.job) for run in world.runs()] == expected
        assert len(expected) == 1


def test_a_run_that_cannot_come_to_an_end_says_why(app: rota.App) -> None:
    @app.task
    def work() -> None: ...

    with kit(app) as world:
        world.client.set_capacity(0)
        with pytest.raises(RunFailed, match="the global limit is full: 0 of 0 run"):
            world.trigger("work")


def test_apps_get_their_own_client_back(app: rota.App) -> None:
    with kit(app) as world:
        assert app.client is world.client
    assert app.client is not world.client


@pytest.mark.parametrize("now", ["yesterday", "2026-01-01T00:00", 5, datetime(2026, 1, 1)])  # noqa: DTZ001
def test_an_instant_has_an_offset(app: rota.App, now: Any) -> None:
    with pytest.raises(InvalidInput, match="now: must be an instant with an offset"):
        kit(app, now=now)


def test_time_does_not_go_back(app: rota.App) -> None:
    with kit(app) as world, pytest.raises(InvalidInput, match="time does not go back"):
        world.advance(-1)
