"""What a cron expression may look like, and what is refused with which reason (M11 and the corpus of bad input)."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.core.time.cron import parse
from rota.core.time.instants import upcoming
from rota.errors import InvalidInput
from rota.model.trigger import Cron, Schedule

REFUSED = [
    ("", "is empty"),
    ("   ", "is empty"),
    ("* * * *", "has 4 fields"),
    ("* * * * * * * *", "has 8 fields"),
    ("60 * * * *", "minute: 60 is not between 0 and 59"),
    ("* 24 * * *", "hour: 24 is not between 0 and 23"),
    ("* * 0 * *", "day of month: 0 is not between 1 and 31"),
    ("* * 32 * *", "day of month: 32 is not between 1 and 31"),
    ("* * * 13 *", "month: 13 is not between 1 and 12"),
    ("* * * * 8", "day of week: 8 is not between 0 and 7"),
    ("60 * * * * *", "second: 60 is not between 0 and 59"),
    ("0 0 0 1 1 ? 1969", "year: 1969 is not between 1970 and 2200"),
    ("0 0 0 1 1 ? 2201", "year: 2201 is not between 1970 and 2200"),
    ("*/0 * * * *", "minute: a step of 0 is not between 1 and 60"),
    ("*/61 * * * *", "minute: a step of 61 is not between 1 and 60"),
    ("0 */90 * * *", "hour: a step of 90 is not between 1 and 24"),
    ("5-1 * * * *", "minute: the range ends at 1, before its begin 5"),
    ("0 0 * * fri-mon", "day of week: the range ends at 1, before its begin 5"),
    ("0-59/-1 * * * *", "minute: '-1' is not understood here"),
    ("1-2-3 * * * *", "minute: '2-3' is not understood here"),
    ("1/2/3 * * * *", "minute: '2/3' is not understood here"),
    ("1, * * * *", "minute: a value is missing"),
    (",1 * * * *", "minute: a value is missing"),
    ("/5 * * * *", "minute: a value is missing"),
    ("*/ * * * *", "minute: a value is missing"),
    ("5- * * * *", "minute: a value is missing"),
    ("** * * * *", "minute: '**' is not understood here"),
    ("+5 * * * *", "minute: '+5' is not understood here"),
    ("5.0 * * * *", "minute: '5.0' is not understood here"),
    ("1_0 * * * *", "minute: '1_0' is not understood here"),
    ("0x5 * * * *", "minute: '0X5' is not understood here"),
    ("@reboot", "'@reboot' is not one of @hourly"),
    ("@", "'@' is not one of @hourly"),
    ("@daily 5", "'@daily 5' is not one of @hourly"),
    ("L * * * *", "minute: 'L' is not understood here"),
    ("0 W * * *", "hour: 'W' is not understood here"),
    ("0 0 W * *", "day of month: a value is missing"),
    ("0 0 1-5W * *", "day of month: '1-5' is not understood here"),
    ("0 0 32W * *", "day of month: 32 is not between 1 and 31"),
    ("0 0 * L *", "month: 'L' is not understood here"),
    ("0 0 * * L", "day of week: 'L' needs a weekday"),
    ("0 0 * * 5W", "day of week: '5W' is not understood here"),
    ("0 0 L-0 * *", "day of month: 'L-0': L-1 to L-30 are possible"),
    ("0 0 L-31 * *", "day of month: 'L-31': L-1 to L-30 are possible"),
    ("0 0 5#2 * *", "day of month: '5#2' is not understood here"),
    ("0 0 ? * 5#6", "day of week: '5#6': a month has a first to a fifth weekday"),
    ("0 0 ? * 5#0", "day of week: '5#0': a month has a first to a fifth weekday"),
    ("0 0 ? * #2", "day of week: a value is missing"),
    ("0 0 ? * 8#2", "day of week: 8 is not between 0 and 7"),
    ("? * * * *", "minute: '?' is only for the two day fields"),
    ("0 0 ?,1 * *", "day of month: '?' is not understood here"),
    ("0 0 ? * ?", "'?' may stand in one of the two day fields"),
    ("0 0 mon * *", "day of month: 'MON' is not understood here"),
    ("0 0 * mon *", "month: 'MON' is not understood here"),
    ("0 0 * * jan", "day of week: 'JAN' is not understood here"),
    ("0 0 * january *", "month: 'JANUARY' is not understood here"),
    ("H(5 * * * *", "minute: 'H(5' is not understood; H, H/n, H(a-b)"),
    ("H5 * * * *", "minute: 'H5' is not understood; H, H/n, H(a-b)"),
    ("H() * * * *", "minute: 'H()' is not understood; H, H/n, H(a-b)"),
    ("H(20-10) * * * *", "minute: the range ends at 10, before its begin 20"),
    ("H(0-60) * * * *", "minute: 60 is not between 0 and 59"),
    ("H/0 * * * *", "minute: a step of 0 is not between 1 and 60"),
    ("0 0 0 1 1 ? H", "year: 'H' does not spread years"),
    ("0 0 30 2 *", "never fires"),
    ("0 0 31 2 *", "never fires"),
    ("0 0 31 4,6 *", "never fires"),
    ("0 0 L-30 2,4,6,9,11 ?", "never fires"),
    ("0 0 31W 2 *", "never fires"),
    ("0 0 0 29 2 ? 2027", "never fires"),
    ("0 0 0 29 2 ? 2100,2200", "never fires"),
    ("5" * 900 + " * * * *", "minute: '55555555555555555555...' is too large"),
    ("00005 * * * *", "minute: '00005' is too large"),
    ("5" * 5000 + " * * * *", "is longer than 1000 characters"),
    ("1" + "," * 10_000 + " * * * *", "is longer than 1000 characters"),
    ("," * 900 + " * * * *", "minute: a value is missing"),
    ("\0 * * * *", "only letters, digits and signs of ASCII"),
    ("0 0 * * *\n", "only letters, digits and signs of ASCII"),
    ("５ * * * *", "only letters, digits and signs of ASCII"),
    ("٣ * * * *", "only letters, digits and signs of ASCII"),
    ("0 0 * * ſun", "only letters, digits and signs of ASCII"),
    ("0\u00a00 * * *", "only letters, digits and signs of ASCII"),
    ("\ud800 * * * *", "only letters, digits and signs of ASCII"),
]


@pytest.mark.parametrize(("expression", "reason"), REFUSED, ids=lambda it: ascii(it)[:30])
def test_a_bad_expression_is_refused_with_its_reason(expression: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(expression, "seed")
    (problem,) = refused.value.problems
    assert problem.field == "cron"
    assert reason in problem.reason
    assert problem.reason.isascii()
    assert len(problem.reason) < 200


@pytest.mark.parametrize("wrong", [None, 5, b"* * * * *", ["*"] * 5])
def test_what_is_no_text_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidInput, match="cron: must be a text"):
        parse(wrong, "seed")


signs = st.text("0123456789*/,-LWH#?()@ \tSUNMOJA", max_size=12)


@settings(max_examples=500, deadline=None)
@given(st.lists(signs, min_size=1, max_size=8).map(" ".join) | st.text(max_size=40))
def test_any_text_is_read_or_refused_and_never_crashes(text: str) -> None:
    with suppress(InvalidInput):
        assert parse(text, "seed").wall_from(0) is not None


SAME = [
    ("0 0 * * 7", "0 0 * * 0"),
    ("0 0 * * SUN", "0 0 * * 0"),
    ("0 0 * jan,Feb,MAR mon-fri", "0 0 * 1-3 1-5"),
    ("0 0 * * mon-sun", "0 0 * * *"),
    ("0 0 * * fri-sun", "0 0 * * 0,5,6"),
    ("0 0 * * 5-7", "0 0 * * 0,5,6"),
    ("0 0 * * 0-7", "0 0 * * *"),
    ("0 0 * * 1/2", "0 0 * * 1,3,5"),
    ("0 0 * * 7/3", "0 0 * * 0,3,6"),
    ("0 0 ? * *", "0 0 * * *"),
    ("0 0 * * ?", "0 0 * * *"),
    ("5/20 * * * *", "5,25,45 * * * *"),
    ("10-30/7 * * * *", "10,17,24 * * * *"),
    ("*,5 * * * *", "* * * * *"),
    ("0 5 * * * *", "5 * * * *"),
    ("0 5 * * * * *", "5 * * * *"),
    ("\t0  5\t* * * ", "0 5 * * *"),
    ("@Daily", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@annually", "@yearly"),
    ("0 0 * * fril", "0 0 ? * 5L"),
    ("0 0 * * 7#1", "0 0 * * sun#1"),
    ("0 0 1-31 * 1", "0 0 * * 1"),
    ("0 0 1-30,L * 5", "0 0 * * 5"),
    ("0 0 1-27,L,L-1,L-2,L-3 * 5", "0 0 * * 5"),
    ("0 0 13 * 0-5,6#1,6#2,6#3,6#4,6L", "0 0 13 * *"),
    ("0 0 1-30,L * *", "0 0 * * *"),
    ("0 0 */1 * 1", "0 0 * * 1"),
    ("0 0 13 * 0-6", "0 0 13 * *"),
    ("0 0 */2 * 1", "0 0 1-31/2 * 1"),
]


@pytest.mark.parametrize(("expression", "other"), SAME)
def test_two_ways_to_write_the_same(expression: str, other: str) -> None:
    assert _days(expression, 60) == _days(other, 60)


DAYS = [
    ("0 0 L * *", "01-31 02-28 03-31 04-30"),
    ("0 0 L-3 * *", "01-28 02-25 03-28 04-27"),
    ("0 0 1,L 2 *", "02-01 02-28"),
    ("0 0 LW * *", "01-30 02-27 03-31 04-30"),
    ("0 0 15W * *", "01-15 02-16 03-16 04-15 05-15 06-15 07-15 08-14"),
    ("0 0 1W * *", "01-01 02-02 03-02 04-01 05-01 06-01 07-01 08-03"),
    ("0 0 31W * *", "01-30 03-31 05-29 07-31 08-31"),
    ("0 0 ? * 5L", "01-30 02-27 03-27"),
    ("0 0 ? * 5#2", "01-09 02-13 03-13"),
    ("0 0 ? * MON#5", "03-30 06-29 08-31"),
    ("0 0 13 * 5", "01-02 01-09 01-13 01-16 01-23 01-30 02-06 02-13 02-20"),
    ("0 0 L * 5L", "01-30 01-31 02-27 02-28"),
    ("0 0 29 2 *", "02-29 02-29"),
]


@pytest.mark.parametrize(("expression", "days"), DAYS)
def test_days_that_depend_on_the_month(expression: str, days: str) -> None:
    wanted = days.split()
    assert [f"{it:%m-%d}" for it in _days(expression, len(wanted))] == wanted


def test_h_spreads_jobs_and_stays_where_it_is() -> None:
    spread = {_days("H * * * *", 1, seed=f"job {n}")[0].minute for n in range(1000)}
    assert spread == set(range(60))
    assert _days("H H * * *", 5, seed="a") == _days("H H * * *", 5, seed="a")
    assert len({_days("H H * * *", 1, seed=f"{n}")[0] for n in range(100)}) > 80


@pytest.mark.parametrize("seed", ["", "a", "b", "tenant/project/job", "\ud800"])
def test_h_keeps_to_its_range_and_step(seed: str) -> None:
    minutes = [it.minute for it in _days("H(10-29)/10 * * * *", 4, seed=seed)]
    assert minutes[:2] == minutes[2:]
    assert 10 <= minutes[0] < 20
    assert minutes[1] == minutes[0] + 10
    assert [it.month for it in _days("0 0 H * *", 12, seed=seed)] == list(range(1, 13)), "it fires in every month"
    assert len({it.hour for it in _days("0 H/6 * * *", 8, seed=seed)}) == 4


def test_the_hash_of_h_never_changes_between_releases() -> None:
    assert [f"{it:%a %H:%M:%S}" for it in _days("H H H * * H", 1, seed="default/default/nightly")] == [H_VECTOR]


H_VECTOR = "Tue 19:44:36"


def _days(expression: str, number: int, seed: str = "seed") -> list[datetime]:
    line = upcoming(
        Schedule(rule=Cron(expression=expression)), datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC), seed=seed
    )
    return [it.slot_at for it in islice(line, number)]
