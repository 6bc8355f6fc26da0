"""Changes and late slots are judged by what was asked and answered."""

from tests.checkers.changes import CHANGED, CREATED, PAUSED, RESUMED, Asked, Line, told
from tests.checkers.firing import SECOND, Span
from tests.checkers.misfire import Misfire, missed
from tests.checkers.slots import Every
from tests.checkers.test_firing import a_row

ONE, TWO = Every(SECOND), Every(2 * SECOND)
BORN = Asked(CREATED, 1, 3, ONE)
BIRTH = Line(CREATED, 2, 1)


def test_answered_changes_become_spans() -> None:
    asked = [BORN, Asked(PAUSED, 10, 12), Asked(CHANGED, 20, 22, TWO), Asked(RESUMED, 30, 32)]
    lines = [BIRTH, Line(PAUSED, 11, 1), Line(CHANGED, 21, 2), Line(RESUMED, 31, 2)]
    result = told(asked, lines)
    assert not result.problems
    assert result.spans == (Span(ONE, 2, 11, 1), Span(TWO, 31, None, 2))


def test_an_answered_change_that_left_no_line_was_lost() -> None:
    assert "answered, but not in the history" in told([BORN, Asked(PAUSED, 10, 12)], [BIRTH]).problems[0]


def test_an_answered_change_outside_its_time_is_a_problem() -> None:
    assert told([BORN, Asked(PAUSED, 10, 12)], [BIRTH, Line(PAUSED, 13, 1)]).problems


def test_a_line_that_nobody_asked_for_is_a_problem() -> None:
    assert "nobody asked" in told([BORN], [BIRTH, Line(PAUSED, 11, 1)]).problems[0]


def test_a_change_whose_answer_was_lost_may_have_happened_or_not() -> None:
    asked = [BORN, Asked(CHANGED, 10, 15, TWO, sure=False), Asked(PAUSED, 20, 22)]
    did = told(asked, [BIRTH, Line(CHANGED, 13, 2), Line(PAUSED, 21, 2)])
    did_not = told(asked, [BIRTH, Line(PAUSED, 21, 1)])
    assert not did.problems
    assert not did_not.problems
    assert did.spans == (Span(ONE, 2, 13, 1), Span(TWO, 13, 21, 2))
    assert did_not.spans == (Span(ONE, 2, 21, 1),)


def test_a_doubled_change_is_a_problem() -> None:
    asked = [BORN, Asked(CHANGED, 10, 15, TWO)]
    assert told(asked, [BIRTH, Line(CHANGED, 11, 2), Line(CHANGED, 12, 3)]).problems


def test_late_slots_follow_the_policy_of_their_job() -> None:
    spans = {1: [Span(ONE, 0)]}

    def wrong(policy: str, *reasons: str | None) -> int:
        decided = {"created_at": 109_500_000}
        rows = [a_row(105 + n, reason=reason, **decided) for n, reason in enumerate(reasons)]
        return len(missed(spans, {1: Misfire(policy, 2.0)}, rows).wrong)

    late = "misfire"
    assert wrong("skip", late, late, late, None, None) == 0
    assert wrong("skip", late, late, None, None, None) == 1
    assert wrong("once", late, late, late, None, None) == 0
    assert wrong("once", late, late, late, late, None) == 1
    assert wrong("all", None, None, None, None, None) == 0
    assert wrong("all", late, None, None, None, None) == 1


def test_once_runs_the_latest_of_the_late() -> None:
    spans = {1: [Span(Every(5 * SECOND), 0)]}
    rows = [a_row(100, created_at=109_500_000, reason="misfire"), a_row(105, created_at=109_500_000)]
    assert not missed(spans, {1: Misfire("once", 2.0)}, rows).wrong
    rows[1]["reason"] = "misfire"
    assert len(missed(spans, {1: Misfire("once", 2.0)}, rows).wrong) == 1
