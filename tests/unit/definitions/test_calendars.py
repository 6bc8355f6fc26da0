"""Calendars: countries, make-up working days, zones, and what happens without the extra."""

import sys
from datetime import date

import pytest

from rota.definitions.yaml import read_yaml
from rota.errors import InvalidInput
from rota.model.trigger import Calendar

TODAY = date(2026, 11, 15)


def calendar(fields: str, job: str = "cron: '0 3 * * *'", today: date = TODAY) -> Calendar:
    text = f"calendars: {{own: {fields}}}\njobs: {{a: {{{job}, calendar: own, shell: [x]}}}}"
    (definition,) = read_yaml(text, file=None, today=today)
    assert definition.schedule.calendar is not None
    return definition.schedule.calendar


def test_china_works_on_its_make_up_days_and_rests_on_its_holidays() -> None:
    china = calendar("{country: CN}")
    assert not china.is_open(date(2026, 10, 1))
    assert not china.is_open(date(2026, 10, 7))
    assert not china.is_open(date(2026, 10, 11))
    assert china.is_open(date(2026, 10, 10)), "a Saturday that makes up for a day off"
    assert china.is_open(date(2026, 2, 14)), "another one"
    assert china.is_open(date(2026, 10, 8))


def test_china_is_known_only_as_far_as_its_make_up_days_were_announced() -> None:
    known_until = calendar("{country: CN}").known_until
    assert known_until is not None
    assert date(2026, 12, 31) <= known_until < date(2031, 12, 31)


def test_the_united_states_are_known_for_all_the_years_asked_for() -> None:
    states = calendar("{country: US}")
    assert states.known_until == date(2031, 12, 31)
    assert {day.year for day in states.closed} == set(range(2025, 2032))


def test_the_weekend_is_that_of_the_country() -> None:
    assert calendar("{country: SA}").weekdays == (0, 1, 2, 3, 6)


def test_given_weekdays_stand_above_those_of_the_country() -> None:
    no_holidays = calendar("{country: US, weekdays: all}")
    assert no_holidays.is_open(date(2026, 7, 5))
    assert not no_holidays.is_open(date(2026, 12, 25))


def test_own_days_stand_above_those_of_the_country() -> None:
    own = calendar("{country: CN, closed: [2026-10-10], open: [2026-10-01]}")
    assert not own.is_open(date(2026, 10, 10))
    assert own.is_open(date(2026, 10, 1))


def test_estimated_years_are_not_known() -> None:
    emirates = calendar("{country: AE}")
    assert emirates.known_until is not None
    assert emirates.known_until < date(2031, 12, 31)


def test_the_years_move_with_the_day_asked_for() -> None:
    assert {day.year for day in calendar("{country: US}", today=date(2030, 1, 1)).closed} == set(range(2029, 2036))


def test_the_days_are_those_of_the_calendars_zone_else_of_the_jobs() -> None:
    shanghai = "cron: '0 3 * * *', zone: Asia/Shanghai"
    assert calendar("{country: CN}", shanghai).zone == "Asia/Shanghai"
    assert calendar("{country: CN, zone: UTC}", shanghai).zone == "UTC"
    assert calendar("{country: CN}", "every_s: 5").zone == "UTC"


def test_weekdays_is_always_there() -> None:
    (definition,) = read_yaml("jobs: {a: {every_s: 5, calendar: weekdays, shell: [x]}}", file=None, today=TODAY)
    assert definition.schedule.calendar == Calendar(name="weekdays", weekdays=(0, 1, 2, 3, 4))


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("all", (0, 1, 2, 3, 4, 5, 6)),
        ("mon-fri", (0, 1, 2, 3, 4)),
        ("'sat,sun'", (5, 6)),
        ("'Mon, Wed - Fri'", (0, 2, 3, 4)),
        ("[mon, wed]", (0, 2)),
        ("[mon-tue, sun]", (0, 1, 6)),
    ],
)
def test_weekdays_can_be_written_in_several_ways(written: str, meant: tuple[int, ...]) -> None:
    assert calendar(f"{{weekdays: {written}}}").weekdays == meant


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holidays", None)
    with pytest.raises(InvalidInput, match=r"calendars\.own\.country: needs the extra 'calendars'"):
        calendar("{country: CN}")


def test_a_job_is_not_blamed_for_its_calendar() -> None:
    with pytest.raises(InvalidInput) as caught:
        calendar("{country: XX}")
    assert [problem.field for problem in caught.value.problems] == ["calendars.own.country"]
