"""P.8: an endless trigger pauses as long as the time of day says."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.time.instants import after_end, check, parse_endless
from rota.errors import InvalidInput
from rota.model.trigger import Endless, Pace, Schedule
from tests.oracles import time as oracle
from tests.oracles.expressions import STRANGE_ZONES
from tests.unit.time.factories import NEW_YORK, utc

P8 = "60; 2@* 9-18; 8@* 19-23"
WINDOWS_ONLY = "2@* 9-18; 8@* 19-23"


def _due(text: str, ended: str, zone: str = "UTC", **bounds: Any) -> datetime | None:
    schedule = Schedule(rule=Endless(paces=parse_endless(text), zone=zone), **bounds)
    check(schedule, seed="seed")
    found = after_end(schedule, utc(ended), seed="seed")
    assert found is None or found.slot_at == found.due_at
    return None if found is None else found.due_at


def test_the_text_form_is_read() -> None:
    assert parse_endless(P8) == (
        Pace(pause_s=60),
        Pace(pause_s=2, fields="* 9-18"),
        Pace(pause_s=8, fields="* 19-23"),
    )
    assert parse_endless(" 0.5 @ */2 9-18 1 1 mon ") == (Pace(pause_s=0.5, fields="*/2 9-18 1 1 mon"),)


CASES = [
    (P8, "2026-01-05 10:00:00", "2026-01-05 10:00:02"),
    (P8, "2026-01-05 09:00:00.25", "2026-01-05 09:00:02.25"),
    (P8, "2026-01-05 20:00:00", "2026-01-05 20:00:08"),
    (P8, "2026-01-05 03:00:00", "2026-01-05 03:01:00"),
    (P8, "2026-01-05 08:59:30", "2026-01-05 09:00:00"),  # 60 s are not over, but from 9 h on 2 s are enough
    (P8, "2026-01-05 08:59:59.5", "2026-01-05 09:00:01.5"),
    (P8, "2026-01-05 18:59:57", "2026-01-05 18:59:59"),
    (P8, "2026-01-05 18:59:58", "2026-01-05 19:00:06"),  # at 19 h the pause of 8 s is in force
    (P8, "2026-01-05 23:59:52", "2026-01-06 00:00:52"),
    (WINDOWS_ONLY, "2026-01-05 03:00:00", "2026-01-05 09:00:00"),
    (WINDOWS_ONLY, "2026-01-05 23:59:51", "2026-01-05 23:59:59"),
    (WINDOWS_ONLY, "2026-01-05 23:59:52", "2026-01-06 09:00:00"),
    ("5@* 9 * * 1-5", "2026-01-09 09:59:58", "2026-01-12 09:00:00"),
    ("5@0 0 29 2", "2026-01-09 09:59:58", "2028-02-29 00:00:00"),
    ("604800", "2026-01-05 03:00:00", "2026-01-12 03:00:00"),
    ("604800; 1@0 0 1", "2026-01-28 03:00:00", "2026-02-01 00:00:00"),
    ("10@* *; 1@* 9", "2026-01-05 09:00:00", "2026-01-05 09:00:10"),  # the first that matches is in force
    ("10@*/2 *; 1@* *", "2026-01-05 09:00:00", "2026-01-05 09:00:10"),
    ("100@*/2 *; 1@* *", "2026-01-05 09:00:00", "2026-01-05 09:01:00"),
]


@pytest.mark.parametrize(("text", "ended", "due"), CASES)
def test_a_run_is_due_when_the_pause_in_force_is_over(text: str, ended: str, due: str) -> None:
    assert _due(text, ended) == utc(due)


def test_it_keeps_to_its_wall_clock_in_both_passes_of_a_fold_and_skips_a_gap() -> None:
    assert _due("60@30 1", "2026-11-01 05:31", NEW_YORK) == utc("2026-11-01 06:30")
    assert _due("60@30 1", "2026-11-01 06:31", NEW_YORK) == utc("2026-11-02 06:30")
    assert _due("60@30 2", "2026-03-08 05:31", NEW_YORK) == utc("2026-03-09 06:30")


def test_bounds_are_kept() -> None:
    start, end = utc("2026-01-02 08:00"), utc("2026-01-03 09:00")
    assert _due(WINDOWS_ONLY, "2026-01-01", start_at=start, end_at=end) == utc("2026-01-02 09:00")
    assert _due(P8, "2026-01-01", start_at=start, end_at=end) == start
    assert _due(WINDOWS_ONLY, "2026-01-02 23:59:59", start_at=start, end_at=end) == end
    assert _due(WINDOWS_ONLY, "2026-01-03 09:00", start_at=start, end_at=end) is None


BAD = [
    ("", "does not begin with a pause"),
    ("60;", "does not begin with a pause"),
    ("@* 9", "does not begin with a pause"),
    ("-1", "does not begin with a pause"),
    ("1e3", "does not begin with a pause"),
    (".5", "does not begin with a pause"),
    ("5.", "does not begin with a pause"),
    ("inf", "does not begin with a pause"),
    ("９", "must be ASCII"),
    ("1" * 20, "does not begin with a pause"),
    ("1" * 2000, "not longer than 1000"),
    ("60@", "has no fields"),
]


@pytest.mark.parametrize(("text", "reason"), BAD)
def test_a_bad_text_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse_endless(text)
    assert refused.value.problems[0].field == "endless"
    assert reason in refused.value.problems[0].reason


BAD_FIELDS = [
    ("60@*", "minute and hour must be there"),
    ("60@* * * * * *", "minute and hour must be there"),
    ("60@61 *", "'61 *': minute: 61 is not between 0 and 59"),
    ("60@* * 30 2", "'* * 30 2': never fires"),
    ("0", "must be from 0.1 to 604800 seconds"),
    ("604801", "must be from 0.1 to 604800 seconds"),
    ("60; 61", "more than one part has no fields"),
    ("; ".join(["60@* *"] * 51), "has 51 parts; 1 to 50 are possible"),
]


@pytest.mark.parametrize(("text", "reason"), BAD_FIELDS, ids=lambda it: it[:20])
def test_bad_parts_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check(Schedule(rule=Endless(paces=parse_endless(text))), seed="seed")
    assert refused.value.problems[0].field == "endless"
    assert reason in refused.value.problems[0].reason


def test_a_part_that_others_always_hide_changes_nothing() -> None:
    assert _due("9@0 0 29 2; 5@* * * 3-12; 5@* * * 1-2; 1@0 0; 1", "2026-01-05") == utc("2026-01-05 00:00:05")


fields = st.sampled_from(["* 9-18", "* *", "*/7 */3", "30 1", "30 2", "* 0-1 * * 0", "0-20 2 L", "* 19-23 * * 1-5"])
paces = st.lists(st.tuples(st.integers(1, 8000), fields | st.none()), min_size=1, max_size=4)


@settings(max_examples=150, deadline=None)
@given(paces, st.sampled_from(STRANGE_ZONES), st.data())
def test_the_oracle_agrees(parts: list[tuple[int, str | None]], zone: str, data: st.DataObject) -> None:
    parts = [it for n, it in enumerate(parts) if it[1] is not None or all(other[1] for other in parts[:n])]
    near = [it.at for it in oracle.changes(zone, 2024, 2026)] or [1767225600]
    ended = data.draw(st.sampled_from(near)) + data.draw(st.integers(-90_000, 20_000))
    rule = Endless(paces=tuple(Pace(pause_s=pause, fields=text) for pause, text in parts), zone=zone)
    found = after_end(Schedule(rule=rule), datetime.fromtimestamp(ended, UTC), seed="")
    assert found is not None
    expected = oracle.endless(parts, zone, ended, 3)
    if expected is None:
        assert found.due_at.timestamp() > ended + 3 * 86_400 - 60
    else:
        assert found.due_at.timestamp() == expected
