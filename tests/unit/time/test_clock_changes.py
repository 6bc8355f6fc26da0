"""P14: what happens where clocks jump, told by example. The comparison with the oracle covers the rest."""

from __future__ import annotations

from itertools import pairwise
from zoneinfo import available_timezones

import pytest

from rota.core.time.zones import WallClock, wall_clock, zone
from rota.errors import InvalidInput
from tests.unit.time.factories import NEW_YORK, cron, local, utc

NEW_YORK_2026 = [
    ("30 2 * * *", "2026-03-08 05:00", "08 03:00-04, 09 02:30-04"),
    ("0,15,30,45 2 * * *", "2026-03-08 05:00", "08 03:00-04, 09 02:00-04"),
    ("0 3 * * *", "2026-03-08 05:00", "08 03:00-04, 09 03:00-04"),
    ("30 2,3 * * *", "2026-03-08 05:00", "08 03:00-04, 08 03:30-04, 09 02:30-04"),
    ("0 2,3 * * *", "2026-03-08 05:00", "08 03:00-04, 09 02:00-04"),
    ("0 */2 * * *", "2026-03-08 05:00", "08 03:00-04, 08 04:00-04"),
    ("*/30 * * * *", "2026-03-08 06:00", "08 01:30-05, 08 03:00-04, 08 03:30-04"),
    ("0 * * * *", "2026-03-08 05:00", "08 01:00-05, 08 03:00-04, 08 04:00-04"),
    ("30 1 * * *", "2026-11-01 04:00", "01 01:30-04, 02 01:30-05"),
    ("30 1 * * *", "2026-11-01 05:30", "02 01:30-05"),
    ("30 1 * * *", "2026-11-01 06:00", "02 01:30-05"),
    ("0 2 * * *", "2026-11-01 04:00", "01 02:00-05, 02 02:00-05"),
    ("0 */2 * * *", "2026-11-01 03:59", "01 00:00-04, 01 02:00-05"),
    ("0 * * * *", "2026-11-01 04:00", "01 01:00-04, 01 01:00-05, 01 02:00-05"),
    ("*/30 * * * *", "2026-11-01 05:00", "01 01:30-04, 01 01:00-05, 01 01:30-05, 01 02:00-05"),
]


@pytest.mark.parametrize(("expression", "after", "expected"), NEW_YORK_2026)
def test_new_york_in_2026(expression: str, after: str, expected: str) -> None:
    wanted = expected.split(", ")
    assert local(cron(expression, NEW_YORK), after, len(wanted), NEW_YORK) == wanted


STRANGE = [
    ("Australia/Lord_Howe", "15 2 * * *", "2026-10-03 00:00", "04 02:30+11, 05 02:15+11"),
    ("Australia/Lord_Howe", "45 1 * * *", "2026-04-04 00:00", "05 01:45+11, 06 01:45+1030"),
    ("Australia/Lord_Howe", "*/15 * * * *", "2026-04-04 14:35", "05 01:45+11, 05 01:30+1030, 05 01:45+1030"),
    ("America/Sao_Paulo", "0 0 * * *", "2017-10-14 10:00", "15 01:00-02, 16 00:00-02"),
    ("America/Sao_Paulo", "30 23 * * *", "2018-02-17 10:00", "17 23:30-02, 18 23:30-03"),
    ("America/Sao_Paulo", "30 * * * 6", "2018-02-18 01:00", "17 23:30-02, 17 23:30-03, 24 00:30-03"),
    ("Asia/Beirut", "30 0 * * *", "2024-03-30 10:00", "31 01:00+03, 01 00:30+03"),
    ("Africa/Cairo", "0 0 * * fri", "2026-04-20 00:00", "24 01:00+03, 01 00:00+03"),
    ("Pacific/Apia", "0 12 * * *", "2011-12-29 00:00", "29 12:00-10, 31 00:00+14, 31 12:00+14"),
    ("Pacific/Apia", "0 0 * * *", "2011-12-29 00:00", "29 00:00-10, 31 00:00+14, 01 00:00+14"),
    ("Pacific/Apia", "0 * 30 12 *", "2011-12-01 00:00", "30 00:00+14, 30 01:00+14"),
    ("Antarctica/Troll", "30 1,2 * * *", "2026-03-28 12:00", "29 03:00+02, 30 01:30+02"),
    ("Europe/Dublin", "30 1 * * *", "2026-03-28 12:00", "29 02:00+01, 30 01:30+01"),
    ("Asia/Pyongyang", "15 0 * * *", "2015-08-14 00:00", "15 00:15+0830, 16 00:15+0830"),
    ("Asia/Pyongyang", "45 23 * * *", "2018-05-03 16:00", "05 00:00+09, 05 23:45+09"),
    ("America/Caracas", "45 2 * * *", "2016-04-30 12:00", "01 03:00-04, 02 02:45-04"),
    ("Europe/Volgograd", "30 1 * * *", "2020-12-26 12:00", "27 01:30+04, 28 01:30+03"),
]


@pytest.mark.parametrize(("name", "expression", "after", "expected"), STRANGE)
def test_strange_clocks(name: str, expression: str, after: str, expected: str) -> None:
    wanted = expected.split(", ")
    assert local(cron(expression, name), after, len(wanted), name) == wanted


def test_offsets_of_odd_seconds_are_exact() -> None:
    assert local(cron("0 0 * * *", "Africa/Monrovia"), "1972-01-05 12:00", 2, "Africa/Monrovia") == [
        "06 00:00-004430",
        "07 00:44+00",
    ]


BAD_ZONES = [
    "Mars/Olympus",
    "../../etc/passwd",
    "/usr/share/zoneinfo/UTC",
    "",
    " ",
    "UTC\n",
    "UTC\0",
    "A" * 5000,
    "Asia",
    "localtime",
    "posixrules",
    "Factory",
    "posix/UTC",
    "EST5EDT4",
    "europe/paris",
    "utc",
    "Europe/",
    "Ｕtc",
    "\ud800",
    None,
    5,
    ["UTC"],
]


@pytest.mark.parametrize("name", BAD_ZONES, ids=lambda it: ascii(it)[:20])
def test_what_is_no_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        zone(name)
    (problem,) = refused.value.problems
    assert problem.field == "zone"
    assert "is not the name of a time zone" in problem.reason
    assert len(problem.reason) < 400


def test_every_other_zone_is_known_and_its_changes_are_days_apart() -> None:
    """The evaluator looks for changes day by day; if two come closer, its step must be shorter."""
    begin, end = int(utc("2020-01-01").timestamp()), int(utc("2023-01-01").timestamp())
    for name in available_timezones() - {"localtime", "Factory"}:
        found = list(WallClock(zone(name)).changes(begin, end))
        assert all(later - earlier > 4 * 86_400 for earlier, later in pairwise(found)), name


def test_a_wall_time_is_reached_once() -> None:
    clock = wall_clock(NEW_YORK)
    gap, fold = utc("2026-03-08 02:30"), utc("2026-11-01 01:30")
    assert clock.reach(int(gap.timestamp())) == utc("2026-03-08 07:00").timestamp()
    assert clock.reach(int(fold.timestamp())) == utc("2026-11-01 05:30").timestamp()
