"""cronsim as a second opinion, where its rules are ours (P14).

They are not where:
- an hour field such as `*/2`, or a minute field that begins with `*` beside a fixed hour, makes cronsim follow elapsed
  time; with us only an hour field that matches all 24 hours does, however it is written (`0-23` too);
- seconds are given: cronsim then always follows elapsed time;
- `*/2` stands in one day field and the other one restricts the days too: with cronsim both must match, with us either;
- cronsim has no `W`, `?`, `H`, `L-3`, macros and years.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from cronsim import CronSim

from tests.oracles.expressions import STRANGE_ZONES, expressions
from tests.oracles.time import HOUR, Wanted, changes, zone_info
from tests.unit.time.compare import SEED, fired


def _is_common(expression: str) -> bool:
    text = expression.lower()
    if len(text.split()) != 5 or re.search(r"[?w]|l-|\bh", text):
        return False
    minute, hour, day, _, weekday = text.split()
    wanted = Wanted.of(expression, SEED)
    same_kind = hour.startswith("*") if wanted.is_interval else "*" not in minute + hour
    both = wanted.restricts_day and wanted.restricts_weekday
    same_days = "*" not in day + weekday if both else "*" in (day, weekday)
    return same_kind and same_days


COMMON = [expression for expression in expressions(200) if _is_common(expression)]


@pytest.mark.parametrize(
    "zone", [it for it in STRANGE_ZONES if it not in ("UTC", "Pacific/Apia", "Pacific/Fakaofo")][::3]
)
def test_cronsim_agrees_where_its_rules_are_ours(zone: str) -> None:
    assert len(COMMON) > 40
    for change in list(changes(zone, 2015, 2030))[:4]:
        begin, end = change.at - 4 * HOUR, change.at + 20 * HOUR
        for expression in COMMON:
            assert fired(expression, zone, begin, end) == _by_cronsim(expression, zone, begin, end), (
                expression,
                change,
            )


def _by_cronsim(expression: str, zone: str, begin: int, end: int) -> list[int]:
    found: list[int] = []
    start = datetime.fromtimestamp(begin, zone_info(zone))
    for wall in CronSim(re.sub("-sun", "-7", expression), start):
        at = int(wall.astimezone(UTC).timestamp())
        if at > end:
            break
        found.append(at)
    return found
