"""P14: time is defined, and an oracle that shares nothing with the evaluator agrees with it."""

from __future__ import annotations

import os
import random
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from zoneinfo import available_timezones

import pytest

from rota.core.time.zones import wall_clock
from tests.oracles.expressions import STRANGE_ZONES, expressions
from tests.oracles.time import Change, changes, ordinary
from tests.unit.time.compare import Tally, compare

FIRST_YEAR, LAST_YEAR = 2000, 2040
NO_PLACES = {"localtime", "Factory"}
NIGHTLY_EXPRESSIONS = int(os.environ.get("ROTA_TIME_EXPRESSIONS", "200"))
NIGHTLY_PART = int(os.environ.get("ROTA_TIME_PART", "1"))
"""Compare every n-th group of zones only."""


@pytest.mark.prove
@pytest.mark.timeout(600)  # nothing but computing
def test_the_evaluator_agrees_with_the_oracle_where_clocks_jump() -> None:
    dice = random.Random(14)
    tally = Tally()
    for zone in STRANGE_ZONES:
        found = list(changes(zone, 2004, 2031))
        chosen = dice.sample(found, min(3, len(found)))
        around = [change.at for change in chosen] + ordinary(found, 2027, 1)
        tally += compare(dice.sample(expressions(200), 30), zone, around)
    print(f"compared {tally.compared} (expression, zone, instant), {tally.instants} slots: {len(tally.wrong)} differ")
    assert not tally.wrong
    assert tally.compared > 5000


@pytest.mark.parametrize(
    ("zone", "at"),
    [
        ("Pacific/Apia", 1325239200),  # 30 December 2011 does not exist
        ("Pacific/Fakaofo", 1325242800),
        ("America/New_York", 1772953200),
        ("America/New_York", 1793512800),
        ("Australia/Lord_Howe", 1775314800),
    ],
)
def test_every_expression_agrees_at_the_strangest_changes(zone: str, at: int) -> None:
    near = [it.at for it in changes(zone, 2011, 2026) if abs(it.at - at) < 86_400]
    tally = compare(expressions(150), zone, near)
    assert tally.compared == 150
    assert not tally.wrong


@pytest.mark.parametrize("zone", sorted({*STRANGE_ZONES, "Asia/Kolkata", "EST5EDT", "Etc/GMT-14"}))
def test_no_change_of_a_clock_is_overlooked(zone: str) -> None:
    expected = [it.at for it in changes(zone, 2020, 2029)]
    assert list(wall_clock(zone).changes(1577836800 - 1, 1893456000)) == expected


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)
def test_the_evaluator_agrees_with_the_oracle_in_every_zone_and_year() -> None:
    zones = sorted(available_timezones() - NO_PLACES)
    began = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        groups: dict[tuple[int, tuple[Change, ...]], list[str]] = defaultdict(list)
        for zone, key in zip(zones, pool.map(_behaviour, zones, chunksize=8), strict=True):
            groups[key].append(zone)
        work = [(names[0], key[1]) for key, names in groups.items()][::NIGHTLY_PART]
        print(
            f"{len(zones)} zones, {len(groups)} of them different in {FIRST_YEAR}-{LAST_YEAR}, {len(work)} compared; "
            f"{sum(len(found) for _, found in work)} changes, {NIGHTLY_EXPRESSIONS} expressions"
        )
        work.sort(key=lambda it: -len(it[1]))
        tally = Tally()
        for (zone, _), found in zip(work, pool.map(_compare_all, work), strict=True):
            tally += found
            print(f"{time.monotonic() - began:.0f} s {zone}: {found.compared} compared", flush=True)
    print(
        f"compared {tally.compared} (expression, zone, instant), {tally.instants} slots in "
        f"{time.monotonic() - began:.0f} s: {len(tally.wrong)} differ"
    )
    print("\n".join(tally.wrong[:20]))
    assert not tally.wrong


def _behaviour(zone: str) -> tuple[int, tuple[Change, ...]]:
    """What tells a zone from others; it must also be what the product finds."""
    found = tuple(changes(zone, FIRST_YEAR, LAST_YEAR))
    begin = 946684800
    seen = list(wall_clock(zone).changes(begin - 1, 2240524800))
    assert seen == [it.at for it in found], zone
    return wall_clock(zone).stretch(begin).offset, found


def _compare_all(work: tuple[str, tuple[Change, ...]]) -> Tally:
    zone, found = work
    around = [change.at for change in found] + [at for year in (2003, 2026, 2039) for at in ordinary(found, year, 1)]
    return compare(expressions(NIGHTLY_EXPRESSIONS), zone, around)
