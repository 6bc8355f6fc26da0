"""The judge of order itself: each kind of violation is seen, and what may be passed over is."""

from typing import Any

from tests.checkers.order import Freed, Given, Lane, Outside, Round, Rules, Waits, judge

A, B = 1, 2
RULES = Rules(
    lanes={A: Lane(("global", "quota:a"), "quota:a"), B: Lane(("global", "quota:b"), "quota:b")},
    caps={"global": 3, "quota:a": 1},
    seats={7: 16, 8: 16},
)


def waits(item: int, start_by: int, lane: int = B, not_before: int = 0, attempt: int = 0) -> Waits:
    return Waits(start_by, not_before, item, lane, attempt)


def gives(*wanted: Waits, node: int = 7) -> tuple[Given, ...]:
    return tuple(Given(it, node) for it in wanted)


def kinds(*rounds: Round, rules: Rules = RULES) -> dict[str, int]:
    return {kind: count for kind, count in judge(rounds, rules).kinds.items() if count}


def a_round(number: int = 1, at: int = 1000, **fields: Any) -> Round:
    return Round(number=number, at=at, **fields)


ONE, TWO, THREE = waits(1, 10), waits(2, 20), waits(3, 30)


def test_the_earliest_first_is_clean() -> None:
    verdict = judge([a_round(learned=[THREE, ONE, TWO], given=gives(ONE, TWO, THREE))], RULES)
    assert verdict.clean
    assert str(verdict).startswith("rounds=1 positions=3 with a choice=2 passed=0")


def test_an_item_that_is_passed_over_within_a_round_is_seen() -> None:
    assert kinds(a_round(learned=[ONE, TWO], given=gives(TWO, ONE))) == {"passed": 1}


def test_an_item_that_is_passed_over_by_a_whole_round_is_seen() -> None:
    rules = Rules(lanes=RULES.lanes, caps={"global": 2}, seats=RULES.seats)
    first = a_round(learned=[ONE, TWO, THREE], given=gives(TWO, THREE))
    assert kinds(first, rules=rules) == {"passed": 2}


def test_order_holds_across_lanes() -> None:
    urgent = waits(4, 5, lane=A)
    assert kinds(a_round(learned=[ONE, urgent], given=gives(ONE, urgent))) == {"passed": 1}
    assert kinds(a_round(learned=[ONE, urgent], given=gives(urgent, ONE))) == {}


def test_a_full_quota_excuses() -> None:
    first, second = waits(4, 5, lane=A), waits(5, 6, lane=A)
    assert kinds(a_round(learned=[first, second, ONE], given=gives(first, ONE))) == {}


def test_a_quota_is_no_excuse_once_its_seat_is_known_to_be_free() -> None:
    first, second = waits(4, 5, lane=A), waits(5, 6, lane=A)
    begun = a_round(learned=[first, second], given=gives(first))
    assert kinds(begun, a_round(2, learned=[ONE], given=gives(ONE))) == {}
    freed = a_round(2, learned=[ONE, Freed(4)], given=gives(ONE))
    assert kinds(begun, freed) == {"passed": 1, "left": 1}
    assert kinds(begun, a_round(2, learned=[ONE, Freed(4)], given=gives(second, ONE))) == {}


def test_what_is_finished_from_outside_keeps_its_limits_but_not_its_node() -> None:
    rules = Rules(lanes=RULES.lanes, caps={"quota:a": 1}, seats={7: 1})
    first, second = waits(4, 5, lane=A), waits(5, 6, lane=A)
    begun = a_round(learned=[first], given=gives(first))
    assert kinds(begun, a_round(2, learned=[Outside(4), second, ONE], given=gives(ONE)), rules=rules) == {}


def test_an_item_whose_time_has_not_come_is_not_passed_over() -> None:
    later = waits(4, 5, not_before=2000)
    assert kinds(a_round(learned=[later, ONE], given=gives(ONE))) == {}
    assert kinds(a_round(at=2000, learned=[later, ONE], given=gives(ONE))) == {"passed": 1, "left": 1}


def test_an_item_that_the_round_did_not_know_is_not_passed_over() -> None:
    assert kinds(a_round(learned=[TWO], given=gives(TWO)), a_round(2, learned=[ONE], given=gives(ONE))) == {}


def test_an_item_that_was_cancelled_is_not_passed_over() -> None:
    assert kinds(a_round(learned=[ONE, TWO, Freed(1)], given=gives(TWO))) == {}


def test_an_item_that_waits_again_is_in_the_order_again() -> None:
    begun = a_round(learned=[ONE], given=gives(ONE))
    again = waits(1, 10, attempt=1)
    assert kinds(begun, a_round(2, learned=[TWO, again], given=gives(TWO, again))) == {"passed": 1}
    assert kinds(begun, a_round(2, learned=[TWO, again], given=gives(again, TWO))) == {}


def test_a_round_that_stops_although_more_could_start_is_seen() -> None:
    assert kinds(a_round(learned=[ONE, TWO], given=gives(ONE))) == {"left": 1}


def test_a_full_batch_a_full_limit_or_a_full_node_ends_a_round() -> None:
    one_at_a_time = Rules(lanes=RULES.lanes, caps={}, seats=RULES.seats, batch_max=1)
    one_global = Rules(lanes=RULES.lanes, caps={"global": 1}, seats=RULES.seats)
    one_seat = Rules(lanes=RULES.lanes, caps={}, seats={7: 1})
    for rules in (one_at_a_time, one_global, one_seat):
        assert kinds(a_round(learned=[ONE, TWO], given=gives(ONE)), rules=rules) == {}


def test_items_for_other_executors_are_not_compared() -> None:
    lanes = {A: Lane(("quota:a",), "quota:a", place="gpu"), B: RULES.lanes[B]}
    rules = Rules(lanes=lanes, caps={}, seats=RULES.seats)
    assert kinds(a_round(learned=[waits(4, 5, lane=A), ONE], given=gives(ONE)), rules=rules) == {}


def test_equal_times_go_to_the_quota_with_the_least_running_then_to_the_oldest() -> None:
    rules = Rules(lanes=RULES.lanes, caps={}, seats=RULES.seats)
    busy = a_round(learned=[waits(1, 1)], given=gives(waits(1, 1)))
    mine, other = waits(8, 50, lane=B), waits(9, 50, lane=A)
    assert kinds(busy, a_round(2, learned=[mine, other], given=gives(other, mine)), rules=rules) == {}
    assert kinds(busy, a_round(2, learned=[mine, other], given=gives(mine, other)), rules=rules) == {"passed": 1}
    twins = [waits(8, 50), waits(9, 50)]
    assert kinds(a_round(learned=twins, given=gives(*reversed(twins))), rules=rules) == {"passed": 1}


def test_weights_share_equal_times() -> None:
    rules = Rules(lanes=RULES.lanes, caps={}, seats=RULES.seats, weights={"quota:b": 3})
    begun = a_round(learned=[waits(1, 1), waits(2, 1)], given=gives(waits(1, 1), waits(2, 1)))
    started = a_round(2, learned=[waits(3, 2, lane=A)], given=gives(waits(3, 2, lane=A)))
    mine, other = waits(8, 50, lane=B), waits(9, 50, lane=A)
    assert kinds(begun, started, a_round(3, learned=[mine, other], given=gives(mine, other)), rules=rules) == {}


def test_the_first_round_of_another_node_may_have_known_more() -> None:
    full = a_round(learned=[ONE, TWO, THREE], given=gives(ONE, TWO, THREE))
    fresh = waits(4, 40)
    ended = Rules(lanes=RULES.lanes, caps=RULES.caps, seats=RULES.seats, ended={(1, 1): 1000})
    assert kinds(full, a_round(2, given=gives(fresh), exact=False), rules=ended) == {}
    assert kinds(full, a_round(2, at=999, given=gives(fresh), exact=False), rules=ended) == {"over": 1}
    assert kinds(full, a_round(2, given=gives(fresh)), rules=ended) == {"over": 1}
    assert kinds(full, a_round(2, learned=[Freed(1)], given=gives(fresh))) == {}


def test_what_is_emptied_after_it_was_given_frees_no_seat() -> None:
    rules = Rules(lanes=RULES.lanes, caps={"global": 1}, seats=RULES.seats)
    takes_over = a_round(given=gives(ONE), exact=False)
    assert kinds(takes_over, a_round(2, learned=[ONE, TWO]), rules=rules) == {}
    assert kinds(takes_over, a_round(2, learned=[ONE, TWO], given=gives(TWO)), rules=rules) == {"over": 1}


def test_a_round_that_gives_more_than_a_limit_allows_is_seen() -> None:
    both = [waits(4, 5, lane=A), waits(5, 6, lane=A)]
    assert kinds(a_round(learned=both, given=gives(*both))) == {"over": 1}


def test_an_item_that_is_given_twice_is_seen() -> None:
    assert kinds(a_round(learned=[ONE], given=gives(ONE)), a_round(2, given=gives(ONE, node=8))) == {"twice": 1}


def test_an_item_that_is_given_too_early_is_seen() -> None:
    later = waits(4, 5, not_before=1001)
    assert kinds(a_round(learned=[later], given=gives(later))) == {"early": 1}
