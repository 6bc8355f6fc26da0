"""Every bad input that Python can say, through the SDK: refused where it is written, and nothing is left behind."""

from typing import Any

import pytest

import rota
from rota.definitions.report import field_text
from tests.bad_input.corpus import CORPUS
from tests.bad_input.entry import TODAY, Entry

ENTRIES = [entry for entry in CORPUS if entry.text is None and not entry.yaml_only]


def test_most_of_the_corpus_goes_through_the_sdk() -> None:
    assert len(ENTRIES) >= 200


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_the_error_names_field_and_reason(entry: Entry) -> None:
    apps: list[rota.App] = []
    with pytest.raises(rota.InvalidInput) as caught:
        define(entry, apps)
    problems = caught.value.problems
    found = [each for each in problems if each.field == wanted(entry) and entry.word in each.reason]
    assert found, f"{wanted(entry)!r} {entry.word!r} not in:\n{caught.value}"
    assert str(caught.value).replace("\n", "").isprintable()
    assert all(app.definitions(TODAY) == () and not app.handlers for app in apps)


def define(entry: Entry, apps: list[rota.App]) -> None:
    app = rota.App(**entry.top)
    apps.append(app)
    for name, options in entry.calendars.items():
        app.calendar(name, **options)
    job: dict[str, Any] = entry.job
    app.task(name=entry.name, **job)(lambda: None)


def wanted(entry: Entry) -> str:
    return entry.field if entry.whole else field_text((entry.name,)) + f".{entry.field}"
