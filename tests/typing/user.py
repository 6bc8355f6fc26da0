"""A program as a user writes it. Type checkers must find nothing in it but what is marked; see test_user_file.py."""

from __future__ import annotations

import asyncio
from typing import assert_type

import rota
import rota.testing

app = rota.App(tenant="acme", project="shop", store="sqlite:///rota.db")
app.calendar("plant", weekdays="mon-fri", closed=["2026-12-24"])


@app.task
def add(a: int, b: int = 0) -> int:
    return a + b


@app.task(cron="0 3 * * *", zone="Europe/Berlin", retries={"max": 3, "backoff": [1, 10]}, timeout=300)
def report(day: str) -> dict[str, int]:
    return {day: 1}


@app.task
async def fetch(url: str, *, tries: int = 1) -> tuple[int, str]:
    await asyncio.sleep(tries)
    return 200, url


@app.task(every_s=5)
async def poll() -> None:
    here: rota.Context = rota.current()
    assert here.attempt > 0


@app.on_start
def begin(told: rota.Told) -> None:
    app.finish(told.id, told.token, result=told.info)


def plain() -> None:
    assert_type(add(1, 2), int)
    handle = add.delay(1, b=2)
    assert_type(handle, rota.Handle[int])
    assert_type(handle.result(timeout=10), int)
    assert_type(handle.id, int)
    assert_type(add.map([1, 2, 3], [4, 5, 6]).result(), list[int])
    assert_type(add.options(start_within_s=5, key="k").delay(1), rota.Handle[int])
    assert_type(report.delay("today").result(), dict[str, int])
    assert_type(report("today"), dict[str, int])
    assert_type(fetch.delay("http://a", tries=2).result(), tuple[int, str])
    made = app.assign(["n1"], [{"to": "a"}], handler=add, retries=2, timeout_s=5)
    assert_type(made.id, int)
    assert_type(made.items[0].id, int)
    run: rota.RunView = app.client.run(made.id)
    print(run.state, run.result, [item.result for item in run.items])
    try:
        handle.result(1.5)
    except rota.TaskFailed as error:
        print(error.message, error.traceback, error.run_id)
    except TimeoutError as error:
        print(error)


async def awaiting() -> None:
    assert_type(await add.delay(1), int)
    assert_type(await add.map([1]), list[int])
    assert_type(await (await fetch.delay_async("http://a")), tuple[int, str])
    assert_type(await fetch("http://a"), tuple[int, str])
    async with rota.AsyncClient("sqlite:///rota.db") as client:
        await client.trigger("nightly", {"a": 1})


def wrong() -> None:
    add.delay("1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    add.delay(1, c=2)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    fetch.delay()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    add.options(cap=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    text: str = add.delay(1).result()  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    print(text)


def test_it() -> None:
    with rota.testing.kit(app, now="2026-01-01T00:00Z") as kit:
        kit.advance(days=1)
        assert add.delay(1, 2).result() == 3
        runs: list[rota.testing.KitRun] = kit.runs("report")
        assert [run.message for run in runs] == []
        kit.trigger("report", day="today")
