"""A benchmark that cannot see a fault proves nothing: its judge is shown each of them."""

import pytest

from rota.bench import judge
from rota.bench.judge import Made

CAPS = {"global": 3, "quota:a/default": 2, "quota:b/default": 2}


def made(item_id: int, tenant: str, assigned_at: int | None, ended_at: int | None, state: str = "succeeded") -> Made:
    return Made(item_id, state, tenant, 0, None, assigned_at, ended_at)


def test_an_item_that_did_not_succeed_is_lost_and_so_is_one_that_is_not_there() -> None:
    found = [made(1, "a", 0, 1), made(2, "a", 0, 1, "failed"), made(3, "a", None, None, "ready")]
    assert judge.lost(found, 4) == 3


def test_an_item_with_two_attempts_is_doubled_and_counts_once_as_done() -> None:
    found = [made(1, "a", 0, 1), made(1, "a", 2, 3), made(2, "a", 0, 1)]
    assert judge.doubled(found) == 1
    assert judge.lost(found, 2) == 0


def test_seats_that_are_given_on_at_the_same_instant_are_not_over_a_cap() -> None:
    found = [made(1, "a", 0, 10), made(2, "a", 0, 10), made(3, "a", 10, 20), made(4, "a", 10, 20)]
    assert judge.over_caps(found, CAPS) == 0


@pytest.mark.parametrize(
    "found",
    [
        [made(1, "a", 0, 10), made(2, "a", 5, 15), made(3, "a", 9, 20)],
        [made(1, "a", 0, 10), made(2, "a", 0, 10), made(3, "b", 9, 20), made(4, "b", 9, 20)],
    ],
    ids=["quota", "global"],
)
def test_one_seat_too_many_for_an_instant_is_seen(found: list[Made]) -> None:
    assert judge.over_caps(found, CAPS) == 1


def test_the_share_of_time_at_a_cap_counts_from_its_first_to_its_last_instant() -> None:
    found = [made(1, "a", 0, 75), made(2, "a", 25, 100), made(3, "b", 0, 1000)]
    assert judge.share_at_cap(found, "quota:a/default", 2) == pytest.approx(0.5)


def test_lateness_is_from_due_to_the_first_line() -> None:
    found = [
        Made(1, "succeeded", "a", 1_000_000, "1002500000", 0, 0),
        Made(2, "succeeded", "a", 1_000_000, "1001000000", 0, 0),
        Made(3, "failed", "a", 1_000_000, None, 0, 0),
    ]
    assert judge.begun_after_ms(found) == [1.0, 2.5]


def test_a_share_of_nothing_is_no_figure() -> None:
    assert judge.at_share([], 0.99) is None
    assert judge.at_share([1.0, 2.0, 3.0], 0.5) == 2.0
    assert judge.at_share([1.0, 2.0, 3.0], 1.0) == 3.0
