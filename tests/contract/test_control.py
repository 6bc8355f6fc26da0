"""What people and clients ask, on every store: limits, assign, finish, extend, cancel, retry, explain, logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.clock import SystemClock
from rota.control import Control
from rota.control.assigning import Answer, Assigned
from rota.core.advance import Advance
from rota.core.dispatch.board import Rounds
from rota.core.explain import Why
from rota.errors import CommitUnknown, InvalidInput, NotFound, Refused
from rota.execution.log_directory import DirectoryLogs
from rota.model.dispatch import Granted, ItemEnd, ItemStart
from rota.model.job import JobName, Task
from rota.model.listener import listener_name
from rota.model.moment import micros
from rota.model.node import NewNode, Place
from rota.model.plan import RunFilter
from rota.model.run import Item, LogKey, Run
from rota.model.states import Cause, ItemState, JobState, RunState
from rota.model.work import GLOBAL, Limit, Rate, token_of
from rota.ports import Store
from rota.transactions.change import change
from rota.transactions.finish import finish
from rota.transactions.members import join
from rota.transactions.round import dispatch
from tests.factories import MANUAL, a_definition, put, queue

HERE = Place(host="h", boot_id="b", pid_namespace="n", pid=1, pid_started=1)


@pytest.fixture
def control(store: Store) -> Control:
    return Control(store, SystemClock())


class Executor:
    """A node that takes what a round gives it, and does nothing by itself."""

    def __init__(self, store: Store, seats: int) -> None:
        self._store = store
        self._seats = seats
        self._board = Rounds()
        self.id = 0
        self.last = 0

    async def join(self, name: str = "berlin", **fields: Any) -> Executor:
        apps = ("acme/default", "default/default", "other/default")
        told = [listener_name(app, it) for app in apps for it in ("on_start", "on_fail")]
        handlers = (*told, "default/default/send")
        node = NewNode(name=name, incarnation="i", place=HERE, seats=self._seats, handlers=handlers, **fields)
        self.id = (await self._store.transact(join, node, lease_s=60)).id
        return self

    async def round(self) -> list[Granted]:
        """What a round gives to this node."""
        done = await dispatch(self._store, self.id, self._board, batch_max=100)
        self.last = done.round
        return list(done.grants[self.id].items) if self.id in done.grants else []

    async def begin_outside(self, granted: Sequence[Granted], expires_s: float = 120.0) -> None:
        """Say that `on_start` of these items has returned."""
        now = micros(await self._store.now())
        starts = [
            ItemStart(item_id=it.item_id, attempt=it.attempt, started_us=now, expires_s=expires_s) for it in granted
        ]
        await finish(self._store, [], starts, rule=Advance())

    async def end(self, granted: Granted, outcome: str = "succeeded", state: str = "succeeded") -> None:
        """Say how an attempt has ended."""
        end = ItemEnd(
            item_id=granted.item_id,
            attempt=granted.attempt,
            run_id=granted.run_id,
            job_id=granted.job_id,
            lane_id=granted.lane_id,
            outcome=outcome,
            state=state,
            node="berlin",
            node_id=self.id,
        )
        await finish(self._store, [end], rule=Advance())


async def executor(store: Store, seats: int = 10) -> Executor:
    return await Executor(store, seats).join()


async def assigned(control: Control, *numbers: str, **options: Any) -> Assigned:
    await control.limits.set_quota("acme")
    return await control.assignments.assign("acme", numbers or ("n-1",), **options)


async def outside(store: Store, control: Control, *numbers: str, **options: Any) -> tuple[Executor, list[int]]:
    """Items whose end the client reports, started; and their tokens."""
    await assigned(control, *numbers, **options)
    node = await executor(store)
    granted = await node.round()
    await node.begin_outside(granted)
    return node, [token_of(node.last, it.attempt) for it in granted]


async def items_of(store: Store, assigned_: Assigned) -> list[Item]:
    return list(await store.items(assigned_.id))


async def the_run(store: Store) -> Run:
    (run,) = await store.runs(RunFilter())
    return run


# Tenants and limits


async def test_a_quota_keeps_what_is_not_said(control: Control) -> None:
    """S2.21: tenants are created and updated."""
    await control.limits.set_quota("acme", cap=5, weight=3, rate="10/60")
    limit = await control.limits.set_quota("acme", cap=7)
    assert (limit.cap, limit.weight, limit.rate) == (7, 3, Rate(max=10, period_s=60))
    limit = await control.limits.set_quota("acme", cap=None, rate=None)
    assert (limit.cap, limit.weight, limit.rate) == (None, 3, None)
    await control.limits.set_quota("acme", "mail", weight=2)
    found = [(it.tenant, it.quota, it.limit and it.limit.weight) for it in await control.limits.quotas()]
    assert found == [("acme", "default", 3), ("acme", "mail", 2)]


async def test_statistics_count_what_is_ready_and_what_runs(store: Store, control: Control) -> None:
    """S2.21."""
    await control.limits.set_quota("acme", cap=2)
    await control.assignments.assign("acme", ["a", "b", "c"])
    await control.assignments.assign("default", ["a"])
    node = await executor(store)
    await node.round()
    found = {(it.tenant, it.limit is not None): (it.ready, it.running) for it in await control.limits.quotas()}
    assert found == {("acme", True): (1, 2), ("default", False): (0, 1)}


async def test_a_tenant_with_unfinished_items_is_not_removed(store: Store, control: Control) -> None:
    """S2.21, A2.6."""
    _, tokens = await outside(store, control, "a", "b")
    with pytest.raises(Refused, match=r"tenant acme has 2 unfinished items in 1 runs; .* --cancel"):
        await control.limits.remove_tenant("acme")
    assert [it.tenant for it in await control.limits.quotas()] == ["acme"]
    run = await the_run(store)
    for item, token in zip(await store.items(run.id), tokens, strict=True):
        await control.assignments.finish(str(item.id), token)
    assert (await control.limits.remove_tenant("acme")).quotas == ("default",)
    assert await control.limits.quotas() == []
    with pytest.raises(NotFound, match="there is no tenant acme"):
        await control.limits.remove_tenant("acme")


async def test_a_tenant_is_removed_with_its_items_when_told_so(store: Store, control: Control) -> None:
    await outside(store, control, "a", "b")
    await control.assignments.assign("acme", ["later"], start_at=await store.now() + timedelta(hours=1))
    other = await control.assignments.assign("default", ["a"])
    done = await control.limits.remove_tenant("acme", cancel=True)
    assert (done.ended, done.asked) == (3, 0)
    assert [it.tenant for it in await control.limits.quotas()] == ["default"]
    assert [item.state for item in await items_of(store, other)] == [ItemState.READY]
    states = {item.state for run in await store.runs(RunFilter()) for item in await store.items(run.id)}
    assert states == {ItemState.CANCELLED, ItemState.READY}


async def test_one_quota_is_removed_unless_items_or_jobs_name_it(store: Store, control: Control) -> None:
    for name in ("default", "night", "spare"):
        await control.limits.set_quota("acme", name, cap=1)
    assigned = await control.assignments.assign("acme", ["a"], quota="night")
    with pytest.raises(Refused, match="quota night of tenant acme has 1 unfinished items"):
        await control.limits.remove_quota("acme", "night")
    await control.runs.cancel([assigned.id])
    task = Task(name="main", runner="shell", config={"command": ["true"]}, quota="night")
    job = msgspec.structs.replace(a_definition(), tenant="acme", tasks=(task,))
    await put(store, [job], None)
    with pytest.raises(Refused, match=f"job {job.full_name} names quota night of tenant acme"):
        await control.limits.remove_quota("acme", "night")
    assert (await control.limits.remove_quota("acme", "spare")).cap == 1
    assert [it.quota for it in await control.limits.quotas()] == ["default", "night"]
    with pytest.raises(NotFound, match="tenant acme has no quota nigth; did you mean night"):
        await control.limits.remove_quota("acme", "nigth")


async def test_the_capacity_is_100_until_somebody_says_otherwise(control: Control) -> None:
    """S2.18, S2.25."""
    assert await control.limits.all() == (Limit(name=GLOBAL, cap=100),)
    await control.limits.set_capacity(7)
    await control.limits.set("resource:db", cap=1, rate=(2, 0.5))
    await control.limits.set("resource:db", cap=3)
    assert [(it.name, it.cap, it.rate) for it in await control.limits.all()] == [
        ("global", 7, None),
        ("resource:db", 3, Rate(max=2, period_s=0.5)),
    ]
    await control.limits.remove("resource:db")
    await control.limits.remove("global")
    assert [(it.name, it.cap) for it in await control.limits.all()] == [("global", 100)]
    with pytest.raises(NotFound, match="there is no limit resource:db"):
        await control.limits.remove("resource:db")


async def test_a_capacity_of_nothing_stops_new_starts_only(store: Store, control: Control) -> None:
    """A2.11."""
    node, (token,) = await outside(store, control, "a")
    await control.limits.set_capacity(0)
    await control.assignments.assign("acme", ["b"])
    assert await node.round() == []
    (item,) = await store.items((await store.runs(RunFilter()))[1].id)
    assert await control.assignments.finish(str(item.id), token) is Answer.FINISHED
    await control.limits.set_capacity(1)
    assert len(await node.round()) == 1


BAD: list[tuple[str, str, tuple[Any, ...], dict[str, Any], str]] = [
    ("cap below", "limits.set_quota", ("acme",), {"cap": -1}, "cap"),
    ("cap above", "limits.set_capacity", (1_000_001,), {}, "cap"),
    ("cap is truth", "limits.set_capacity", (True,), {}, "cap"),
    ("no global cap", "limits.set", ("global",), {"cap": None}, "cap"),
    ("weight", "limits.set_quota", ("acme",), {"weight": 0}, "weight"),
    ("rate of nothing", "limits.set_quota", ("acme",), {"rate": "0/1"}, "rate"),
    ("rate in no time", "limits.set_quota", ("acme",), {"rate": (1, 0)}, "rate"),
    ("rate text", "limits.set_quota", ("acme",), {"rate": "often"}, "rate"),
    ("tenant", "limits.set_quota", ("a b",), {}, "tenant"),
    ("quota", "limits.set_quota", ("acme", "!"), {}, "quota"),
    ("resource", "limits.set", ("resource:",), {"cap": 1}, "resource"),
    ("quota as limit", "limits.set", ("quota:a/b",), {"cap": 1}, "name"),
    ("job as limit", "limits.set", ("job:1",), {"cap": 1}, "name"),
    ("token", "assignments.finish", ("1", "x"), {}, "token"),
    ("id", "assignments.finish", ("abc",), {}, "item"),
    ("id of nothing", "assignments.finish", ("0",), {}, "item"),
    ("id too large", "assignments.finish", ("9" * 19,), {}, "item"),
    ("result and failure", "assignments.finish", ("1",), {"result": 1, "failed": "no"}, "result"),
    ("result is no JSON", "assignments.finish", ("1",), {"result": {1}}, "result"),
    ("result is NaN", "assignments.finish", ("1",), {"result": float("nan")}, "result"),
    ("result too large", "assignments.finish", ("1",), {"result": "x" * 300_000}, "result"),
    ("failure is no text", "assignments.finish", ("1",), {"failed": 5}, "failed"),
    ("no time", "assignments.extend", ("1", 0), {}, "seconds"),
    ("too much time", "assignments.extend", ("1", 864_001), {}, "seconds"),
    ("unknown option", "assignments.assign", ("acme", ["a"]), {"colour": "red"}, "colour"),
    ("key", "assignments.assign", ("acme", ["a"]), {"key": ""}, "key"),
]


@pytest.mark.parametrize(("verb", "args", "options", "field"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
@pytest.mark.parametrize("another", ["memory"], indirect=True)
async def test_bad_input_is_refused_by_its_name(
    control: Control, verb: str, args: tuple[Any, ...], options: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        await attrgetter(verb)(control)(*args, **options)
    assert caught.value.problems[0].field == field
    assert await control.limits.quotas() == []


# Assign


async def test_one_call_makes_one_run_whose_items_are_spread_over_the_time_given(
    store: Store, control: Control
) -> None:
    """S2.22 to S2.24, V2.1: deadlines at 1/n, 2/n, ..., n/n of the range."""
    start = (await store.now() + timedelta(hours=1)).replace(microsecond=0)
    end = start + timedelta(seconds=10)
    made = await assigned(control, "a", "b", "c", "d", start_at=start, end_at=end, infos=[1, None, "x", {"y": 2}])
    items = await items_of(store, made)
    assert [(item.number, item.info) for item in items] == [("a", "1"), ("b", None), ("c", '"x"'), ("d", '{"y":2}')]
    assert [it.id for it in made.items] == [item.id for item in items]
    assert [it.number for it in made.items] == ["a", "b", "c", "d"]
    assert {item.not_before_at for item in items} == {start}
    assert [(item.start_by_at - start).total_seconds() for item in items] == [2.5, 5.0, 7.5, 10.0]


async def test_without_an_end_items_should_start_when_they_may(store: Store, control: Control) -> None:
    """V2.2."""
    start = (await store.now() + timedelta(hours=1)).replace(microsecond=0)
    (item,) = await items_of(store, await assigned(control, start_at=start))
    assert (item.not_before_at, item.start_by_at) == (start, start)


async def test_an_end_that_has_passed_is_refused(store: Store, control: Control) -> None:
    past = await store.now() - timedelta(seconds=5)
    with pytest.raises(InvalidInput, match="end_at: has passed"):
        await assigned(control, end_at=past)


async def test_a_number_is_taken_once_for_each_tenant(store: Store, control: Control) -> None:
    """S2.32."""
    await assigned(control, "a")
    with pytest.raises(InvalidInput, match="a"):
        await control.assignments.assign("acme", ["b", "a"])
    await control.assignments.assign("default", ["a"])
    assert len(await store.runs(RunFilter())) == 2


async def test_a_quota_that_nobody_set_is_refused(store: Store, control: Control) -> None:
    """S2.32: unknown worker rejected. Only the default quota of the default tenant is always there."""
    with pytest.raises(Refused, match="acme"):
        await control.assignments.assign("acme", ["a"])
    await control.limits.set_quota("acme")
    with pytest.raises(Refused, match="mail"):
        await control.assignments.assign("acme", ["a"], quota="mail")
    await control.assignments.assign("default", ["a"])
    assert len(await store.runs(RunFilter())) == 1


async def test_the_same_key_assigns_once(store: Store, control: Control) -> None:
    first = await assigned(control, "a", key="k")
    assert await control.assignments.assign("acme", ["a"], key="k") == first
    assert (await the_run(store)).cause is Cause.ASSIGN


# Finish


async def test_a_finish_with_the_token_counts_and_its_result_is_kept(store: Store, control: Control) -> None:
    """S2.20."""
    _, (token,) = await outside(store, control)
    run = await the_run(store)
    (item,) = await store.items(run.id)
    assert await control.assignments.finish(str(item.id), token, result={"sent": 3}) is Answer.FINISHED
    (item,) = await store.items(run.id)
    assert (item.state, item.result) == (ItemState.SUCCEEDED, '{"sent":3}')
    detail = await control.runs.detail(run.id)
    assert detail.run.state is RunState.SUCCEEDED, "the state of an assignment is derived from its items"
    assert [(it.attempt, str(it.outcome)) for it in detail.attempts] == [(1, "succeeded")]


async def test_a_finish_that_is_repeated_is_told_so_and_changes_nothing(store: Store, control: Control) -> None:
    """P7: a result counts once. The answer of the first may have been lost, so the second is the same."""
    _, (token,) = await outside(store, control)
    (item,) = await store.items((await the_run(store)).id)
    for _ in range(2):
        assert await control.assignments.finish(str(item.id), token, result=1) is Answer.FINISHED
    assert await control.assignments.finish(str(item.id), token, result=2) is Answer.STALE
    assert await control.assignments.finish(str(item.id), token, failed="no") is Answer.STALE
    (after,) = await store.items(item.run_id)
    assert (after.state, after.result) == (ItemState.SUCCEEDED, "1")
    assert len(await store.attempts(item.run_id)) == 1


async def test_a_stale_token_changes_nothing(store: Store, control: Control) -> None:
    """A2.14, P7: another attempt, and another generation of the store."""
    _, (token,) = await outside(store, control)
    (item,) = await store.items((await the_run(store)).id)
    for stale in (token + 1, token - 1, token + (1 << 32), 0, -1):
        assert await control.assignments.finish(str(item.id), stale) is Answer.STALE
    assert await control.assignments.finish(str(item.id), token) is Answer.FINISHED


async def test_an_item_that_is_not_there_is_unknown(control: Control) -> None:
    assert await control.assignments.finish("999999") is Answer.UNKNOWN
    assert await control.assignments.extend("999999", 5) is None


async def test_a_finish_without_a_token_counts_for_the_first_attempt_only(store: Store, control: Control) -> None:
    """A2.14."""
    node, _ = await outside(store, control, "a", "b", retries=1)
    first, second = await store.items((await the_run(store)).id)
    assert await control.assignments.finish(str(first.id)) is Answer.FINISHED
    assert await control.assignments.finish(str(second.id), failed="again") is Answer.FINISHED
    (again,) = await node.round()
    await node.begin_outside([again])
    assert (again.item_id, again.attempt) == (second.id, 2)
    assert await control.assignments.finish(str(second.id)) is Answer.STALE
    assert await control.assignments.finish(str(second.id), token_of(node.last, 2)) is Answer.FINISHED


async def test_an_item_that_has_not_started_cannot_be_finished(store: Store, control: Control) -> None:
    made = await assigned(control)
    assert await control.assignments.finish(made.items[0].id) is Answer.STALE
    (item,) = await items_of(store, made)
    assert item.state is ItemState.READY


async def test_a_finish_inside_of_on_start_counts(store: Store, control: Control) -> None:
    """The start is written a moment later; it must not bring the item back."""
    made = await assigned(control)
    node = await executor(store)
    granted = await node.round()
    token = token_of(node.last, granted[0].attempt)
    assert await control.assignments.finish(made.items[0].id, token) is Answer.FINISHED
    await node.begin_outside(granted)
    (item,) = await items_of(store, made)
    assert item.state is ItemState.SUCCEEDED
    assert await store.queued(item_ids=[item.id]) == ()


async def test_a_finish_after_the_timeout_is_stale(store: Store, control: Control) -> None:
    """A2.11: also while nobody has noticed yet that the time is over."""
    made = await assigned(control)
    node = await executor(store)
    granted = await node.round()
    await node.begin_outside(granted, expires_s=0.0)
    assert await control.assignments.finish(made.items[0].id) is Answer.STALE
    (item,) = await items_of(store, made)
    assert item.state is not ItemState.SUCCEEDED


async def test_a_failure_is_tried_again_and_then_final(store: Store, control: Control) -> None:
    """S2.6, S2.17: after the retries the listener is told, as an item of its own."""
    node, _ = await outside(store, control, retries=1, notify=["on_fail"])
    run = await the_run(store)
    (item,) = await store.items(run.id)
    assert await control.assignments.finish(str(item.id), token_of(node.last, 1), failed="no luck") is Answer.FINISHED
    assert await control.assignments.finish(str(item.id), token_of(node.last, 1), failed="no luck") is Answer.FINISHED
    granted = await node.round()
    assert [it.attempt for it in granted] == [2]
    await node.begin_outside(granted)
    assert await control.assignments.finish(str(item.id), token_of(node.last, 2), failed="no luck") is Answer.FINISHED
    (item,) = await store.items(run.id)
    assert (item.state, item.message) == (ItemState.FAILED, "no luck")
    assert [str(it.outcome) for it in await store.attempts(run.id)] == ["failed", "failed"]
    notices = [it for it in await store.runs(RunFilter()) if it.cause is Cause.NOTICE]
    assert len(notices) == 1
    assert len(await node.round()) == 1, "the notice is dispatched"


async def test_an_item_with_a_handler_is_not_finished_from_outside(store: Store, control: Control) -> None:
    made = await assigned(control, handler="send")
    node = await executor(store)
    assert len(await node.round()) == 1
    with pytest.raises(Refused, match="is executed by rota"):
        await control.assignments.finish(made.items[0].id)


async def test_more_time_counts_from_now(store: Store, control: Control) -> None:
    _, (token,) = await outside(store, control)
    (item,) = await store.items((await the_run(store)).id)
    before = await store.now()
    until = await control.assignments.extend(str(item.id), 3600, token)
    assert until is not None
    assert until >= before + timedelta(seconds=3600)
    (queued,) = await store.queued(item_ids=[item.id])
    assert queued.expires_at == until
    assert await control.assignments.extend(str(item.id), 3600, token + 1) is None
    assert await control.assignments.extend(str(item.id), 5) is not None, "the first attempt needs no token"
    await control.assignments.finish(str(item.id), token)
    assert await control.assignments.extend(str(item.id), 5, token) is None


# Runs


async def a_job(control: Control, **fields: Any) -> JobName:
    definition = a_definition(rule=MANUAL, **fields)
    await control.jobs.apply([definition])
    return definition.full_name


async def test_what_has_not_started_is_cancelled_at_once_and_what_runs_is_asked(store: Store, control: Control) -> None:
    name = await a_job(control, overlap=queue())
    running, waiting = await control.jobs.trigger(name, {}), await control.jobs.trigger(name, {})
    assert (running.state, waiting.state) == (RunState.WAITING, RunState.WAITING)
    done = await control.runs.cancel([waiting.id])
    assert [run.state for run in done.runs] == [RunState.CANCELLED]
    node = await executor(store)
    (granted,) = await node.round()
    done = await control.runs.cancel([running.id, waiting.id])
    assert (done.done.ended, done.done.asked) == (0, 1)
    assert {run.id: (run.state, run.cancel_at is not None) for run in done.runs}[running.id] == (
        RunState.RUNNING,
        True,
    )
    assert await store.asked_to_cancel([granted.item_id]) == (granted.item_id,)
    with pytest.raises(NotFound, match="there is no run 999"):
        await control.runs.cancel([running.id, 999])


async def ended_run(store: Store, control: Control, name: JobName, **params: Any) -> Run:
    run = await control.jobs.trigger(name, params)
    await control.runs.cancel([run.id])
    found = await store.run(run.id)
    assert found is not None
    assert found.state is RunState.CANCELLED
    return found


async def test_a_run_is_run_again_with_its_parameters_and_the_newest_version(store: Store, control: Control) -> None:
    name = await a_job(control)
    source = await ended_run(store, control, name, region="eu")
    (job,) = await store.named([name])
    await control.jobs.apply([a_definition(name.name, rule=MANUAL, title="new")])
    again = await control.runs.retry(source.id)
    assert (again.cause, again.key, again.params) == (Cause.RERUN, f"{source.id}.1", {"region": "eu"})
    assert (again.version, again.state) == (job.version + 1, RunState.WAITING)
    with pytest.raises(Refused, match=f"run {again.id} has not ended: it is waiting"):
        await control.runs.retry(again.id)
    await control.runs.cancel([again.id])
    old = await control.runs.retry(source.id, same_version=True)
    assert (old.key, old.version) == (f"{source.id}.2", source.version)


async def test_a_run_again_keeps_to_the_overlap_policy(store: Store, control: Control) -> None:
    name = await a_job(control)
    source = await ended_run(store, control, name)
    await control.jobs.trigger(name, {})
    again = await control.runs.retry(source.id)
    assert (again.state, str(again.reason)) == (RunState.SKIPPED, "overlap")
    assert (await control.runs.retry(again.id)).key == f"{again.id}.1", "what was skipped can be run again too"


async def test_assignments_and_deleted_jobs_are_not_run_again(store: Store, control: Control) -> None:
    made = await assigned(control)
    await control.runs.cancel([made.id])
    with pytest.raises(Refused, match="is an assignment"):
        await control.runs.retry(made.id)
    name = await a_job(control)
    source = await ended_run(store, control, name)
    await control.jobs.delete([name])
    assert (await store.named([name]))[0].state is JobState.DELETED
    with pytest.raises(NotFound, match="was deleted"):
        await control.runs.retry(source.id)
    with pytest.raises(NotFound, match="there is no run 999"):
        await control.runs.retry(999)


async def why(control: Control, run_id: int) -> list[Why]:
    return [reason.why for reason in (await control.runs.explain(run_id)).reasons]


async def test_a_waiting_run_says_why_from_its_assignment_to_its_end(store: Store, control: Control) -> None:
    made = await assigned(control, "a", "b", start_at=await store.now() + timedelta(hours=1))
    assert await why(control, made.id) == [Why.NOT_DUE] * 2
    made = await control.assignments.assign("acme", ["c", "d"])
    assert await why(control, made.id) == [Why.NO_EXECUTOR] * 2
    node = await executor(store)
    assert await why(control, made.id) == [Why.NEXT] * 2
    await control.limits.set_quota("acme", cap=1)
    granted = await node.round()
    assert await why(control, made.id) == [Why.ASSIGNED, Why.CAP]
    await node.begin_outside(granted)
    assert await why(control, made.id) == [Why.OUTSIDE, Why.CAP]
    for number in (0, 1):
        await control.assignments.finish(made.items[number].id)
        for it in await node.round():
            await node.begin_outside([it])
    assert await why(control, made.id) == [Why.ENDED]
    with pytest.raises(NotFound, match="there is no run 999"):
        await control.runs.explain(999)


async def test_the_place_in_line_is_told(store: Store, control: Control) -> None:
    await control.limits.set_quota("acme", cap=0)
    await control.limits.set_quota("other", cap=0)
    await control.assignments.assign("other", ["a", "b"])
    await control.assignments.assign("acme", ["a", "b"])
    made = await control.assignments.assign("acme", ["c"])
    await executor(store)
    (reason,) = (await control.runs.explain(made.id)).reasons
    assert "place 5 in line, 4 before it, 2 of them of its quota" in reason.text


async def test_a_run_that_waits_by_its_overlap_policy_names_those_before_it(store: Store, control: Control) -> None:
    name = await a_job(control, overlap=queue())
    first, second, third = [await control.jobs.trigger(name, {}) for _ in range(3)]
    assert await why(control, first.id) == [Why.NO_EXECUTOR]
    (reason,) = (await control.runs.explain(third.id)).reasons
    assert reason.text.endswith(f"for runs {first.id}, {second.id} to end")


async def test_a_run_shows_where_its_items_are_and_what_was_tried(store: Store, control: Control) -> None:
    name = await a_job(control)
    run = await control.jobs.trigger(name, {})
    node = await executor(store)
    (granted,) = await node.round()
    detail = await control.runs.detail(run.id)
    assert detail.job == name
    (live,) = detail.live.values()
    assert (live.state, live.node_id) == (ItemState.ASSIGNED, node.id)
    assert detail.nodes[node.id].joined.name == "berlin"
    await node.end(granted)
    detail = await control.runs.detail(run.id)
    assert (detail.run.state, detail.live) == (RunState.SUCCEEDED, {})
    assert [(it.node, str(it.outcome)) for it in detail.attempts] == [("berlin", "succeeded")]


# Nodes


async def test_drained_nodes_get_nothing_until_they_are_taken_off_the_list(store: Store, control: Control) -> None:
    await assigned(control)
    node = await executor(store)
    assert [str(it.state) for it in (await control.nodes.drain(["berlin"])).nodes] == ["draining"]
    assert await node.round() == []
    assert [str(it.state) for it in (await control.nodes.undrain(["berlin"])).nodes] == ["online"]
    assert len(await node.round()) == 1
    with pytest.raises(InvalidInput, match="name: "):
        await control.nodes.drain(["a b"])


# Logs


class Waiting(SystemClock):
    """A clock that lets something happen whenever somebody sleeps."""

    def __init__(self) -> None:
        self.steps: list[Any] = []
        self._past = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self._past

    async def sleep(self, seconds: float) -> None:
        self._past += seconds
        if self.steps and (step := self.steps.pop(0)) is not None:
            await step()


async def texts(control: Control, run_id: int, **options: Any) -> list[str]:
    return [piece.note or piece.why or piece.data.decode() async for piece in control.logs.read(run_id, **options)]


async def test_output_is_read_attempt_by_attempt(store: Store, tmp_path: Path) -> None:
    logs = DirectoryLogs(tmp_path)
    control = Control(store, SystemClock(), logs)
    run = await control.jobs.trigger(await a_job(control), {})
    assert await texts(control, run.id) == ["[no attempt was made yet]"]
    node = await executor(store)
    (first,) = await node.round()
    logs.append(LogKey(run.id, first.item_id, 1), 0, b"hello\n")
    assert await texts(control, run.id) == ["hello\n"]
    logs.close_log(LogKey(run.id, first.item_id, 1), 6)
    await node.end(first, "failed", "ready")
    (second,) = await node.round()
    logs.append(LogKey(run.id, first.item_id, 2), 0, b"again\n")
    logs.close_log(LogKey(run.id, first.item_id, 2), 6)
    await node.end(second)
    assert await texts(control, run.id) == ["again\n"]
    assert await texts(control, run.id, item=0, attempt=1) == ["hello\n", "[attempt 1 failed]"]
    assert await texts(control, run.id, attempt=3) == ["[there is no attempt 3]"]
    with pytest.raises(NotFound, match=r"has no item 1; it has items 0 to 0"):
        await texts(control, run.id, item=1)
    with pytest.raises(NotFound, match="there is no run 999"):
        await texts(control, 999)


async def test_what_a_dead_host_did_not_write_is_marked(store: Store, tmp_path: Path) -> None:
    """docs/failure.md: what was flushed is readable, and the gap is marked."""
    logs = DirectoryLogs(tmp_path)
    control = Control(store, SystemClock(), logs)
    run = await control.jobs.trigger(await a_job(control), {})
    node = await executor(store)
    (granted,) = await node.round()
    logs.append(LogKey(run.id, granted.item_id, 1), 0, b"half a li")
    await node.end(granted, "lost", "failed")
    assert await texts(control, run.id) == [
        "half a li",
        "[output after byte 9 was lost with its host]",
        "[attempt 1 lost]",
    ]


async def test_following_goes_on_from_the_first_byte_until_the_attempt_has_ended(store: Store, tmp_path: Path) -> None:
    logs, clock = DirectoryLogs(tmp_path), Waiting()
    control = Control(store, clock, logs)
    run = await control.jobs.trigger(await a_job(control), {})
    node = await executor(store)
    granted: list[Granted] = []

    async def begin() -> None:
        granted.extend(await node.round())

    async def speak() -> None:
        logs.append(LogKey(run.id, granted[0].item_id, 1), 0, b"one ")

    async def end() -> None:
        logs.append(LogKey(run.id, granted[0].item_id, 1), 4, b"two")
        logs.close_log(LogKey(run.id, granted[0].item_id, 1), 7)
        await node.end(granted[0])

    clock.steps = [None, begin, speak, None, end]
    assert await texts(control, run.id, follow=True) == ["one ", "two"]
    assert clock.steps == []


async def test_without_a_place_for_logs_nothing_is_read(control: Control) -> None:
    run = await control.jobs.trigger(await a_job(control), {})
    with pytest.raises(Refused, match="no place for logs"):
        await texts(control, run.id)


async def test_output_of_several_items_says_whose_it_is(store: Store, tmp_path: Path) -> None:
    logs = DirectoryLogs(tmp_path)
    control = Control(store, SystemClock(), logs)
    made = await assigned(control, "a", "b", handler="send")
    node = await executor(store)
    for granted in await node.round():
        logs.append(LogKey(made.id, granted.item_id, 1), 0, f"item {granted.item_id}".encode())
    pieces = [piece async for piece in control.logs.read(made.id)]
    assert [(it.item.number, it.data.decode(), it.of) for it in pieces] == [
        ("a", f"item {made.items[0].id}", 2),
        ("b", f"item {made.items[1].id}", 2),
    ]


class LosesReplies:
    """A store whose answer to the first write of each kind is lost, after it was done."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.lost: list[str] = []

    def __getattr__(self, name: str) -> Any:
        ask = getattr(self._store, name)
        if name not in ("transact", "write_once"):
            return ask

        async def asked(work: Callable[..., Any], *args: Any, **options: Any) -> Any:
            answer = await ask(work, *args, **options)
            is_question = work is change and answer.plan.is_empty
            if work.__name__ not in self.lost and not is_question:
                self.lost.append(work.__name__)
                raise CommitUnknown("the reply was lost")
            return answer

        return asked


async def test_a_request_whose_answer_was_lost_is_made_once(store: Store) -> None:
    losing = LosesReplies(store)
    control = Control(losing, Waiting())  # type: ignore[arg-type]
    made = await assigned(control)
    node = await executor(store)
    await node.begin_outside(await node.round())
    assert await control.assignments.extend(made.items[0].id, 60) is not None
    assert await control.assignments.finish(made.items[0].id, result=1) is Answer.FINISHED
    name = await a_job(control)
    source = await ended_run(store, control, name)
    losing.lost.remove("change")
    again = await control.runs.retry(source.id)
    assert again.key == f"{source.id}.1"
    assert sorted(losing.lost) == ["assign_run", "cancel", "change", "extend", "finish_items", "set_limits"]
    assert len(await store.runs(RunFilter())) == 3
    assert len(await store.attempts(made.id)) == 1
