"""What `rota job preview` shows."""

from __future__ import annotations

from datetime import date

import pytest

from rota.core.preview import preview
from rota.core.time.instants import parse_endless
from rota.errors import InvalidInput
from rota.model.job import Definition, Task
from rota.model.trigger import Calendar, Cron, Delay, Endless, Every, Manual, Schedule, Window
from tests.unit.time.factories import NEW_YORK, cron, utc


def _shown(schedule: Schedule, after: str, count: int) -> list[str]:
    definition = Definition(name="job", schedule=schedule, tasks=(Task(name="t", runner="shell"),))
    return [f"{it.local_at:%d %H:%M%z} {it.mark}{it.skipped}".strip() for it in preview(definition, utc(after), count)]


def test_a_gap_is_marked() -> None:
    assert _shown(cron("30 2 * * *", NEW_YORK), "2026-03-07 00:00", 3) == [
        "07 02:30-0500",
        "08 03:00-0400 gap: 02:30 does not exist, moved to 03:00",
        "09 02:30-0400",
    ]
    assert _shown(cron("30 3 2 * * *", NEW_YORK), "2026-03-08 00:00", 1) == [
        "08 03:00-0400 gap: 02:03:30 does not exist, moved to 03:00"
    ]
    assert _shown(cron("0 3 * * *", NEW_YORK), "2026-03-08 00:00", 1) == ["08 03:00-0400"]
    assert _shown(cron("0 * * * *", NEW_YORK), "2026-03-08 06:30", 1) == ["08 03:00-0400"]


def test_both_passes_of_a_fold_are_marked() -> None:
    assert _shown(cron("30 1 * * *", NEW_YORK), "2026-11-01 04:00", 2) == [
        "01 01:30-0400 fold: first of two 01:30",
        "02 01:30-0500",
    ]
    assert _shown(cron("30 * * * *", NEW_YORK), "2026-11-01 04:00", 4) == [
        "01 00:30-0400",
        "01 01:30-0400 fold: first of two 01:30",
        "01 01:30-0500 fold: second of two 01:30",
        "01 02:30-0500",
    ]


def test_a_window_that_opens_in_a_gap_is_marked() -> None:
    window = Schedule(rule=Window(opens="02:30", closes="04:00", every_s=3600, zone=NEW_YORK))
    assert _shown(window, "2026-03-08 00:00", 2) == [
        "08 03:00-0400 gap: 02:30 does not exist, moved to 03:00",
        "08 04:00-0400",
    ]


def test_a_closed_day_is_judged_in_the_zone_of_the_calendar() -> None:
    calendar = Calendar(name="work", weekdays=(0, 1, 2, 3, 4), closed=(date(2026, 1, 5),), zone="Asia/Shanghai")
    schedule = Schedule(rule=Cron(expression="0 12,20 * * *"), calendar=calendar)
    assert _shown(schedule, "2026-01-02 00:00", 8) == [
        "02 12:00+0000",
        "02 20:00+0000 calendar work: closed",
        "03 12:00+0000 calendar work: closed",
        "03 20:00+0000 calendar work: closed",
        "04 12:00+0000 calendar work: closed",
        "04 20:00+0000 calendar work: closed",
        "05 12:00+0000 calendar work: closed",
        "05 20:00+0000",
    ]


def test_what_follows_ends_is_shown_as_if_runs_took_no_time() -> None:
    assert _shown(Schedule(rule=Delay(delay_s=90)), "2026-01-01 00:00", 2) == ["01 00:01+0000", "01 00:03+0000"]
    endless = Schedule(rule=Endless(paces=parse_endless("1800@* 9"), zone="Europe/Paris"))
    assert _shown(endless, "2026-01-01 00:00", 3) == ["01 09:00+0100", "01 09:30+0100", "02 09:00+0100"]


def test_other_triggers() -> None:
    assert _shown(Schedule(rule=Manual()), "2026-01-01 00:00", 5) == []
    assert _shown(Schedule(rule=Every(every_s=3600)), "2026-01-01 00:00", 2) == ["01 01:00+0000", "01 02:00+0000"]


@pytest.mark.parametrize("count", [0, -1, 1001])
def test_a_count_out_of_bounds_is_refused(count: int) -> None:
    with pytest.raises(InvalidInput, match="count: must be from 1 to 1000"):
        _shown(cron("* * * * *"), "2026-01-01", count)
