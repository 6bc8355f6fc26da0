"""What follows for a run when its items have ended."""

from datetime import UTC, datetime, timedelta

import pytest

from rota.core.advance import Advance, run_end
from rota.model.job import Definition, Job, Task
from rota.model.plan import Crowd, Facts, LiveRun, Plan
from rota.model.run import Item, Run
from rota.model.states import Cause, ItemState, JobState, RunState
from rota.model.trigger import Delay, Every, Instant, Rule, Schedule
from rota.model.value import digest
from rota.model.work import OnExhausted, Retry

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "job:1"
S, F, C, R, W = ItemState.SUCCEEDED, ItemState.FAILED, ItemState.CANCELLED, ItemState.READY, ItemState.RUNNING


def a_run(run_id: int = 7, state: RunState = RunState.RUNNING) -> Run:
    return Run(
        id=run_id,
        job_id=1,
        version=1,
        cause=Cause.SLOT,
        key=str(run_id),
        overlap_key=KEY,
        state=state,
        due_at=NOW,
        created_at=NOW,
    )


def an_item(index: int, state: ItemState, run_id: int = 7) -> Item:
    return Item(
        id=100 + index, run_id=run_id, task="main", index=index, state=state, not_before_at=NOW, start_by_at=NOW
    )


def a_job(rule: Rule, *, on_exhausted: OnExhausted = OnExhausted.FAIL, due_at: datetime | None = None) -> Job:
    task = Task(name="main", runner="shell", retry=Retry(on_exhausted=on_exhausted))
    definition = Definition(name="j", schedule=Schedule(rule=rule), tasks=(task,))
    first = None if due_at is None else Instant(slot_at=due_at, due_at=due_at)
    return Job.created(1, definition, digest(definition), first, NOW - timedelta(days=1))


def decided(job: Job, *states: ItemState, waiting: tuple[LiveRun, ...] = (), run: Run | None = None) -> Plan:
    run = run or a_run()
    items = tuple(an_item(n, state) for n, state in enumerate(states))
    facts = Facts(
        now=NOW,
        jobs=(job,),
        crowds={KEY: Crowd(running=int(run.state is RunState.RUNNING), waiting=waiting)},
        live={1: 1 + len(waiting)},
        runs=(run,),
        items=items,
    )
    return Advance().decide(facts)


@pytest.mark.parametrize(
    ("states", "end"),
    [
        ([S], RunState.SUCCEEDED),
        ([S, S], RunState.SUCCEEDED),
        ([S, F], RunState.FAILED),
        ([S, C], RunState.CANCELLED),
        ([F, C], RunState.FAILED),
        ([S, R], None),
        ([F, W], None),
        ([], None),
    ],
)
def test_a_run_ends_when_all_of_its_items_have(states: list[ItemState], end: RunState | None) -> None:
    assert run_end(a_run(), [an_item(n, state) for n, state in enumerate(states)]) is end


def test_the_end_of_a_run_is_written_once() -> None:
    job = a_job(Every(every_s=60), due_at=NOW + timedelta(seconds=5))
    assert [move.now for move in decided(job, S).moves] == [RunState.SUCCEEDED]
    assert decided(job, S, run=a_run(state=RunState.SUCCEEDED)).is_empty


def test_a_run_that_goes_on_changes_nothing() -> None:
    assert decided(a_job(Every(every_s=60), due_at=NOW + timedelta(seconds=5)), S, R).is_empty


def test_the_end_of_a_run_starts_the_one_that_has_waited_longest() -> None:
    job = a_job(Every(every_s=60), due_at=NOW + timedelta(seconds=5))
    waiting = tuple(LiveRun(id=n, job_id=1, state=RunState.WAITING, started=False) for n in (8, 9))
    moves = {move.run_id: move.now for move in decided(job, F, waiting=waiting).moves}
    assert moves == {7: RunState.FAILED, 8: RunState.RUNNING}


def test_a_trigger_that_follows_ends_is_armed_by_the_end() -> None:
    plan = decided(a_job(Delay(delay_s=5)), S)
    assert [change.now.next_fire_at for change in plan.jobs] == [NOW + timedelta(seconds=5)]


def test_a_job_is_paused_when_it_wants_to_be_after_its_retries_are_used_up() -> None:
    job = a_job(Every(every_s=60), on_exhausted=OnExhausted.PAUSE, due_at=NOW + timedelta(seconds=5))
    (change,) = decided(job, F).jobs
    assert (change.now.state, change.now.next_fire_at, change.kind) == (JobState.PAUSED, None, "job.paused")
    assert change.now.revision == job.revision + 1
    assert decided(job, S).jobs == ()
    assert list(Advance().keys([job])) == [KEY]


def test_a_pause_first_settles_what_is_owed() -> None:
    job = a_job(Every(every_s=60), on_exhausted=OnExhausted.PAUSE, due_at=NOW)
    plan = decided(job, F)
    assert len(plan.runs) == 1
    assert plan.jobs[0].now.state is JobState.PAUSED


def counted(pause_after: int, before: int, *ends: ItemState) -> Plan:
    """The plan for runs of one job that end together, in this order."""
    definition = Definition(name="j", schedule=Schedule(rule=Every(every_s=60)), pause_after=pause_after, tasks=(TASK,))
    job = Job.created(1, definition, digest(definition), None, NOW - timedelta(days=1))
    runs = tuple(a_run(7 + n) for n, _ in enumerate(ends))
    facts = Facts(
        now=NOW,
        jobs=(job,),
        crowds={KEY: Crowd(running=len(runs))},
        live={1: len(runs)},
        runs=runs[::-1],
        items=tuple(an_item(n, end, run_id=7 + n) for n, end in enumerate(ends)),
        streaks={1: before},
    )
    return Advance().decide(facts)


TASK = Task(name="main", runner="shell")


@pytest.mark.parametrize(
    ("before", "ends", "pauses"),
    [
        (0, (F,), False),
        (1, (F,), False),
        (2, (F,), True),
        (2, (S,), False),
        (2, (C,), False),
        (0, (F, F, F), True),
        (0, (F, S, F, F), False),
        (2, (S, F, F), False),
        (2, (S, F, F, F), True),
        (1, (F, C, F), True),
        (2, (F, S), True),
    ],
)
def test_a_job_is_paused_after_so_many_failures_in_a_row(
    before: int, ends: tuple[ItemState, ...], pauses: bool
) -> None:
    changes = counted(3, before, *ends).jobs
    assert [(it.now.state, it.kind) for it in changes] == [(JobState.PAUSED, "job.paused_by_failures")] * pauses
