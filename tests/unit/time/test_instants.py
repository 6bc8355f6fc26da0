"""The other triggers, bounds and jitter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import islice, pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rota.core.time.instants import after_end, upcoming
from rota.model.trigger import Cron, Delay, Endless, Every, Manual, Once, Pace, Rule, Schedule, Window
from tests.oracles.expressions import STRANGE_ZONES, expressions
from tests.unit.time.factories import NEW_YORK, cron, local, slots, utc


@pytest.mark.parametrize("rule", [Manual(), Delay(delay_s=5), Endless(paces=(Pace(pause_s=5),))])
def test_what_follows_ends_or_people_has_no_slots(rule: Rule) -> None:
    assert slots(Schedule(rule=rule), "2026-01-01", 1) == []


@pytest.mark.parametrize("rule", [Manual(), Every(every_s=5), Cron(expression="* * * * *")])
def test_what_has_slots_does_not_follow_ends(rule: Rule) -> None:
    assert after_end(Schedule(rule=rule), utc("2026-01-01"), seed="") is None


def test_every_counts_from_the_start_and_else_from_the_epoch() -> None:
    assert slots(Schedule(rule=Every(every_s=7)), "1970-01-01 00:00:07", 1) == [utc("1970-01-01 00:00:14")]
    late = Schedule(rule=Every(every_s=90), start_at=utc("2026-01-01 00:00:10"))
    assert slots(late, "2025-01-01", 2) == [utc("2026-01-01 00:00:10"), utc("2026-01-01 00:01:40")]
    assert slots(late, "2026-01-01 00:00:10", 1) == [utc("2026-01-01 00:01:40")]


@given(st.integers(100_000, 10**12), st.integers(0, 10**9))
def test_every_is_exact_over_years(period: int, number: int) -> None:
    start = utc("2026-01-01 00:00:00.000001")
    schedule = Schedule(rule=Every(every_s=period / 1_000_000), start_at=start)
    wanted = start + min(number * period, 5 * 10**15 // period * period) * timedelta(microseconds=1)
    assert next(upcoming(schedule, wanted - timedelta(microseconds=1), seed="")).slot_at == wanted
    assert next(upcoming(schedule, wanted, seed="")).slot_at == wanted + timedelta(microseconds=period)


def test_once_is_once() -> None:
    schedule = Schedule(rule=Once(once_at=datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))))
    assert slots(schedule, "2025-12-31 23:59:59", 5) == [utc("2026-01-01 00:00")]
    assert slots(schedule, "2026-01-01 00:00", 5) == []
    assert slots(schedule, "2025-01-01", 1)[0].tzinfo is UTC


def test_bounds_are_inclusive() -> None:
    schedule = cron("0 * * * *", start_at=utc("2026-01-01 02:00"), end_at=utc("2026-01-01 04:00"))
    assert [it.hour for it in slots(schedule, "2025-01-01", 9)] == [2, 3, 4]
    assert [it.hour for it in slots(schedule, "2026-01-01 02:00", 9)] == [3, 4]


def test_slots_end_with_the_year_2200() -> None:
    assert slots(cron("0 0 * * *"), "2200-12-30 12:00", 9) == [utc("2200-12-31")]
    assert slots(Schedule(rule=Every(every_s=86_400)), "2200-12-30 12:00", 9) == [utc("2200-12-31")]
    daily = Schedule(rule=Window(opens="00:00", closes="00:00", every_s=86_400))
    assert slots(daily, "2200-12-30 12:00", 9) == [utc("2200-12-31")]


def test_slots_begin_with_the_epoch() -> None:
    assert slots(cron("0 0 * * *"), "1950-01-01", 1) == [utc("1970-01-01")]


WINDOWS = [
    ("09:00", "10:00", 1800, "2026-03-02 00:00", "02 09:00-05, 02 09:30-05, 02 10:00-05, 03 09:00-05"),
    ("09:00", "10:00", 2400, "2026-03-02 00:00", "02 09:00-05, 02 09:40-05, 03 09:00-05"),
    ("22:00", "02:00", 7200, "2026-03-03 00:00", "02 22:00-05, 03 00:00-05, 03 02:00-05, 03 22:00-05"),
    ("22:00", "02:00", 7200, "2026-03-03 04:00", "03 00:00-05, 03 02:00-05, 03 22:00-05"),
    ("09:00", "09:00", 36_000, "2026-03-02 13:00", "02 09:00-05, 02 19:00-05, 03 05:00-05, 03 09:00-05"),
    ("00:00", "06:00", 3600, "2026-03-08 05:30", "08 01:00-05, 08 03:00-04, 08 04:00-04, 08 05:00-04, 08 06:00-04"),
    ("02:30", "04:00", 1800, "2026-03-08 05:30", "08 03:00-04, 08 03:30-04, 08 04:00-04, 09 02:30-04"),
    ("02:10", "02:50", 600, "2026-03-08 05:30", "08 03:00-04, 09 02:10-04"),
    ("01:30", "02:00", 1800, "2026-11-01 04:30", "01 01:30-04, 01 01:00-05, 01 01:30-05, 01 02:00-05"),
    ("00:00", "01:30", 1800, "2026-11-01 04:30", "01 01:00-04, 01 01:30-04, 02 00:00-05"),
]


@pytest.mark.parametrize(("opens", "closes", "every_s", "after", "expected"), WINDOWS)
def test_a_window_keeps_its_rate_from_its_opening_to_its_close(
    opens: str, closes: str, every_s: float, after: str, expected: str
) -> None:
    schedule = Schedule(rule=Window(opens=opens, closes=closes, every_s=every_s, zone=NEW_YORK))
    wanted = expected.split(", ")
    assert local(schedule, after, len(wanted), NEW_YORK) == wanted


def test_the_weekday_of_a_window_is_that_of_its_opening() -> None:
    schedule = Schedule(rule=Window(opens="22:00", closes="02:00", every_s=10_800, weekdays=(4,)))
    assert [f"{it:%a %H}" for it in slots(schedule, "2026-03-01", 3)] == ["Fri 22", "Sat 01", "Fri 22"]


def test_a_delay_counts_from_the_end_within_bounds() -> None:
    schedule = Schedule(rule=Delay(delay_s=1.5), start_at=utc("2026-01-02"), end_at=utc("2026-01-03"))

    def due(ended: str) -> datetime | None:
        found = after_end(schedule, utc(ended), seed="")
        return None if found is None else found.due_at

    assert due("2026-01-01") == utc("2026-01-02")
    assert due("2026-01-02 12:00") == utc("2026-01-02 12:00:01.500")
    assert due("2026-01-02 23:59:58.5") == utc("2026-01-03")
    assert due("2026-01-02 23:59:59") is None


def test_without_jitter_a_slot_is_due_at_once() -> None:
    assert all(it.slot_at == it.due_at for it in islice(upcoming(cron("* * * * *"), utc("2026-01-01"), seed=""), 50))


def test_jitter_never_changes_between_releases() -> None:
    first = next(upcoming(cron("0 0 * * *", jitter_s=3600), utc("2026-01-01"), seed="default/default/nightly"))
    assert first.due_at == utc(JITTER_VECTOR)


JITTER_VECTOR = "2026-01-02 00:06:20.262713"


def test_jitter_spreads_jobs_over_its_whole_width() -> None:
    late = [
        (it.due_at - it.slot_at).total_seconds()
        for n in range(500)
        for it in islice(upcoming(cron("0 0 * * *", jitter_s=600), utc("2026-01-01"), seed=f"{n}"), 1)
    ]
    assert min(late) < 30
    assert max(late) > 570
    assert 250 < sum(late) / len(late) < 350


def test_jitter_of_the_last_slot_and_of_ends_is_bounded_by_itself() -> None:
    last = next(upcoming(cron("0 0 0 1 1 ? 2026", jitter_s=600), utc("2025-01-01"), seed="x"))
    assert timedelta(0) <= last.due_at - last.slot_at < timedelta(seconds=600)
    ended = after_end(Schedule(rule=Delay(delay_s=1), jitter_s=600), utc("2026-01-01"), seed="x")
    assert ended is not None
    assert timedelta(0) < ended.due_at - ended.slot_at < timedelta(seconds=600)


rules = st.one_of(
    st.builds(Cron, expression=st.sampled_from(expressions(200)), zone=st.sampled_from(STRANGE_ZONES)),
    st.builds(Every, every_s=st.floats(0.1, 10**6)),
    st.builds(
        Window,
        opens=st.sampled_from(["00:00", "01:30", "02:30:30", "09:00", "23:59"]),
        closes=st.sampled_from(["00:00", "02:15", "02:30:30", "17:00", "23:30"]),
        every_s=st.floats(100, 90_000),
        weekdays=st.sampled_from([(0, 1, 2, 3, 4, 5, 6), (6,), (0, 5, 6)]),
        zone=st.sampled_from(STRANGE_ZONES),
    ),
)
moments = st.datetimes(datetime(2000, 1, 1), datetime(2040, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
schedules = st.builds(
    Schedule,
    rule=rules,
    start_at=st.none() | moments,
    jitter_s=st.just(0.0) | st.floats(0.001, 86_400),
    end_at=st.none(),
)


@settings(max_examples=300, deadline=None)
@given(schedules, moments, st.integers(1, 5 * 10**9))
@example(
    Schedule(rule=Window(opens="00:00", closes="00:00", every_s=50_000, zone="Pacific/Apia")), utc("2011-12-28"), 1
)
def test_instants_ascend_keep_their_bounds_and_do_not_depend_on_where_one_starts(
    schedule: Schedule, after: datetime, later: int
) -> None:
    line = list(islice(upcoming(schedule, after, seed="s"), 30))
    assert all(a.slot_at < b.slot_at and a.due_at < b.due_at for a, b in pairwise(line))
    assert all(it.slot_at > after and it.slot_at >= (schedule.start_at or after) for it in line)
    assert all(timedelta(0) <= it.due_at - it.slot_at <= timedelta(seconds=schedule.jitter_s) for it in line)
    assert all(a.due_at < b.slot_at for a, b in pairwise(line))
    middle = after + timedelta(microseconds=later)
    tail = [it for it in line if it.slot_at > middle]
    assert list(islice(upcoming(schedule, middle, seed="s"), len(tail))) == tail


@settings(max_examples=100, deadline=None)
@given(schedules, moments, st.integers(0, 10**8))
def test_the_end_cuts_the_same_line(schedule: Schedule, after: datetime, length_s: int) -> None:
    end_at = after + timedelta(seconds=length_s)
    cut = Schedule(rule=schedule.rule, start_at=schedule.start_at, end_at=end_at)
    free = Schedule(rule=schedule.rule, start_at=schedule.start_at)
    expected = [it for it in islice(upcoming(free, after, seed="s"), 20) if it.slot_at <= end_at]
    assert list(islice(upcoming(cut, after, seed="s"), 20)) == expected
