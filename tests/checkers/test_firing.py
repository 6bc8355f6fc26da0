"""The judge itself: each kind of violation is seen, and a good history is clean."""

from typing import Any

import pytest

from tests.checkers.firing import SECOND, Span, judge
from tests.checkers.slots import Cron, Every, slots

EVERY_2 = Every(2 * SECOND)
END = 112 * SECOND


def a_row(slot_s: float, *, late_s: float = 0.1, **fields: Any) -> dict[str, Any]:
    slot = round(slot_s * SECOND)
    made = slot + round(late_s * SECOND)
    row = {"job_id": 1, "version": 1, "slot_at": slot, "last_slot_at": None, "slots": 1, "reason": None}
    return {**row, "created_at": made, "witness_at": made, **fields}


def verdict_of(*rows: dict[str, Any], spans: list[Span] | None = None) -> dict[str, int]:
    """The violations of a job that owes 102, 104, …, 110 and, just before the end, perhaps 112."""
    verdict = judge({1: spans or [Span(EVERY_2, 100 * SECOND, None, 1)]}, rows, END)
    return {kind: count for kind, count in verdict.kinds.items() if count}


GOOD = [a_row(second) for second in (102, 104, 106, 108, 110)]


def test_one_row_for_every_slot_is_clean() -> None:
    verdict = judge({1: [Span(EVERY_2, 100 * SECOND, None, 1)]}, GOOD, END)
    assert verdict.clean
    assert verdict.slots == 5
    assert max(verdict.lateness_s) == pytest.approx(0.1)
    assert str(verdict).startswith("n=5 lost=0 doubled=0")


def test_a_slot_younger_than_the_bound_may_have_its_row_or_not() -> None:
    assert verdict_of(*GOOD, a_row(112)) == {}


def test_a_slot_without_a_row_is_lost() -> None:
    assert verdict_of(*GOOD[1:]) == {"lost": 1}


def test_a_slot_with_two_rows_is_doubled() -> None:
    assert verdict_of(*GOOD, a_row(106)) == {"doubled": 1}


def test_a_row_for_an_instant_that_is_no_slot_is_a_phantom() -> None:
    assert verdict_of(*GOOD, a_row(107)) == {"phantom": 1}


def test_a_row_of_an_unknown_job_is_a_phantom() -> None:
    assert verdict_of(*GOOD, a_row(106, job_id=2)) == {"phantom": 1}


def test_a_row_that_was_decided_before_its_slot_is_early() -> None:
    assert verdict_of(*GOOD[:4], a_row(110, late_s=-0.000001)) == {"early": 1}


def test_a_row_is_early_by_the_databases_own_clock_whatever_it_says_itself() -> None:
    assert verdict_of(*GOOD[:4], a_row(110, witness_at=109 * SECOND)) == {"early": 1}


def test_a_row_for_a_slot_far_ahead_is_early_but_no_phantom() -> None:
    assert verdict_of(*GOOD, a_row(118, late_s=-7)) == {"early": 1}


def test_a_change_settles_up_to_its_own_instant() -> None:
    spans = [Span(EVERY_2, 100 * SECOND, 106 * SECOND, 1), Span(Every(5 * SECOND), 106 * SECOND, None, 2)]
    rows = [*GOOD[:3], a_row(110, version=2)]
    assert verdict_of(*rows, spans=spans) == {}
    assert verdict_of(*rows, a_row(108), spans=spans) == {"phantom": 1}
    assert verdict_of(*rows[:3], a_row(110, version=1), spans=spans) == {"foreign": 1}


def test_nothing_is_owed_while_paused() -> None:
    spans = [Span(EVERY_2, 100 * SECOND, 104 * SECOND, 1), Span(EVERY_2, 109 * SECOND, None, 1)]
    assert verdict_of(a_row(102), a_row(104), a_row(110), spans=spans) == {}
    assert verdict_of(*GOOD, spans=spans) == {"phantom": 2}


def test_a_row_may_stand_for_a_line_of_slots() -> None:
    line = a_row(102, last_slot_at=106 * SECOND, slots=3, late_s=9)
    assert verdict_of(line, *GOOD[3:]) == {}
    assert verdict_of(line, *GOOD[2:]) == {"doubled": 1}
    assert verdict_of({**line, "slots": 2}, *GOOD[3:]) == {"miscounted": 1}
    assert verdict_of({**line, "last_slot_at": 107 * SECOND}, *GOOD[3:]) == {"phantom": 1}


def test_the_oracle_counts_from_the_epoch_and_tries_every_second() -> None:
    assert list(slots(Every(1_500_000), 3 * SECOND, 6 * SECOND)) == [4_500_000, 6_000_000]
    assert [it // SECOND for it in slots(Cron("*/7 * * * * *"), 50 * SECOND, 68 * SECOND)] == [56, 60, 67]
    assert [it // SECOND for it in slots(Cron("5 1 * * * *"), 0, 7200 * SECOND)] == [65, 3665]
