"""Attempts on a real node: they run out of time, are cancelled, fail and are tried again, and are finished from outside
(S2.5, S2.6, S2.16, S2.17, S2.20; P7)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rota.control.assigning import Answer
from rota.model.job import JobName, Task
from tests.checkers.slots import SECOND
from tests.cluster.shift import Shift, a_shift
from tests.factories import MANUAL, a_definition, allow


@pytest.fixture
async def shift(postgres_url: str, tmp_path: Path) -> AsyncIterator[Shift]:
    """A store with two tenants, no node yet."""
    async with a_shift(postgres_url, tmp_path) as made:
        await made.control.limits.set_quota("acme")
        await made.control.limits.set_quota("other")
        yield made


async def test_an_item_that_runs_out_of_time_harms_nobody_else_on_its_node(shift: Shift) -> None:
    await shift.start("node-0")
    other = await shift.assign("other", info={"ms": 0, "gate": "go"})
    await shift.until(lambda: len(shift.watcher.executing()) == 1, "the other tenant's item to execute")
    (unharmed,) = shift.watcher.executing().values()
    late = await shift.assign("acme", info={"ms": 60_000}, timeout_s=3)

    async def is_over() -> bool:
        return bool(await shift.attempts(late.items[0].id))

    await shift.until_asked(is_over, "its time to be over")
    assert unharmed.item in shift.watcher.executing()
    shift.watcher.open_gate("go")
    await shift.until_idle()
    (ended,) = await shift.attempts(late.items[0].id)
    assert ended["outcome"] == "timed_out"
    assert ended["ended_at"] - ended["started_at"] >= 3 * SECOND
    (line,) = await shift.attempts(other.items[0].id)
    assert (line["outcome"], line["attempt"]) == ("succeeded", 1)
    assert [it.pid for it in shift.watcher.lines if it.item == unharmed.item] == [unharmed.pid] * 2
    assert len(shift.starts(late.items[0].id)) == 1
    assert late.items[0].id not in shift.watcher.executing(), "reported as over while it runs"


async def test_a_task_that_ignores_being_asked_is_killed_after_its_grace(shift: Shift) -> None:
    await shift.start("node-0")
    task = Task(name="main", runner="python", config={"handler": "deaf"}, timeout_s=3.0, grace_s=0.5)
    definition = a_definition("deaf-for-long", rule=MANUAL, params={"info": {"ms": 60_000}}, tasks=(task,))
    await shift.control.jobs.apply([definition])
    run = await shift.control.jobs.trigger(JobName("default", "default", "deaf-for-long"), {})
    await shift.until_idle()
    ((item, (state, _, _)),) = (await shift.items(run.id)).items()
    (ended,) = await shift.attempts(item)
    assert (state, ended["outcome"]) == ("failed", "timed_out")
    assert ended["ended_at"] - ended["started_at"] >= 3.5 * SECOND
    assert shift.starts(item)[0].pid not in shift.watcher.alive, "reported as over while its process lives"


async def test_cancelling_stops_what_runs_and_starts_nothing_that_waits(shift: Shift) -> None:
    await shift.control.limits.set_quota("acme", cap=1)
    await shift.start("node-0")
    done = await shift.assign("acme", 5, info={"ms": 60_000})
    await shift.until(lambda: len(shift.watcher.executing()) == 1, "one to execute")
    (running,) = shift.watcher.executing()
    cancelled = await shift.control.runs.cancel([done.id])
    assert (cancelled.done.ended, cancelled.done.asked) == (4, 1)
    await shift.until_idle()
    assert {state for state, _, _ in (await shift.items(done.id)).values()} == {"cancelled"}
    assert [it["outcome"] for it in await shift.attempts(running)] == ["cancelled"]
    assert shift.watcher.started() == {(running, 1)}
    assert running not in shift.watcher.executing(), "reported as over while it runs"


async def test_cancelling_kills_what_ignores_it(shift: Shift) -> None:
    await shift.start("node-0")
    task = Task(name="main", runner="python", config={"handler": "deaf"}, grace_s=0.5)
    definition = a_definition("deaf", rule=MANUAL, params={"info": {"ms": 60_000}}, tasks=(task,))
    await shift.control.jobs.apply([definition])
    run = await shift.control.jobs.trigger(JobName("default", "default", "deaf"), {})
    await shift.until(lambda: len(shift.watcher.executing()) == 1, "it to execute")
    (item,) = shift.watcher.executing()
    await shift.control.runs.cancel([run.id])
    await shift.until_idle()
    assert [it["outcome"] for it in await shift.attempts(item)] == ["cancelled"]
    assert shift.starts(item)[0].pid not in shift.watcher.alive, "reported as over while its process lives"


async def test_a_failed_item_is_tried_again_on_another_node(shift: Shift) -> None:
    await shift.start("node-0", "node-1")
    done = await shift.assign("acme", 12, handler="fail", info={"failures": 1}, retries=1)
    await shift.until_idle()
    for item in done.items:
        first, second = await shift.attempts(item.id)
        assert (first["outcome"], second["outcome"]) == ("failed", "succeeded")
        assert first["node"] != second["node"]
        assert "as it was told to" in first["message"]


async def test_retries_end_when_they_are_used_up_and_the_client_is_told_once(shift: Shift) -> None:
    await shift.start("node-0")
    done = await shift.assign("acme", handler="fail", info={"failures": 9}, retries=2, notify=["on_fail"])
    await shift.until_idle()
    lines = await shift.attempts(done.items[0].id)
    assert [(it["attempt"], it["outcome"]) for it in lines] == [(n, "failed") for n in (1, 2, 3)]
    assert [state for state, _, _ in (await shift.items(done.id)).values()] == ["failed"]
    await shift.until(lambda: len(shift.watcher.told) > 0, "on_fail to be called")
    assert [(it["kind"], it["number"]) for it in shift.watcher.told] == [("fail", done.items[0].number)]


BACKOFFS: dict[str, tuple[Any, list[float]]] = {
    "fixed": (0.4, [0.4, 0.4, 0.4]),
    "list": ([0.2, 0.5], [0.2, 0.5, 0.5]),
    "exponential": ({"kind": "exponential", "seconds": 0.2, "factor": 2, "max_s": 0.6}, [0.2, 0.4, 0.6]),
    "jitter": ({"kind": "fixed", "seconds": 0.8, "jitter": 0.5}, [0.4, 0.4, 0.4]),
}


async def test_retries_keep_their_distance_by_the_stores_clock(shift: Shift) -> None:
    await shift.start("node-0")
    assigned = {}
    for name, (backoff, _) in BACKOFFS.items():
        retries = {"max": 3, "backoff": backoff}
        assigned[name] = await shift.assign("acme", handler="fail", info={"failures": 3}, retries=retries)
    await shift.until_idle()
    for name, (_, pauses) in BACKOFFS.items():
        lines = await shift.attempts(assigned[name].items[0].id)
        assert [it["outcome"] for it in lines] == ["failed"] * 3 + ["succeeded"]
        seen = [(after["assigned_at"] - before["ended_at"]) / SECOND for before, after in pairwise(lines)]
        print(f"\nbackoff {name}: {', '.join(f'{it:.3f}' for it in seen)} s, at least {pauses}")
        assert all(pause <= it for it, pause in zip(seen, pauses, strict=True)), (name, seen)


class Client:
    """Somebody outside who does the work."""

    def __init__(self, shift: Shift) -> None:
        self._shift = shift

    async def told(self, kind: str, count: int = 1) -> dict[str, Any]:
        """What the app's listener of that kind was told the n-th time."""

        def heard() -> list[dict[str, Any]]:
            return [it for it in self._shift.watcher.told if it["kind"] == kind]

        await self._shift.until(lambda: len(heard()) >= count, f"on_{kind} to be called {count} times")
        return heard()[count - 1]


async def outside(shift: Shift, number: str, running: int) -> None:
    """Wait until so many items are under way outside."""

    async def seen() -> bool:
        ((count,),) = await shift.witness.ask(
            "SELECT count(*) FROM rota_queue WHERE state = 'running' AND node_id IS NULL"
        )
        return bool(count == running)

    await shift.until_asked(seen, f"{number} to be under way outside")


async def test_an_item_is_finished_from_outside_once_and_with_its_own_token_only(shift: Shift) -> None:
    await shift.start("node-0")
    done = await shift.assign("acme", handler=None, timeout_s=60)
    told = await Client(shift).told("start")
    assert told["id"] == done.items[0].id
    await outside(shift, told["number"], 1)
    finish = shift.control.assignments.finish
    assert await finish(told["id"], told["token"] + 1, result="forged") is Answer.STALE
    assert await finish("4611686018427387904", told["token"]) is Answer.UNKNOWN
    assert await finish(told["id"], told["token"], result="done") is Answer.FINISHED
    assert await finish(told["id"], told["token"], result="done") is Answer.FINISHED, "the same report again"
    assert await finish(told["id"], told["token"], result="other") is Answer.STALE
    await shift.until_idle()
    assert [it[:2] for it in (await shift.items(done.id)).values()] == [("succeeded", '"done"')]
    assert len(await shift.attempts(told["id"])) == 1


async def test_finish_without_a_token_counts_for_the_first_attempt_only(shift: Shift) -> None:
    await shift.start("node-0")
    client = Client(shift)
    done = await shift.assign("acme", 2, handler=None, timeout_s=60, retries=1)
    first, second = await client.told("start", 1), await client.told("start", 2)
    await outside(shift, "both", 2)
    assert await shift.control.assignments.finish(first["id"], result=1) is Answer.FINISHED
    assert await shift.control.assignments.finish(second["id"], failed="try again") is Answer.FINISHED
    again = await client.told("start", 3)
    assert (again["id"], again["token"] > second["token"]) == (second["id"], True)
    await outside(shift, "the second attempt", 1)
    assert await shift.control.assignments.finish(again["id"], result="late") is Answer.STALE, "without a token"
    assert await shift.control.assignments.finish(again["id"], second["token"], result="late") is Answer.STALE, (
        "with the first's"
    )
    assert await shift.control.assignments.finish(again["id"], again["token"], result=2) is Answer.FINISHED
    await shift.until_idle()
    assert {it[:2] for it in (await shift.items(done.id)).values()} == {("succeeded", "1"), ("succeeded", "2")}


async def test_what_is_not_finished_in_time_is_over_and_the_client_is_told(shift: Shift) -> None:
    await shift.control.limits.set_quota("acme", cap=1)
    await shift.start("node-0")
    client = Client(shift)
    late = await shift.assign("acme", handler=None, timeout_s=2, notify=["on_timeout"])
    timely = await shift.assign("acme", handler=None, timeout_s=60, notify=["on_timeout"])
    told, following = await client.told("start"), await client.told("start", 2)
    assert await shift.control.assignments.finish(told["id"], told["token"], result="too late") is Answer.STALE
    await outside(shift, "the next item, which waited for the seat", 1)
    assert await shift.control.assignments.extend(following["id"], 60, following["token"]) is not None
    assert await shift.control.assignments.finish(following["id"], following["token"]) is Answer.FINISHED
    assert (await client.told("timeout"))["id"] == told["id"]
    await shift.until_idle()
    items = await shift.items(late.id) | await shift.items(timely.id)
    states = {item: state for item, (state, _, _) in items.items()}
    assert states == {told["id"]: "failed", following["id"]: "succeeded"}
    assert [it["outcome"] for it in await shift.attempts(told["id"])] == ["timed_out"]


async def test_jobs_leave_results_and_a_history_of_their_attempts(shift: Shift) -> None:
    await shift.start("node-0")
    task = Task(name="main", runner="python", config={"handler": "nap"})
    await shift.control.jobs.apply([a_definition("napping", rule=MANUAL, overlap=allow(), tasks=(task,))])
    run = await shift.control.jobs.trigger(JobName("default", "default", "napping"), {})
    await shift.until_idle()
    detail = await shift.control.runs.detail(run.id)
    assert detail.run.state == "succeeded"
    assert [(it.outcome, it.node) for it in detail.attempts] == [("succeeded", "node-0")]
    assert [it[1] for it in (await shift.items(run.id)).values()] == ['"slept in attempt 1"']
