"""How tasks are executed: every key of it arrives in the model, what is left out changes nothing, and it can be said in
the SDK with the same words."""

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rota
from rota.definitions import execution
from rota.definitions.report import Report
from rota.definitions.spec import BackoffShape, ExecutionShape, JobShape, RateShape, RetriesShape, Shape
from rota.definitions.yaml import read_yaml
from rota.errors import InvalidInput
from rota.execution.kinds.registry import KINDS
from rota.model.job import Definition, JobName, Task, handler_name, handler_of, lane_of
from rota.model.value import decode, digest, encode
from rota.model.work import Backoff, BackoffKind, Bounds, Lane, OnExhausted, Rate, Retry
from tests.bad_input.entry import emitted

TODAY = date(2026, 11, 15)
DOCS = Path(__file__).parents[3] / "docs" / "definitions.md"

ALL: dict[str, Any] = {
    "retries": {
        "max": 5,
        "backoff": {"kind": "exponential", "seconds": 1, "factor": 3, "max_s": 60, "jitter": 0.1},
        "only": [75, "ConnectionError", "timeout"],
        "never": ["memory"],
    },
    "lost_max": 2,
    "on_exhausted": "pause",
    "timeout_s": 60,
    "warn_s": 30,
    "grace_s": 2,
    "start_within_s": 10,
    "hold_s": 120,
    "cap": 3,
    "rate": {"max": 10, "period_s": 60},
    "group": "gpu",
    "quota": "nightly",
    "resources": ["printer", "licence"],
    "concurrency": 8,
    "memory_mb": 512,
    "cpu_s": 30,
    "processes_max": 20,
    "directory": "/srv/reports",
    "user": "reports",
    "env": {"REGION": "eu", "EMPTY": "", "TEXT": "$(id); \n `x`"},
}


def written(keys: dict[str, Any], what: str = "python: 'reports:nightly'") -> Definition:
    (definition,) = read_yaml(f"jobs: {{job: {{{emitted(keys)[1:-1]}, {what}}}}}", file=None, today=TODAY)
    return definition


def task(keys: dict[str, Any], what: str = "python: 'reports:nightly'") -> Task:
    return written(keys, what).tasks[0]


def problems(keys: dict[str, Any], what: str = "python: 'reports:nightly'") -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        written(keys, what)
    return [str(problem) for problem in caught.value.problems]


def test_every_key_arrives() -> None:
    definition = written(ALL)
    assert (definition.cap, definition.rate) == (3, Rate(max=10, period_s=60.0))
    assert definition.tasks == (
        Task(
            name="main",
            runner="python",
            config={"function": "reports:nightly"},
            retry=Retry(
                max=5,
                backoff=Backoff(kind=BackoffKind.EXPONENTIAL, seconds=(1.0,), factor=3.0, max_s=60.0, jitter=0.1),
                only=("75", "ConnectionError", "timeout"),
                never=("memory",),
                lost_max=2,
                on_exhausted=OnExhausted.PAUSE,
            ),
            timeout_s=60.0,
            warn_s=30.0,
            grace_s=2.0,
            start_within_s=10.0,
            hold_s=120.0,
            group="gpu",
            quota="nightly",
            resources=("printer", "licence"),
            concurrency=8,
            bounds=Bounds(memory_mb=512, cpu_s=30.0, processes_max=20, directory="/srv/reports", user="reports"),
            env={"REGION": "eu", "EMPTY": "", "TEXT": "$(id); \n `x`"},
        ),
    )
    assert set(ALL) == set(ExecutionShape.model_fields), "a key was added; say here where it arrives"


def test_the_sdk_says_it_with_the_same_words() -> None:
    app = rota.App()
    app.task(name="job", **ALL)(print)
    (defined,) = app.definitions(TODAY)
    (own,), (in_yaml,) = defined.tasks, written(ALL).tasks
    same = [field for field in Task.__struct_fields__ if getattr(own, field) == getattr(in_yaml, field)]
    assert set(Task.__struct_fields__) - set(same) == {"config"}
    assert (defined.cap, defined.rate) == (3, Rate(max=10, period_s=60.0))


@pytest.mark.parametrize(
    ("backoff", "meant"),
    [
        (5, Backoff(seconds=(5.0,))),
        (0, Backoff()),
        ([1, 5, 30], Backoff(kind=BackoffKind.LIST, seconds=(1.0, 5.0, 30.0))),
        ({"seconds": 5}, Backoff(seconds=(5.0,))),
        ({"kind": "fixed", "seconds": 5, "jitter": 0.5}, Backoff(seconds=(5.0,), jitter=0.5)),
        ({"kind": "list", "seconds": [2]}, Backoff(kind=BackoffKind.LIST, seconds=(2.0,))),
        ({"kind": "exponential", "seconds": 2}, Backoff(kind=BackoffKind.EXPONENTIAL, seconds=(2.0,))),
    ],
)
def test_a_backoff_is_a_number_a_list_or_a_mapping(backoff: object, meant: Backoff) -> None:
    assert task({"retries": {"max": 3, "backoff": backoff}}).retry == Retry(max=3, backoff=meant)


def test_a_number_of_retries_is_short_for_a_mapping() -> None:
    assert digest(written({"retries": 3})) == digest(written({"retries": {"max": 3}}))
    assert task({"retries": 3}).retry == Retry(max=3)
    assert digest(written({"retries": 0})) == digest(written({"title": ""}))


def test_bounds_go_with_concurrency_and_with_programs() -> None:
    assert task({"user": "nobody", "memory_mb": 64, "concurrency": 2}).concurrency == 2
    assert task({"user": "nobody", "env": {"A": "b"}}, "shell: [x]").bounds == Bounds(user="nobody")
    assert task({"retries": 3, "timeout_s": 5, "concurrency": 1}, "http: {url: 'http://x'}").timeout_s == 5.0


def test_all_that_does_not_fit_together_is_told_at_once() -> None:
    keys = {
        "warn_s": 9,
        "timeout_s": 5,
        "user": "x",
        "concurrency": 2,
        "retries": {"max": 1, "only": [1], "never": [1]},
    }
    assert [problem.partition(":")[0] for problem in problems(keys, "http: {url: 'http://x'}")] == [
        "jobs.job.warn_s",
        "jobs.job.retries.never",
        "jobs.job.user",
        "jobs.job.concurrency",
    ]


def test_a_key_of_an_inner_mapping_is_shown_its_place() -> None:
    assert problems({"backoff": 5}) == ["jobs.job.backoff: is not a known key here; it goes inside retries"]
    assert problems({"timeout": 5}) == ["jobs.job.timeout: is not a known key; did you mean timeout_s?"]


def test_what_is_not_written_is_not_stored_and_changes_no_digest() -> None:
    """The digests are those of the release before there were these keys."""
    python, http = written({"title": ""}), written({"every_s": 5}, "http: {url: 'http://x'}")
    app = rota.App(tenant="acme")
    app.task(name="f", every_s=5)(print)
    (own,) = app.definitions(TODAY)
    assert digest(written({"title": ""}, "python: 'a.b:c'")) == (
        "5f34125335b090ecadce5f8f5c47c80f27247724c7501544c015889106852d2c"
    )
    assert digest(http) == "adeb16d975910abd89d5b3996197e1314047a689cbc9e1d45a54d877f8108563"
    assert digest(own) == "2e0adac4cc0cf55f585e067b443a3945324ef24702a697e85399bca1f738964a"
    for definition in (python, http, own):
        stored = json.loads(encode(definition))
        assert set(stored) <= {"name", "schedule", "tasks", "tenant"}
        assert set(stored["tasks"][0]) == {"name", "runner", "config"}


def test_the_defaults_spelled_out_are_the_same_job() -> None:
    spelled_out = {
        "retries": {"max": 0, "backoff": {"kind": "fixed", "seconds": 0, "jitter": 0}},
        "lost_max": 3,
        "on_exhausted": "fail",
        "grace_s": 5,
        "start_within_s": 0,
        "hold_s": 0,
        "group": "default",
        "quota": "default",
        "resources": [],
        "concurrency": 1,
        "env": {},
    }
    assert encode(written(spelled_out)) == encode(written({"title": ""}))


def test_it_survives_the_canonical_encoding() -> None:
    definition = written(ALL)
    again = decode(encode(definition), Definition)
    assert again == definition
    assert digest(again) == digest(definition)


def test_a_handler_is_named_in_one_way() -> None:
    app = rota.App(tenant="acme", project="reports")
    app.task(name="nightly")(print)
    (own,) = app.definitions(TODAY)
    assert handler_of(own, own.tasks[0]) == "acme/reports/nightly" == handler_name(own.full_name)
    assert own.tasks[0].config == {"handler": "nightly"}
    assert lane_of(7, own, own.tasks[0]) == Lane(tenant="acme", handler="acme/reports/nightly")
    assert handler_name(JobName("default", "default", "a")) == "default/default/a", "never short: it is compared"
    in_yaml = written({"title": ""})
    assert handler_of(in_yaml, in_yaml.tasks[0]) == "reports:nightly"
    for what in ("shell: [x]", "http: {url: 'http://x'}"):
        other = written({"title": ""}, what)
        assert handler_of(other, other.tasks[0]) == ""


@pytest.mark.parametrize(
    "keys",
    [
        ALL,
        {"title": ""},
        {"retries": {"max": 3, "backoff": [1, 2], "never": [1, "KeyError"]}},
        {"retries": {"max": 3, "backoff": {"seconds": 2, "jitter": 0.5}}},
    ],
)
def test_a_definition_that_is_right_passes_when_it_is_looked_at_again(keys: dict[str, Any]) -> None:
    for what in ("python: 'a:b'", "shell: [x]") if "concurrency" not in keys else ("python: 'a:b'",):
        report = Report()
        execution.check(written(keys, what), report)
        assert report.problems == ()


@given(
    st.dictionaries(
        st.sampled_from(sorted(ExecutionShape.model_fields)), st.integers(-5, 200_000) | st.floats(), max_size=5
    )
)
@settings(max_examples=300, deadline=None)
def test_what_passes_once_passes_again_and_is_stored_as_it_was(keys: dict[str, Any]) -> None:
    try:
        definition = written({"title": "", **keys})
    except InvalidInput:
        return
    report = Report()
    execution.check(definition, report)
    assert report.problems == ()
    assert decode(encode(definition), Definition) == definition


@pytest.mark.parametrize(
    ("shape", "prefix"),
    [(JobShape, ""), (RetriesShape, "retries."), (BackoffShape, "retries.backoff."), (RateShape, "rate.")],
)
def test_the_reference_explains_every_key(shape: type[Shape], prefix: str) -> None:
    text = DOCS.read_text()
    keys = [*shape.model_fields, *(KINDS.own_names if shape is JobShape else ())]
    assert [key for key in keys if any(f"{before} `{prefix}{key}`" in text for before in "|,")] == keys
