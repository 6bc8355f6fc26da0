"""The judge of execution itself: each kind of violation is seen, and a good history is clean."""

import json

import pytest

from tests.checkers.executing import (
    END,
    START,
    Excess,
    Gone,
    Line,
    Overlap,
    Stopped,
    intervals,
    judge,
    overlaps,
    parse,
    share_at,
)
from tests.checkers.starts import first_starts

CAPS = {"global": 2, "quota:a/default": 1}


def a_line(at: int, kind: str, item: int = 1, attempt: int = 1, **fields: object) -> Line:
    known = {"run": item, "token": attempt, "pid": 100 + item, "tenant": "a", "quota": "default", **fields}
    return Line(mono_ns=at, item=item, attempt=attempt, kind=kind, **known)  # type: ignore[arg-type]


def span(start: int, end: int, item: int = 1, attempt: int = 1, **fields: object) -> list[Line]:
    return [a_line(start, START, item, attempt, **fields), a_line(end, END, item, attempt, **fields)]


def test_a_process_that_is_stopped_executes_nothing_until_it_goes_on() -> None:
    lines = [*span(0, 90), *span(40, 60, attempt=2, pid=200)]
    pid = lines[0].pid
    assert len(overlaps(intervals(lines, [], 100))) == 1
    assert overlaps(intervals(lines, [], 100, [Stopped(pid, 30, 70)])) == []
    (late,) = overlaps(intervals(lines, [], 100, [Stopped(pid, 30, 55)]))
    assert (late.first, late.second, late.ns) == (2, 1, 5)
    pieces = [(it.start_ns, it.end_ns) for it in intervals(lines[:2], [], 100, [Stopped(pid, 30, 55)])]
    assert pieces == [(0, 30), (55, 90)]


def test_what_runs_one_after_the_other_is_clean() -> None:
    lines = [*span(10, 20), *span(20, 30, item=2), *span(15, 30, item=3, tenant="b")]
    verdict = judge(lines, [], 100, CAPS)
    assert verdict.clean
    assert str(verdict) == "n=3 two_nodes=0 caps=0 tokens=0"


def test_two_live_attempts_of_one_item_are_seen() -> None:
    lines = [*span(10, 30), *span(25, 40, attempt=2)]
    assert judge(lines, [], 100, {}).two_nodes == [Overlap(1, 1, 2, 5)]


def test_two_live_attempts_of_one_number_are_told_apart_by_their_tokens() -> None:
    """A store that lost its history gives the number of an attempt again."""
    lines = [*span(10, 30, pid=1), *span(25, 40, token=2**33 + 1, pid=2)]
    verdict = judge(lines, [], 100, CAPS)
    assert (verdict.attempts, verdict.two_nodes, len(verdict.caps)) == (2, [Overlap(1, 1, 1, 5)], 1)


def test_every_pair_of_live_attempts_is_seen() -> None:
    lines = [*span(10, 90), *span(20, 30, attempt=2), *span(40, 50, attempt=3)]
    assert [(it.first, it.second) for it in overlaps(intervals(lines, [], 100))] == [(1, 2), (1, 3)]


def test_an_attempt_without_an_end_lives_until_its_process_was_seen_gone() -> None:
    lines = [a_line(10, START), *span(25, 40, attempt=2, pid=7)]
    assert judge(lines, [Gone(101, 24)], 100, {}).clean
    assert judge(lines, [Gone(101, 26)], 100, {}).two_nodes == [Overlap(1, 1, 2, 1)]


def test_an_attempt_whose_process_was_never_seen_gone_lives_to_the_end() -> None:
    lines = [a_line(10, START), *span(25, 40, attempt=2, pid=7)]
    assert judge(lines, [], 100, {}).two_nodes == [Overlap(1, 1, 2, 15)]


def test_a_process_id_that_was_used_before_does_not_end_an_attempt() -> None:
    (found,) = intervals([a_line(50, START)], [Gone(101, 40), Gone(101, 60)], 100)
    assert (found.end_ns, found.told) == (60, False)


def test_more_than_a_quota_allows_is_seen_with_its_excess_and_its_time() -> None:
    lines = [*span(10, 30), *span(20, 50, item=2)]
    assert judge(lines, [], 100, CAPS).caps == [Excess("quota:a/default", 1, 2, 20, 10)]


def test_more_than_the_global_limit_allows_is_seen_although_every_quota_is_kept() -> None:
    lines = [line for n in range(3) for line in span(10, 30 + n, item=n, tenant=f"t{n}")]
    assert judge(lines, [], 100, CAPS).caps == [Excess("global", 2, 3, 10, 20)]


def test_an_end_comes_before_a_start_of_the_same_instant() -> None:
    assert judge([*span(10, 20), *span(20, 30, item=2)], [], 100, CAPS).clean


def test_a_token_that_does_not_rise_is_seen() -> None:
    good = [*span(10, 20), *span(30, 40, attempt=2)]
    assert judge(good, [], 100, {}).clean
    assert judge([*span(10, 20), *span(30, 40, attempt=2, token=1)], [], 100, {}).kinds["tokens"] == 1
    assert judge([*span(10, 20, token=5), *span(30, 40, attempt=2)], [], 100, {}).kinds["tokens"] == 1


def test_the_share_of_time_at_a_cap() -> None:
    line = intervals([*span(0, 60), *span(20, 80, item=2), *span(90, 100, item=3)], [], 100)
    assert share_at(line, 2, 0, 100) == pytest.approx(0.4)
    assert share_at(line, 1, 0, 100) == pytest.approx(0.9)
    assert share_at(line, 1, 50, 100) == pytest.approx(0.8)


def test_a_line_that_is_not_whole_counts_as_not_written() -> None:
    whole = json.dumps(a_line(10, START)._asdict())
    assert parse(f"{whole}\n{whole[:30]}\n") == [a_line(10, START)]


def test_every_owed_run_starts_once() -> None:
    lines = [*span(10, 20), *span(10, 20, item=2)]
    assert first_starts([1, 2], [], lines, set()).clean
    assert first_starts([1, 2, 3], [], lines, set()).never == [3]
    assert first_starts([1], [], lines, set()).phantom == [2]
    assert first_starts([1], [2, 9], lines, set()).clean


def test_a_run_may_start_again_only_after_a_loss_on_record() -> None:
    lines = [a_line(10, START, attempt=2), *span(30, 40, attempt=3)]
    told = first_starts([1], [], lines, {(1, 2)})
    assert told.clean
    assert told.restarts == 1
    assert first_starts([1], [], lines, {(1, 1)}).again == [1]


def test_an_attempt_that_starts_twice_is_seen() -> None:
    lines = [*span(10, 20), *span(15, 20)]
    assert first_starts([1], [], lines, set()).again == [1]
    assert judge(lines, [], 100, {}).kinds["tokens"] == 1
