"""Every bad input, as YAML: the error names the field and the reason, and nothing is read."""

import pytest

from rota.definitions.report import field_text
from rota.definitions.yaml import read_yaml
from rota.errors import InvalidInput, Problem
from tests.bad_input.corpus import CORPUS
from tests.bad_input.entry import TODAY, Entry, as_yaml

ENTRIES = [entry for entry in CORPUS if not entry.sdk_only]


def test_the_corpus_is_large_and_says_for_each_entry_what_must_be_said() -> None:
    ids = [entry.id for entry in CORPUS]
    assert len(ids) >= 250
    assert len(set(ids)) == len(ids)
    assert all(entry.word for entry in CORPUS)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_error_names_field_and_reason(entry: Entry) -> None:
    with pytest.raises(InvalidInput) as caught:
        read_yaml(as_yaml(entry), file="jobs.yaml", today=TODAY)
    problems = caught.value.problems
    assert any(names(problem, entry) for problem in problems), (
        f"{wanted(entry)!r} {entry.word!r} not in:\n{caught.value}"
    )
    assert all(is_fit_to_show(problem) for problem in problems)
    assert list(problems) == sorted(problems, key=lambda problem: problem.line or 0)


def names(problem: Problem, entry: Entry) -> bool:
    if entry.whole and not entry.field:
        return entry.word in problem.reason
    found_by_the_reader = _is_spoiled(entry) and problem.reason.startswith(("holds NUL or half", ".nan", "+.inf"))
    at_the_field = problem.field == wanted(entry) or (found_by_the_reader and problem.field.startswith(wanted(entry)))
    return at_the_field and (entry.word in problem.reason or found_by_the_reader)


def wanted(entry: Entry) -> str:
    if entry.whole:
        return entry.field
    if entry.field == "name":
        return "jobs" if _is_spoiled(entry) else field_text(("jobs", entry.name))
    return field_text(("jobs", entry.name)) + f".{entry.field}"


def _is_spoiled(entry: Entry) -> bool:
    """Whether it holds what no text may hold: then the reader refuses it before anybody asks what it means."""
    text = as_yaml(entry)
    return isinstance(text, str) and any(part in text for part in ("\\u0000", "\\ud800", ".nan", ".inf"))


def is_fit_to_show(problem: Problem) -> bool:
    return str(problem).isprintable() and len(problem.reason) < 500 and problem.file == "jobs.yaml"
