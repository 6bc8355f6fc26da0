"""What is right is read, and what is wrong is said all at once."""

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.definitions.yaml import read_yaml
from rota.errors import InvalidInput, Problem
from rota.model.job import Definition, Misfire, MisfirePolicy, Overlap, OverlapPolicy, Task
from rota.model.trigger import Calendar, Cron, Delay, Endless, Every, Manual, Once, Pace, Window
from rota.model.value import decode, digest, encode
from tests.bad_input.entry import emitted

TODAY = date(2026, 11, 15)
EXAMPLES = Path(__file__).parents[3] / "examples"

FULL = """
tenant: acme
project: reports
calendars:
  plant: {weekdays: mon-fri, closed: [2026-12-24, 2026-12-27..2026-12-29], open: [2026-12-28], zone: Europe/Berlin}
jobs:
  nightly-report:
    title: Nightly report
    cron: "0 3 * * *"
    zone: Europe/Berlin
    start_at: 2026-12-01T00:00:00+01:00
    end_at: 2027-12-01T00:00:00Z
    jitter_s: 30
    calendar: plant
    misfire: {policy: all, grace_s: 90, count_max: 5, per_s: 10}
    overlap: {policy: queue, queue_max: 5, key: "db-${region}-$$"}
    backlog_max: 7
    params: {region: eu, deep: {list: [1, 2.5, null, true, text]}}
    shell: ["python", "report.py", "$(id)", "; true", "a\\nb"]
"""


def one(text: str) -> Definition:
    (definition,) = read_yaml(text, file=None, today=TODAY)
    return definition


def job(fields: str) -> Definition:
    return one(f"jobs: {{job: {{{fields}, shell: [x]}}}}")


def problems(text: str | bytes) -> tuple[Problem, ...]:
    with pytest.raises(InvalidInput) as caught:
        read_yaml(text, file="jobs.yaml", today=TODAY)
    return caught.value.problems


def test_every_key_arrives() -> None:
    definition = one(FULL)
    assert definition.full_name == ("acme", "reports", "nightly-report")
    assert definition.title == "Nightly report"
    schedule = definition.schedule
    assert schedule.rule == Cron(expression="0 3 * * *", zone="Europe/Berlin")
    assert schedule.start_at == datetime(2026, 11, 30, 23, tzinfo=UTC)
    assert schedule.end_at == datetime(2027, 12, 1, tzinfo=UTC)
    assert schedule.jitter_s == 30.0
    assert schedule.calendar == Calendar(
        name="plant",
        weekdays=(0, 1, 2, 3, 4),
        closed=(date(2026, 12, 24), date(2026, 12, 27), date(2026, 12, 28), date(2026, 12, 29)),
        open=(date(2026, 12, 28),),
        zone="Europe/Berlin",
    )
    assert definition.misfire == Misfire(policy=MisfirePolicy.ALL, grace_s=90.0, count_max=5, per_s=10.0)
    assert definition.overlap == Overlap(policy=OverlapPolicy.QUEUE, queue_max=5, key="db-${region}-$$")
    assert definition.backlog_max == 7
    assert definition.pause_after is None
    assert definition.params == {"region": "eu", "deep": {"list": [1, 2.5, None, True, "text"]}}
    argv: list[Any] = ["python", "report.py", "$(id)", "; true", "a\nb"]
    assert definition.tasks == (Task(name="main", runner="shell", config={"argv": argv}),)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ("cron: '0 3 * * *'", Cron(expression="0 3 * * *")),
        ("every_s: 5", Every(every_s=5.0)),
        ("delay_s: 0.5", Delay(delay_s=0.5)),
        ("once_at: 2026-12-24T18:00:00+01:00", Once(once_at=datetime(2026, 12, 24, 17, tzinfo=UTC))),
        ("once_at: 2026-12-24 17:00:00.25z", Once(once_at=datetime(2026, 12, 24, 17, 0, 0, 250_000, tzinfo=UTC))),
        (
            "window: {opens: '09:00', closes: '17:30', every_s: 900, weekdays: [sat, mon]}, zone: Europe/Berlin",
            Window(opens="09:00", closes="17:30", every_s=900.0, weekdays=(0, 5), zone="Europe/Berlin"),
        ),
        (
            "endless: '60; 2@* 9-18'",
            Endless(paces=(Pace(pause_s=60.0), Pace(pause_s=2.0, fields="* 9-18"))),
        ),
        ("title: by hand", Manual()),
    ],
)
def test_each_trigger_arrives(fields: str, rule: object) -> None:
    assert job(fields).schedule.rule == rule


@pytest.mark.parametrize(
    ("fields", "runner", "config"),
    [
        ("python: 'a.b:c.d'", "python", {"function": "a.b:c.d"}),
        ("http: {url: 'https://[::1]:80/x?y=z'}", "http", {"url": "https://[::1]:80/x?y=z", "method": "GET"}),
        (
            "http: {url: 'http://x', method: PUT, headers: {X-A: b}, body: [1]}",
            "http",
            {"url": "http://x", "method": "PUT", "headers": {"X-A": "b"}, "body": [1]},
        ),
    ],
)
def test_each_runner_arrives(fields: str, runner: str, config: dict[str, Any]) -> None:
    assert one(f"jobs: {{job: {{{fields}}}}}").tasks == (Task(name="main", runner=runner, config=config),)


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_right(file: Path) -> None:
    assert len(read_yaml(file.read_bytes(), file=file.name, today=TODAY)) >= 8


def test_short_and_long_forms_are_the_same_job() -> None:
    plain = job("every_s: 5")
    spelled_out = one(
        "{tenant: default, project: default, jobs: {job: {every_s: 5.0, title: '', jitter_s: 0, backlog_max: 100,"
        " params: {}, misfire: {policy: once, grace_s: 60}, overlap: {policy: forbid}, shell: [x]}}}"
    )
    assert plain == spelled_out
    assert digest(plain) == digest(spelled_out)
    assert digest(job("every_s: 5, misfire: skip")) == digest(job("every_s: 5, misfire: {policy: skip}"))


def test_a_definition_survives_the_canonical_encoding() -> None:
    for definition in (one(FULL), *read_yaml((EXAMPLES / "jobs.yaml").read_bytes(), file=None, today=TODAY)):
        again = decode(encode(definition), Definition)
        assert again == definition
        assert digest(again) == digest(definition)


def test_a_job_may_be_paused_after_some_failures() -> None:
    assert job("every_s: 5, pause_after: 3").pause_after == 3


def test_digests_do_not_change_from_release_to_release() -> None:
    assert digest(job("cron: '0 3 * * *'")) == "366ad1c26658d4f583e8f9201ff1f72d4b29c838ea90b1808272a36e63925751"
    assert digest(one(FULL)) == "a8f040a5033e9857b1d0971f3e078a947702b2be1a35a2286ee7498d24faedaf"


def test_all_problems_are_told_at_once_in_the_order_of_the_lines() -> None:
    found = problems(
        "projekt: a\njobs:\n"
        "  a/b:\n    cron: 61 * * * *\n    jitter_s: '3'\n    zone: Mars\n    shell: ls\n"
        "  c:\n    shell: [x]\n    titel: x\n"
    )
    assert [(problem.line, problem.field) for problem in found] == [
        (1, "projekt"),
        (3, "jobs.'a/b'"),
        (4, "jobs.'a/b'.cron"),
        (5, "jobs.'a/b'.jitter_s"),
        (6, "jobs.'a/b'.zone"),
        (7, "jobs.'a/b'.shell"),
        (10, "jobs.c.titel"),
    ]
    assert str(found[-1]) == "jobs.yaml:10: jobs.c.titel: is not a known key; did you mean title?"


def test_a_value_inside_a_list_has_its_own_line() -> None:
    (problem,) = problems("jobs:\n  a:\n    shell:\n      - ls\n      - !!str x\n")
    assert (problem.line, problem.field) == (5, "jobs.a.shell[1]")


def test_a_missing_key_is_told_at_the_line_of_what_lacks_it() -> None:
    found = problems("jobs:\n  a:\n    shell: [x]\n    window:\n      opens: '09:00'\n      closes: '10:00'\n")
    assert [(each.line, each.field, each.reason) for each in found] == [(4, "jobs.a.window.every_s", "is missing")]


def test_there_are_never_more_problems_than_a_person_can_use() -> None:
    assert len(problems("jobs: {" + ", ".join(f"j{number}: 1" for number in range(2000)) + "}")) == 1000


def test_a_byte_order_mark_at_the_begin_and_crlf_are_fine() -> None:
    assert len(read_yaml(b"\xef\xbb\xbfjobs:\r\n  a:\r\n    shell: [x]\r\n", file=None, today=TODAY)) == 1


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("no", "no"),
        ("0o17", 15),
        ("0x1F", 31),
        ("012", 12),
        ("'1'", "1"),
        ("~", None),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2026-12-24", "2026-12-24"),
        ("True", True),
    ],
)
def test_plain_scalars_follow_yaml_1_2(written: str, meant: object) -> None:
    found = job(f"params: {{a: {written}}}").params["a"]
    assert (found, type(found)) == (meant, type(meant))


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    refused_or_read(data)


@given(st.text(alphabet="abj:-[]{}#&*!|>'\"%@`,? \n\\0u~.<=", max_size=80))
@settings(max_examples=300, deadline=None)
def test_random_yaml_never_raises_anything_else(text: str) -> None:
    refused_or_read(text)
    refused_or_read(f"jobs:\n  a:\n    {text}\n")


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_keys = [
    "cron",
    "every_s",
    "once_at",
    "window",
    "endless",
    "zone",
    "calendar",
    "misfire",
    "overlap",
    "params",
    "shell",
    "http",
    "retries",
    "rate",
    "resources",
    "directory",
    "env",
]


@given(st.dictionaries(st.sampled_from(_keys), _json, max_size=4))
@settings(max_examples=200, deadline=None)
def test_random_values_never_raise_anything_else(fields: dict[str, object]) -> None:
    refused_or_read(f"jobs: {{a: {emitted(fields)}}}")


def refused_or_read(source: str | bytes) -> None:
    try:
        read_yaml(source, file="jobs.yaml", today=TODAY)
    except InvalidInput as error:
        told = error.problems
    else:
        return
    assert told
    assert all(str(problem).isprintable() for problem in told)
