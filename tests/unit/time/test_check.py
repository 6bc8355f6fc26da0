"""A schedule is refused with everything that is wrong with it, field by field."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from rota.core.time.instants import check
from rota.errors import InvalidInput
from rota.model.trigger import Calendar, Cron, Delay, Endless, Every, Manual, Once, Pace, Rule, Schedule, Window
from tests.unit.time.factories import utc

HOURLY = Cron(expression="0 * * * *")


def _problems(rule: Rule, **others: Any) -> list[tuple[str, str]]:
    with pytest.raises(InvalidInput) as refused:
        check(Schedule(rule=rule, **others), seed="seed")
    return [(problem.field, problem.reason) for problem in refused.value.problems]


GOOD = [
    HOURLY,
    Cron(expression="H H * * *", zone="Asia/Shanghai"),
    Every(every_s=0.1),
    Every(every_s=366 * 86_400),
    Delay(delay_s=1),
    Once(once_at=utc("2026-01-01")),
    Window(opens="09:00", closes="17:30:15", every_s=60),
    Endless(paces=(Pace(pause_s=60), Pace(pause_s=2, fields="* 9-18"))),
    Manual(),
]


@pytest.mark.parametrize("rule", GOOD)
def test_a_good_schedule_passes(rule: Rule) -> None:
    check(Schedule(rule=rule, start_at=utc("2025-01-01"), end_at=utc("2027-01-01")), seed="seed")


@pytest.mark.parametrize("value", [0, -1, 0.09, 366 * 86_400 + 1, float("nan"), float("inf"), 10**400, 1e308])
def test_a_period_out_of_bounds_is_refused(value: float) -> None:
    reason = "must be from 0.1 to 31622400 seconds"
    assert _problems(Every(every_s=value)) == [("every_s", reason)]
    assert _problems(Delay(delay_s=value)) == [("delay_s", reason)]
    assert _problems(Window(opens="01:00", closes="02:00", every_s=value)) == [("window.every_s", reason)]


@pytest.mark.parametrize("value", [True, "3", None, [3]])
def test_what_is_no_number_is_refused(value: Any) -> None:
    assert _problems(Every(every_s=value)) == [("every_s", "must be a number of seconds")]
    assert _problems(HOURLY, jitter_s=value)[0] == ("jitter_s", "must be a number of seconds")


@pytest.mark.parametrize("value", [-1, 86_401, float("nan"), float("inf")])
def test_jitter_out_of_bounds_is_refused(value: float) -> None:
    assert _problems(HOURLY, jitter_s=value) == [("jitter_s", "must be from 0 to 86400 seconds")]


def test_an_endless_trigger_takes_no_jitter() -> None:
    ((field, _),) = _problems(Endless(paces=(Pace(pause_s=5),)), jitter_s=5)
    assert field == "jitter_s"


TIMES = [
    (datetime(1, 1, 1, tzinfo=UTC), "must be from 1970 to 2200"),
    (datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=23))), "must be from 1970 to 2200"),
    (datetime(9999, 12, 31, tzinfo=timezone(-timedelta(hours=23))), "must be from 1970 to 2200"),
    (datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC), "must be from 1970 to 2200"),
    (datetime(2201, 1, 1, tzinfo=UTC), "must be from 1970 to 2200"),
    (datetime(2026, 1, 1), "has no offset from UTC"),  # noqa: DTZ001 - that is what is wrong
    ("2026-01-01T00:00:00Z", "must be a date and time"),
    (1767225600, "must be a date and time"),
    (date(2026, 1, 1), "must be a date and time"),
]


@pytest.mark.parametrize(("value", "reason"), TIMES, ids=lambda it: str(it)[:32])
def test_a_bad_instant_is_refused(value: Any, reason: str) -> None:
    for problems in (
        _problems(Once(once_at=value)),
        _problems(HOURLY, start_at=value),
        _problems(HOURLY, end_at=value),
    ):
        assert [reason in text for _, text in problems] == [True]


@pytest.mark.parametrize(
    "value", ["", "9:00", "24:00", "09:60", "09:00:60", "09", "09:00:00:00", "０9:00", "-1:00", 9, None]
)
def test_a_bad_time_of_day_is_refused(value: Any) -> None:
    problems = _problems(Window(opens=value, closes=value, every_s=60))
    assert [field for field, _ in problems] == ["window.opens", "window.closes"]
    assert "HH:MM" in problems[0][1]


NEVER = [
    (HOURLY, "2026-01-01 00:01", "2026-01-01 00:59", "cron"),
    (Once(once_at=utc("2026-01-02")), "2026-01-03", "2026-01-04", "once_at"),
    (Window(opens="09:00", closes="10:00", every_s=60, weekdays=(0,)), "2026-01-06", "2026-01-07", "window"),
    (Endless(paces=(Pace(pause_s=5, fields="* 9"),)), "2026-01-06 10:00", "2026-01-07 08:59", "endless"),
    (Cron(expression="0 0 * 30 12 ? 2011", zone="Pacific/Apia"), "2011-01-01", "2200-01-01", "cron"),
]


@pytest.mark.parametrize(("rule", "start", "end", "field"), NEVER)
def test_what_never_fires_within_its_bounds_is_refused(rule: Rule, start: str, end: str, field: str) -> None:
    assert _problems(rule, start_at=utc(start), end_at=utc(end)) == [(field, "never fires between start_at and end_at")]


def test_a_day_that_a_zone_has_not_had_is_found_out() -> None:
    rule = Cron(expression="0 0 * 30 12 ? 2011", zone="Pacific/Apia")
    assert _problems(rule) == [("cron", "never fires from 1970 to 2200")]
    check(Schedule(rule=Cron(expression="0 0 9 30 12 ? 2011", zone="Pacific/Apia")), seed="")


def test_everything_is_said_at_once() -> None:
    rule = Window(opens="25:00", closes="x", every_s=0, weekdays=(7,), zone="Mars/Olympus")
    calendar = Calendar(name="c", weekdays=(9,), zone="nowhere")
    problems = _problems(
        rule, start_at=utc("2026-01-02"), end_at=utc("2026-01-01"), jitter_s=float("nan"), calendar=calendar
    )
    assert [field for field, _ in problems] == [
        "end_at",
        "jitter_s",
        "window.opens",
        "window.closes",
        "window.every_s",
        "window.weekdays",
        "zone",
        "calendar.weekdays",
        "calendar.zone",
    ]
    assert [field for field, _ in _problems(Cron(expression="x", zone="y"))] == ["cron", "zone"]


def test_no_weekday_and_no_open_day_are_refused() -> None:
    assert [field for field, _ in _problems(Window(opens="01:00", closes="02:00", every_s=60, weekdays=()))] == [
        "window.weekdays"
    ]
    assert [field for field, _ in _problems(HOURLY, calendar=Calendar(name="c", weekdays=()))] == ["calendar"]
    check(Schedule(rule=HOURLY, calendar=Calendar(name="c", weekdays=(), open=(date(2026, 1, 1),))), seed="")
