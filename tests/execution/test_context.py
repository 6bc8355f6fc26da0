"""What a task can know about itself, and how it guards its effects."""

import json
import sqlite3
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from rota.client import context
from rota.client.context import Context, StaleToken, current, fence
from rota.errors import Refused
from rota.model.states import Outcome
from tests.execution.harness import rig

APP = """
import threading
from rota.client.context import current
def shown():
    here = current()
    return [here.run_id, here.item_id, here.attempt, here.token, here.idempotency_key, here.job, here.task, here.index,
            here.slot_at and here.slot_at.isoformat(), here.params, here.number, here.info]
@app.task
def plain(a=0): return shown()
@app.task
async def coroutine(a=0):
    await asyncio.sleep(0)
    return await asyncio.create_task(inner())
async def inner(): return await asyncio.to_thread(shown)
@app.task
def thread():
    seen = []
    one = threading.Thread(target=lambda: seen.append(current().item_id))
    one.start(); one.join()
    return seen[0]
@app.task
async def own():
    await asyncio.sleep(0.01)
    return current().item_id
"""


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("name", ["plain", "coroutine"])
async def test_a_task_knows_its_attempt_in_functions_coroutines_and_threads(
    tmp_path: Path, name: str, concurrency: int
) -> None:
    slot = datetime(2026, 3, 29, 1, 0, 0, 5, tzinfo=UTC)
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call(
            name,
            attempt=3,
            token=(2 << 32) | 3,
            index=4,
            slot_at=slot,
            params={"a": 1},
            number="N",
            info='["i"]',
            concurrency=concurrency,
        )
        end = await runner.do(attempt)
    assert end.outcome is Outcome.SUCCEEDED, end.message
    assert json.loads(end.result or "") == [
        attempt.run_id,
        attempt.item_id,
        3,
        (2 << 32) | 3,
        attempt.idempotency_key,
        f"default/default/{name}",
        "main",
        4,
        slot.isoformat(),
        {"a": 1},
        "N",
        ["i"],
    ]


async def test_with_one_item_at_a_time_any_thread_knows_it(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        attempt = runner.call("thread")
        end = await runner.do(attempt)
        assert end.result == str(attempt.item_id)


async def test_items_that_share_a_worker_each_know_their_own(tmp_path: Path) -> None:
    async with rig(tmp_path, APP) as runner:
        attempts = [runner.call("own", concurrency=50) for _ in range(50)]
        ends = await runner.do_all(attempts)
    assert [end.result for end in ends] == [str(attempt.item_id) for attempt in attempts]


def test_outside_of_a_task_there_is_no_current_one() -> None:
    with pytest.raises(Refused, match="no current task"):
        current()


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    path = str(tmp_path / "effects.db")
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE rota_fence (key VARCHAR(500) PRIMARY KEY, token BIGINT NOT NULL)")
    connection.execute("CREATE TABLE effect (attempt INTEGER)")
    connection.commit()
    connection.close()
    yield path
    context.enter(None)


def attempt(number: int, key: str = "job/slot/0", generation: int = 1) -> Context:
    token = (generation << 32) | number
    return Context(run_id=1, item_id=2, attempt=number, token=token, idempotency_key=key, job="j", task="t")


def effect(path: str, here: Context, key: str | None = None) -> None:
    """What a careful task does: fence and effect in one transaction."""
    context.enter(here)
    connection = sqlite3.connect(path, timeout=60)
    try:
        fence(connection, key)
        connection.execute("INSERT INTO effect VALUES (?)", (here.attempt,))
        connection.commit()
    finally:
        connection.rollback()
        connection.close()


def effects(path: str) -> list[int]:
    connection = sqlite3.connect(path)
    try:
        return [row[0] for row in connection.execute("SELECT attempt FROM effect ORDER BY rowid")]
    finally:
        connection.close()


def test_after_a_newer_attempt_an_older_one_changes_nothing(database: str) -> None:
    """P4: stale effects are refused, 0 accepted."""
    effect(database, attempt(1))
    effect(database, attempt(1))
    effect(database, attempt(3))
    with pytest.raises(StaleToken, match="attempt 2 must change nothing more"):
        effect(database, attempt(2))
    with pytest.raises(StaleToken):
        effect(database, attempt(1))
    effect(database, attempt(1, generation=2))
    assert effects(database) == [1, 1, 3, 1]


def test_fences_of_different_keys_do_not_touch_each_other(database: str) -> None:
    effect(database, attempt(5))
    effect(database, attempt(1, key="another"))
    effect(database, attempt(1), key="given")
    with pytest.raises(StaleToken):
        effect(database, attempt(1, key="another", generation=0), key="given")
    assert effects(database) == [5, 1, 1]


def test_a_fence_that_is_rolled_back_never_was(database: str) -> None:
    context.enter(attempt(9))
    connection = sqlite3.connect(database)
    fence(connection)
    connection.rollback()
    connection.close()
    effect(database, attempt(2))
    assert effects(database) == [2]


def test_many_attempts_at_once_leave_rising_tokens_only(database: str) -> None:
    def work(number: int) -> None:
        try:
            effect(database, attempt(number))
        except StaleToken:
            refused.append(number)

    refused: list[int] = []
    threads = [threading.Thread(target=work, args=(number,)) for number in (3, 1, 4, 2, 8, 5, 7, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = effects(database)
    assert done == sorted(done)
    assert sorted(done + refused) == list(range(1, 9))
    assert done[-1] == 8


class Recorder:
    """A driver that only remembers what it was asked; `execute` answers from a list."""

    def __init__(self, rows: list[Any], rowcount: int) -> None:
        self.asked: list[tuple[str, Any]] = []
        self.rows = rows
        self.rowcount = rowcount

    def cursor(self) -> "Recorder":
        return self

    def execute(self, operation: str, parameters: Any) -> None:
        self.asked.append((operation, parameters))

    def fetchone(self) -> Any:
        return self.rows.pop(0)

    def close(self) -> None: ...


@pytest.mark.parametrize(("driver", "mark"), [("psycopg", "%s"), ("pymysql", "%s")])
def test_other_drivers_get_their_own_marks_and_words(monkeypatch: pytest.MonkeyPatch, driver: str, mark: str) -> None:
    import sys
    from types import SimpleNamespace

    kind = type("Connection", (Recorder,), {"__module__": f"{driver}.connections"})
    monkeypatch.setitem(sys.modules, driver, SimpleNamespace(paramstyle="pyformat"))
    context.enter(attempt(4))
    passing = kind([(attempt(4).token,)], 1)
    fence(passing, "k")
    assert passing.asked[0][1] == ("k", attempt(4).token)
    assert all("?" not in words and mark in words for words, _ in passing.asked)
    stale = kind([(attempt(5).token,)], 0)
    with pytest.raises(StaleToken):
        fence(stale, "k")
    context.enter(None)
