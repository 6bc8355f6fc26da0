"""What a job owes, as a plain function (S3.41, P1, P14)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.conclude import conclude
from rota.core.define import Apply, Pause, Resume, Sources, compare
from rota.core.fire import Fire, settle
from rota.core.overlap import Floor
from rota.core.owed import SLOTS_MAX, first_instant, owed, seed_of
from rota.core.preview import preview
from rota.core.time.instants import upcoming
from rota.model.job import Definition, Job, Misfire, MisfirePolicy
from rota.model.plan import Crowd, Facts, NewRun, Plan
from rota.model.states import JobState, RunState, SkipReason
from rota.model.trigger import Calendar, Endless, Every, Instant, Pace
from rota.model.value import digest
from tests.factories import EVERY_SECOND, a_definition, allow, cron

T0 = datetime(2026, 3, 2, 12, 0, tzinfo=UTC)


def a_job(definition: Definition | None = None, *, next_at: datetime = T0, settled_at: datetime | None = None) -> Job:
    wanted = definition or a_definition(rule=EVERY_SECOND, overlap=allow())
    job = Job.created(1, wanted, digest(wanted), Instant(slot_at=next_at, due_at=next_at), T0 - timedelta(days=1))
    return msgspec.structs.replace(job, settled_at=settled_at)


def facts_of(*jobs: Job, now: datetime, running: int = 0) -> Facts:
    keys = {key for job in jobs for key in Fire().keys([job])}
    return Facts(now=now, jobs=jobs, crowds={key: Crowd(running=running) for key in keys})


def fired(job: Job, now: datetime) -> Plan:
    return Fire().decide(facts_of(job, now=now))


def slots_in(runs: tuple[NewRun, ...] | list[NewRun], period: timedelta) -> list[datetime]:
    return sorted(run.slot_at + n * period for run in runs if run.slot_at for n in range(run.slots))


def test_nothing_is_owed_before_its_time() -> None:
    assert fired(a_job(), T0 - timedelta(microseconds=1)).is_empty


def test_a_slot_is_owed_at_its_very_instant() -> None:
    plan = fired(a_job(), T0)
    assert [run.slot_at for run in plan.runs] == [T0]
    assert plan.jobs[0].now.next_fire_at == T0 + timedelta(seconds=1)


@pytest.mark.parametrize("state", [JobState.PAUSED, JobState.DELETED])
def test_a_job_that_is_not_enabled_owes_nothing(state: JobState) -> None:
    job = msgspec.structs.replace(a_job(), state=state)
    assert fired(job, T0 + timedelta(hours=1)).is_empty


def test_the_plan_carries_the_facts_it_was_made_on() -> None:
    job = a_job()
    (change,) = fired(job, T0).jobs
    assert (change.was, change.now.revision, change.kind) == (job, job.revision, None)


@given(
    period=st.sampled_from([0.1, 0.5, 1, 7, 3600]),
    late=st.floats(0, 4500, allow_nan=False),
    grace_s=st.sampled_from([0, 1, 60, 5000]),
    policy=st.sampled_from(list(MisfirePolicy)),
    backlog_max=st.sampled_from([0, 1, 100]),
    count_max=st.sampled_from([1, 100, 1000]),
)
@settings(max_examples=60, deadline=None)
def test_every_slot_up_to_now_is_recorded_once_and_what_starts_follows_the_policy(
    period: float, late: float, grace_s: float, policy: MisfirePolicy, backlog_max: int, count_max: int
) -> None:
    misfire = Misfire(policy=policy, grace_s=grace_s, count_max=count_max)
    more = {"misfire": misfire, "backlog_max": backlog_max, "overlap": allow(10**9)}
    definition = a_definition(rule=Every(every_s=period), schedule={"start_at": T0}, **more)
    job, now = a_job(definition), T0 + timedelta(seconds=late * period)
    facts = facts_of(job, now=now)
    after, runs = settle(job, now, Floor(facts.crowds))
    slots = [T0 + n * timedelta(seconds=period) for n in range(int(late) + 2)]
    due = [slot for slot in slots if slot <= now]
    assert slots_in(runs, timedelta(seconds=period)) == due
    assert len({run.key for run in runs}) == len(runs)
    assert after.next_fire_at == T0 + len(due) * timedelta(seconds=period)
    assert after.settled_at == due[-1]
    assert [run.slot_at for run in runs if run.state is RunState.RUNNING] == starting(due, now, misfire)


def starting(due: list[datetime], now: datetime, misfire: Misfire) -> list[datetime]:
    """The oracle of the misfire policies."""
    on_time = [slot for slot in due if now - slot <= timedelta(seconds=misfire.grace_s)]
    late = due[: len(due) - len(on_time)]
    if misfire.policy is MisfirePolicy.ALL:
        return late[-misfire.count_max :] + on_time
    if misfire.policy is MisfirePolicy.ONCE and not on_time:
        return late[-1:]
    return on_time


def test_once_runs_the_latest_missed_slot_when_nothing_is_on_time() -> None:
    definition = a_definition(rule=cron("0 * * * *"), overlap=allow())
    plan = fired(a_job(definition), T0 + timedelta(hours=3, minutes=30))
    states = {run.slot_at: run.state for run in plan.runs}
    assert states == {
        T0: RunState.SKIPPED,
        T0 + timedelta(hours=1): RunState.SKIPPED,
        T0 + timedelta(hours=2): RunState.SKIPPED,
        T0 + timedelta(hours=3): RunState.RUNNING,
    }


@pytest.mark.parametrize("policy", list(MisfirePolicy))
def test_a_backlog_too_long_for_one_round_ends_as_if_it_had_been_one(policy: MisfirePolicy) -> None:
    misfire = Misfire(policy=policy, grace_s=0.5, count_max=7)
    definition = a_definition(rule=EVERY_SECOND, misfire=misfire, backlog_max=3, overlap=allow())
    job, now = a_job(definition), T0 + timedelta(seconds=3 * SLOTS_MAX + 0.7)
    started = []
    while job.is_due(now):
        plan = fired(job, now)
        started += [run.slot_at for run in plan.runs if run.state is RunState.RUNNING]
        job = plan.jobs[0].now
    last = T0 + timedelta(seconds=3 * SLOTS_MAX)
    count = {MisfirePolicy.SKIP: 0, MisfirePolicy.ONCE: 1, MisfirePolicy.ALL: 7}[policy]
    assert started == [last - timedelta(seconds=n) for n in reversed(range(count))]


def test_a_slot_on_a_closed_day_is_recorded_as_skipped() -> None:
    calendar = Calendar(name="no-second", closed=(date(2026, 3, 2),))
    definition = a_definition(rule=cron("0 12 * * *"), schedule={"calendar": calendar})
    (run,) = fired(a_job(definition), T0).runs
    assert (run.state, run.reason) == (RunState.SKIPPED, SkipReason.CALENDAR)
    (run,) = fired(a_job(definition, next_at=T0 + timedelta(days=1)), T0 + timedelta(days=1)).runs
    assert run.state is RunState.RUNNING


def test_the_calendar_judges_the_day_in_its_own_zone() -> None:
    calendar = Calendar(name="shanghai", closed=(date(2026, 3, 3),), zone="Asia/Shanghai")
    definition = a_definition(rule=cron("0 20 * * *"), schedule={"calendar": calendar})
    evening = T0.replace(hour=20)
    (run,) = fired(a_job(definition, next_at=evening), evening).runs
    assert run.reason is SkipReason.CALENDAR


def test_a_backward_step_of_the_clock_never_decides_a_slot_again() -> None:
    """The highest slot ever decided on stays, whatever the clock says afterwards."""
    job = a_job()
    after = fired(job, T0 + timedelta(seconds=9)).jobs[0].now
    earlier = T0 + timedelta(seconds=3)
    changed = a_definition(job.definition.name, rule=EVERY_SECOND, title="changed")
    plan = Apply(definitions=(changed,)).decide(facts_of(after, now=earlier))
    assert plan.jobs[0].now.next_slot_at == T0 + timedelta(seconds=10)


@given(back_s=st.floats(0, 100, allow_nan=False), jitter_s=st.sampled_from([0, 0.5, 30, 3600]))
def test_a_new_version_starts_after_now_and_after_all_that_was_decided(back_s: float, jitter_s: float) -> None:
    definition = a_definition("spread", rule=Every(every_s=10), schedule={"jitter_s": jitter_s})
    now, settled_at = T0 - timedelta(seconds=back_s), T0 - timedelta(seconds=50)
    first = first_instant(definition, now, settled_at)
    assert first is not None
    assert first.slot_at > now
    assert first.slot_at > settled_at
    line = upcoming(definition.schedule, settled_at, seed=seed_of(definition))
    between = takewhile(lambda it: it.slot_at < first.slot_at, line)
    assert all(it.slot_at <= now for it in between), "a slot was left out"


HOURLY_SPREAD = a_definition("spread", rule=cron("0 * * * *"), schedule={"jitter_s": 3000})
IN_THE_JITTER = T0 + timedelta(seconds=5)


def test_a_new_job_does_not_fire_a_slot_that_lies_before_it() -> None:
    (new,) = Apply(definitions=(HOURLY_SPREAD,)).decide(facts_of(now=IN_THE_JITTER)).new_jobs
    assert new.next is not None
    assert new.next.slot_at == T0 + timedelta(hours=1)


def test_a_resumed_job_does_not_fire_a_slot_that_lies_before_it() -> None:
    first = first_instant(HOURLY_SPREAD, T0 - timedelta(seconds=1))
    job = Job.created(1, HOURLY_SPREAD, digest(HOURLY_SPREAD), first, T0 - timedelta(days=1))
    paused = Pause().decide(facts_of(job, now=IN_THE_JITTER)).jobs[0].now
    resumed = Resume().decide(facts_of(paused, now=IN_THE_JITTER + timedelta(seconds=1))).jobs[0].now
    assert resumed.next_slot_at == T0 + timedelta(hours=1)


def test_a_changed_job_fires_no_slot_before_the_change_that_it_did_not_wait_for() -> None:
    daily = a_definition("spread", rule=cron("0 0 * * *"))
    job = a_job(daily, next_at=T0 + timedelta(hours=12))
    changed = Apply(definitions=(HOURLY_SPREAD,)).decide(facts_of(job, now=IN_THE_JITTER)).jobs[0].now
    assert changed.next_slot_at == T0 + timedelta(hours=1)


def test_a_preview_begins_with_the_slot_that_the_job_waits_for() -> None:
    first = first_instant(HOURLY_SPREAD, T0 - timedelta(seconds=1))
    assert first is not None
    coming = preview(HOURLY_SPREAD, IN_THE_JITTER, 2, pending=first)
    assert [it.instant.slot_at for it in coming] == [T0, T0 + timedelta(hours=1)]
    fresh = preview(HOURLY_SPREAD, IN_THE_JITTER, 2, pending=first_instant(HOURLY_SPREAD, IN_THE_JITTER))
    assert [it.instant.slot_at for it in fresh] == [T0 + timedelta(hours=n) for n in (1, 2)]


@given(late_s=st.floats(0, 3 * 3600, allow_nan=False), jitter_s=st.sampled_from([0, 600, 3000, 86_400]))
def test_a_preview_shows_what_fires_also_while_nobody_fires(late_s: float, jitter_s: float) -> None:
    definition = a_definition("spread", rule=cron("0 * * * *"), schedule={"jitter_s": jitter_s})
    first = first_instant(definition, T0 - timedelta(seconds=1))
    assert first is not None
    job = Job.created(1, definition, digest(definition), first, T0 - timedelta(days=1))
    now = T0 + timedelta(seconds=late_s)
    shown = [it.instant for it in preview(definition, now, 3, pending=job.pending)]
    fires = job.pending if first.due_at > now else owed(job, now).next
    assert shown[0] == fires
    assert shown[1:] == list(islice(upcoming(definition.schedule, shown[0].slot_at, seed=seed_of(definition)), 2))


def test_pause_and_apply_settle_the_same_slots_as_firing_would() -> None:
    job, now = a_job(), T0 + timedelta(seconds=4.5)
    expected = [run.slot_at for run in fired(job, now).runs]
    changed = a_definition(job.definition.name, rule=EVERY_SECOND, title="changed", overlap=allow())
    for rule in (Pause(), Apply(definitions=(changed,))):
        assert [run.slot_at for run in rule.decide(facts_of(job, now=now)).runs] == expected


def test_apply_says_beforehand_what_it_would_do() -> None:
    same, other, new = a_job().definition, a_definition("other", title="was"), a_definition("new")
    stored = {it.full_name: a_job(it) for it in (same, other)}
    changed = a_definition("other", title="is")
    assert [action for _, action in compare(stored, [same, changed, new], Sources())] == ["nothing", "change", "create"]


def test_a_job_that_follows_ends_never_comes_back_to_a_slot_it_had() -> None:
    """The clock steps back over the opening of its hours: the opening was decided on already."""
    definition = a_definition(rule=Endless(paces=(Pace(pause_s=0.5, fields="0 12"),)))
    after = fired(a_job(definition), T0).jobs[0].now
    assert after.settled_at == T0
    facts = Facts(now=T0 - timedelta(minutes=2), jobs=(after,), crowds={})
    (change,) = conclude(facts, Floor({})).jobs
    assert change.now.next_slot_at is not None
    assert change.now.next_slot_at > T0


NEWEST = [(MisfirePolicy.ONCE, 1), (MisfirePolicy.ALL, 10), (MisfirePolicy.SKIP, 0)]


@pytest.mark.parametrize(("policy", "count"), NEWEST)
def test_a_long_backlog_that_ends_on_closed_days_still_runs_the_newest_open_slots(
    policy: MisfirePolicy, count: int
) -> None:
    friday, sunday = datetime(2026, 3, 6, 18, tzinfo=UTC), datetime(2026, 3, 8, 12, tzinfo=UTC)
    calendar = Calendar(name="weekdays", weekdays=(0, 1, 2, 3, 4))
    misfire = Misfire(policy=policy, grace_s=1, count_max=10)
    rule, schedule = Every(every_s=10), {"calendar": calendar}
    job = a_job(a_definition(rule=rule, schedule=schedule, misfire=misfire, overlap=allow()), next_at=friday)
    facts = facts_of(job, now=sunday)
    _, runs = settle(job, sunday, Floor(facts.crowds))
    started = [run.slot_at for run in runs if run.state is RunState.RUNNING]
    last = datetime(2026, 3, 6, 23, 59, 50, tzinfo=UTC)
    assert started == [last - timedelta(seconds=10 * n) for n in reversed(range(count))]


def test_a_slot_that_jitter_holds_back_is_not_lost_when_the_jitter_is_taken_away() -> None:
    hourly = a_definition("spread", rule=cron("0 * * * *"))
    spread = a_definition("spread", rule=cron("0 * * * *"), schedule={"jitter_s": 3000})
    first = first_instant(spread, T0 - timedelta(seconds=1))
    assert first is not None
    assert first.slot_at == T0
    assert first.due_at > T0 + timedelta(seconds=5)
    job = Job.created(1, spread, digest(spread), first, T0 - timedelta(days=1))
    plan = Apply(definitions=(hourly,)).decide(facts_of(job, now=T0 + timedelta(seconds=5)))
    assert plan.jobs[0].now.next_slot_at == T0
    other = a_definition("spread", rule=cron("30 * * * *"))
    plan = Apply(definitions=(other,)).decide(facts_of(job, now=T0 + timedelta(seconds=5)))
    assert plan.jobs[0].now.next_slot_at == T0 + timedelta(minutes=30)


def test_one_transaction_decides_on_a_bounded_number_of_slots() -> None:
    one = a_job(a_definition(rule=EVERY_SECOND, overlap=allow()))
    jobs = [msgspec.structs.replace(one, id=n + 1) for n in range(50)]
    plan = Fire().decide(facts_of(*jobs, now=T0 + timedelta(hours=2)))
    assert sum(run.slots for run in plan.runs) == 10 * SLOTS_MAX
    assert len(plan.jobs) == 10
