"""What `assign` accepts, and what it refuses and why (S2.19, S2.22, S2.32)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from rota.definitions.assignment import assignment
from rota.errors import InvalidInput
from rota.model.work import ASSIGN_MAX, INFO_MAX, NUMBER_MAX, Assignment, BackoffKind

START = datetime(2026, 5, 1, 12, tzinfo=UTC)


def read(
    numbers: Any = ("a",),
    infos: Any = None,
    *,
    tenant: Any = "acme",
    start_at: Any = None,
    end_at: Any = None,
    handler: Any = None,
    notify: Any = (),
    **options: Any,
) -> Assignment:
    return assignment(
        "key",
        tenant,
        numbers,
        infos,
        start_at=start_at,
        end_at=end_at,
        handler=handler,
        notify=notify,
        **options,
    )


def test_the_defaults_are_those_of_the_document() -> None:
    """S2.32: no retries, 120 seconds."""
    work = read().work
    assert (work.retry.max, work.timeout_s) == (0, 120.0)
    assert (work.tenant, work.quota, work.group, work.handler, work.notify) == ("acme", "default", "default", None, ())


def test_numbers_and_infos_go_together_in_their_order() -> None:
    """S2.11, S2.19: the client's number and info of each task."""
    tasks = read(["x-2", "x-1"], [{"to": "a@b"}, None]).tasks
    assert [(task.number, task.info) for task in tasks] == [("x-2", {"to": "a@b"}), ("x-1", None)]


def test_everything_that_a_job_may_say_about_its_execution_can_be_said() -> None:
    work = read(
        retries={"max": 3, "backoff": {"kind": "exponential", "seconds": 2}},
        timeout_s=0.1,
        quota="mail",
        group="eu",
        handler="reports/send",
        hold_s=5,
        concurrency=4,
        resources=["smtp"],
        notify=["on_fail"],
    ).work
    assert (work.retry.max, work.retry.backoff.kind, work.timeout_s) == (3, BackoffKind.EXPONENTIAL, 0.1)
    assert (work.quota, work.group, work.handler) == ("mail", "eu", "default/reports/send")
    assert (work.hold_s, work.concurrency, work.resources, work.notify) == (5.0, 4, ("smtp",), ("on_fail",))


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("send", "default/default/send"),
        ("acme/mail/send", "acme/mail/send"),
        ("acme.mail:send", "acme.mail:send"),
    ],
)
def test_a_handler_is_a_task_or_a_function(given: str, kept: str) -> None:
    assert read(handler=given).work.handler == kept


def test_instants_may_come_as_text_or_in_any_zone() -> None:
    made = read(start_at=START.astimezone(timezone(timedelta(hours=2))), end_at="2026-05-01T12:00:00Z")
    assert made.start_at == made.end_at == START


def test_the_largest_call_is_accepted() -> None:
    assert len(read([str(number) for number in range(ASSIGN_MAX)]).tasks) == ASSIGN_MAX
    assert read(["n" * NUMBER_MAX], ["x" * (INFO_MAX - 2)]).tasks[0].number == "n" * NUMBER_MAX


BAD: list[tuple[str, dict[str, Any], str, str]] = [
    ("empty number", {"numbers": [""]}, "numbers[0]", "must not be empty"),
    ("blank number", {"numbers": ["a", " "]}, "numbers[1]", "must not be empty"),
    ("long number", {"numbers": ["n" * (NUMBER_MAX + 1)]}, "numbers[0]", "at most 200 characters"),
    ("number is no text", {"numbers": [5]}, "numbers[0]", "must be text"),
    ("number with NUL", {"numbers": ["a\0"]}, "numbers[0]", "NUL"),
    ("twice", {"numbers": ["a", "b", "a"]}, "numbers[2]", "'a' is given twice"),
    ("none", {"numbers": []}, "numbers", "must be 1 to 10000 in one call, not 0"),
    ("too many", {"numbers": ["x"] * (ASSIGN_MAX + 1)}, "numbers", "not 10001"),
    ("one text", {"numbers": "abc"}, "numbers", "must be a list"),
    ("fewer infos", {"numbers": ["a", "b"], "infos": [1]}, "infos", "there are 1 for 2 numbers"),
    ("more infos", {"numbers": ["a"], "infos": [1, 2]}, "infos", "there are 2 for 1 numbers"),
    ("infos are no list", {"infos": {"a": 1}.keys, "numbers": ["a"]}, "infos", "must be a list"),
    ("large info", {"infos": ["x" * INFO_MAX]}, "infos[0]", "at most 65536 are allowed"),
    ("info is no JSON", {"infos": [{1, 2}]}, "infos[0]", "JSON cannot say"),
    ("info is NaN", {"infos": [float("nan")]}, "infos[0]", "not a number"),
    ("end before start", {"start_at": START, "end_at": START - timedelta(seconds=1)}, "end_at", "lies before start_at"),
    ("naive instant", {"start_at": datetime(2026, 5, 1)}, "start_at", "has no offset"),  # noqa: DTZ001
    ("no instant", {"end_at": "soon"}, "end_at", "must be an instant"),
    ("tenant", {"tenant": "a b"}, "tenant", "the name must be"),
    ("quota", {"quota": ""}, "quota", "the name must be"),
    ("no timeout", {"timeout_s": None}, "timeout_s", "from 0.1 to 864000"),
    ("timeout of nothing", {"timeout_s": 0}, "timeout_s", "from 0.1 to 864000"),
    ("timeout too long", {"timeout_s": 864001}, "timeout_s", "from 0.1 to 864000"),
    ("retries below", {"retries": -1}, "retries.max", "from 0 to 100"),
    ("retries above", {"retries": 101}, "retries.max", "from 0 to 100"),
    ("handler", {"handler": "a b"}, "handler", "the name must be"),
    ("handler is no text", {"handler": 5}, "handler", "must be the name of a task"),
    ("concurrency from outside", {"concurrency": 2}, "concurrency", "only with a handler"),
    ("listener", {"notify": ["on_start"]}, "notify", "on_fail and on_timeout"),
]


@pytest.mark.parametrize(("given", "field", "reason"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_what_is_wrong_is_refused_by_its_name(given: dict[str, Any], field: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(**given)
    assert [problem.field for problem in caught.value.problems] == [field]
    assert reason in caught.value.problems[0].reason


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InvalidInput) as caught:
        read(["", ""], [1], tenant="!", timeout_s=0, retries=101, end_at="x")
    assert {problem.field for problem in caught.value.problems} == {
        *("end_at", "infos", "numbers[0]", "numbers[1]", "tenant", "timeout_s", "retries.max"),
    }
