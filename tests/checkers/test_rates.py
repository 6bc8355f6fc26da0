"""The judge of rates, on histories that are known to be right or wrong."""

from tests.checkers.rates import SECOND_NS, too_many


def at(*seconds: float) -> list[int]:
    return [round(it * SECOND_NS) for it in seconds]


def test_as_many_as_allowed_in_any_period_are_right() -> None:
    assert too_many(at(0, 0, 0, 4, 4.5, 5, 8), 3, 4) == []
    assert too_many([], 1, 4) == []


def test_one_too_many_is_found_wherever_the_period_begins() -> None:
    (found,) = too_many(at(3.9, 0, 4.3, 4.1, 0.5, 9), 3, 4)
    assert (found.starts, round(found.in_s, 3)) == (4, 3.8)
    assert found.last_ns == round(4.3 * SECOND_NS)


def test_starts_at_one_instant_count_each() -> None:
    assert len(too_many(at(1, 1, 1), 1, 0.5)) == 2
