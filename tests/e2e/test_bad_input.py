"""Bad input on the command line: exit code 2 and an error that names what was wrong; nothing is stored."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rota.cli.main import run
from rota.errors import Problem
from tests.bad_input.corpus import CORPUS
from tests.bad_input.entry import Entry, as_yaml
from tests.bad_input.test_yaml import names, wanted
from tests.e2e.rig import Home

PARAMS = ("job", "trigger", "by-hand", "--params")

CASES: list[tuple[str, list[str], str]] = [
    ("empty-name", ["job", "show", ""], "name: the name must be 1 to 100"),
    ("blank-name", ["job", "show", "a b"], "name: "),
    ("dash-name", ["job", "show", "--", "-a"], "name: "),
    ("long-name", ["job", "show", "a" * 101], "name: "),
    ("umlaut-name", ["job", "show", "bäckup"], "name: "),
    ("path-name", ["job", "show", "../x"], "name: "),
    ("deep-name", ["job", "show", "a/b/c/d"], "tenant/project/name"),
    ("half-name", ["job", "pause", "a/"], "name: "),
    ("two-bad-names", ["job", "pause", "!", "?"], "name: "),
    ("no-name", ["job", "pause"], "Missing argument"),
    ("newline-name", ["job", "resume", "a\nb"], "name: "),
    ("bad-job-of-runs", ["run", "list", "--job", "a b"], "name: "),
    ("bad-preview-name", ["job", "preview", "*"], "name: "),
    ("bad-delete-name", ["job", "delete", "--yes", "%"], "name: "),
    ("preview-zero", ["job", "preview", "beat", "-n", "0"], "--count: 0 is not in the range"),
    ("preview-many", ["job", "preview", "beat", "-n", "1001"], "--count: "),
    ("preview-word", ["job", "preview", "beat", "-n", "x"], "--count: "),
    ("preview-no-file", ["job", "preview", "beat", "--file", "none.yaml"], "none.yaml: there is no such file"),
    ("run-id-word", ["run", "show", "x"], "ID: "),
    ("run-id-negative", ["run", "show", "--", "-1"], "ID: "),
    ("run-id-zero", ["run", "show", "0"], "ID: "),
    ("run-id-huge", ["run", "show", str(2**63)], "ID: "),
    ("run-id-fraction", ["run", "show", "1.5"], "ID: "),
    ("run-state", ["run", "list", "--state", "done"], "--state: 'done' is not one of 'waiting'"),
    ("job-state", ["job", "list", "--state", "running"], "--state: 'running' is not one of 'enabled'"),
    ("limit-zero", ["job", "list", "--limit", "0"], "--limit: "),
    ("limit-negative", ["run", "list", "--limit", "-5"], "--limit: "),
    ("limit-huge", ["run", "list", "--limit", "10001"], "--limit: "),
    ("limit-word", ["run", "list", "--limit", "all"], "--limit: "),
    ("before-word", ["run", "list", "--before", "x"], "--before: "),
    ("bad-tenant", ["job", "list", "--tenant", "a b"], "--tenant: "),
    ("bad-project", ["job", "list", "--project", "a/b"], "--project: "),
    ("params-no-json", [*PARAMS, "{"], "--params: is not JSON"),
    ("params-empty", [*PARAMS, ""], "--params: is not JSON"),
    ("params-list", [*PARAMS, "[1]"], "--params: must be a JSON object"),
    ("params-number", [*PARAMS, "1"], "--params: must be a JSON object"),
    ("params-nan", [*PARAMS, '{"a": NaN}'], "--params: holds NaN"),
    ("params-infinity", [*PARAMS, '{"a": -Infinity}'], "--params: holds -Infinity"),
    ("params-overflow", [*PARAMS, '{"a": 1e999}'], "params: holds inf"),
    ("params-twice", [*PARAMS, '{"a": 1, "a": 2}'], "--params: has the key 'a' twice"),
    ("params-twice-inside", [*PARAMS, '{"a": {"b": 1, "b": 1}}'], "--params: has the key 'b' twice"),
    ("params-single-quotes", [*PARAMS, "{'a': 1}"], "--params: is not JSON"),
    ("params-trailing", [*PARAMS, '{"a": 1} x'], "--params: is not JSON"),
    ("params-large", [*PARAMS, json.dumps({"a": "x" * 65536})], "--params: takes more than 65536 bytes"),
    ("params-deep", [*PARAMS, '{"a": ' + "[" * 25 + "]" * 25 + "}"], "params: is nested more than"),
    ("params-very-deep", [*PARAMS, '{"a": ' + "[" * 20_000 + "]" * 20_000 + "}"], "params: is nested"),
    ("params-huge-number", [*PARAMS, '{"a": 99999999999999999999}'], "params: holds a whole number beyond 64 bits"),
    ("params-endless-number", [*PARAMS, '{"a": ' + "9" * 5000 + "}"], "params: "),
    ("params-nul", [*PARAMS, '{"a": "\\u0000"}'], "params: must not hold NUL"),
    ("params-half", [*PARAMS, '{"a": "\\ud800"}'], "params: must not hold NUL or half"),
    ("params-bad-key", [*PARAMS, '{"a b": 1}'], "params: a parameter's name must be"),
    ("params-proto", [*PARAMS, '{"__proto__": 1}'], "params: a parameter's name must be"),
    ("param-without-value", ["job", "trigger", "by-hand", "--param", "a"], "--param: must be written KEY=TEXT"),
    ("param-without-key", ["job", "trigger", "by-hand", "--param", "=1"], "params: a parameter's name must be"),
    ("param-twice", ["job", "trigger", "by-hand", "--param", "a=1", "--param", "a=2"], "--param: 'a' is given twice"),
    ("param-and-params", [*PARAMS, '{"a": 1}', "--param", "a=2"], "--param: 'a' is given twice"),
    ("overlap-key-list", [*PARAMS, '{"region": [1]}'], "params.region: must be printable text"),
    ("overlap-key-null", [*PARAMS, '{"region": null}'], "params.region: must be printable text"),
    ("overlap-key-control", [*PARAMS, '{"region": "a\\nb"}'], "params.region: must be printable text"),
    ("key-empty", ["job", "trigger", "by-hand", "--key", ""], "key: must be 1 to 200"),
    ("key-long", ["job", "trigger", "by-hand", "--key", "k" * 201], "key: "),
    ("key-control", ["job", "trigger", "by-hand", "--key", "a\tb"], "key: "),
    ("key-blank", ["job", "trigger", "by-hand", "--key", " a"], "key: "),
    ("no-command", ["frobnicate"], "No such command 'frobnicate'"),
    ("no-job-command", ["job", "explode"], "No such command 'explode'"),
    ("no-option", ["job", "list", "--colour"], "No such option"),
    ("option-without-value", ["job", "list", "--limit"], "--limit"),
    ("apply-nothing", ["job", "apply"], "Missing argument"),
    ("apply-no-file", ["job", "apply", "none.yaml"], "none.yaml: there is no such file or folder"),
    ("apply-other-file", ["job", "apply", "rota.db"], "rota.db: is not a file with jobs"),
    ("up-no-file", ["up", "none.yaml"], "path: there is no file or folder none.yaml"),
    ("up-seconds", ["up", "jobs.yaml", "--seconds", "-1"], "--seconds: "),
    ("up-seconds-nan", ["up", "jobs.yaml", "--seconds", "nan"], "--seconds: "),
    ("node-format", ["node", "start", "--log-format", "xml"], "--log-format: "),
    ("node-no-folder", ["node", "start", "--definitions", "none"], "definitions.path: there is no file or folder none"),
    ("node-no-app", ["node", "start", "--app", "none.py"], "app: there is no file or folder none.py"),
    ("store-word", ["job", "list", "--store", "foo"], "store: this is not a store URL"),
    ("store-empty", ["job", "list", "--store", ""], "store: this is not a store URL"),
    ("store-oracle", ["job", "list", "--store", "oracle://x"], "store: 'oracle' is not a store"),
    ("store-port", ["job", "list", "--store", "postgresql://h:abc/x"], "store: this is not a store URL"),
    ("store-memory", ["store", "migrate", "--store", "sqlite:///:memory:"], "store: an SQLite store needs a path"),
    ("store-no-path", ["store", "migrate", "--store", "sqlite://"], "store: an SQLite store needs a path"),
    ("store-option", ["job", "list", "--store", "sqlite:///rota.db?mode=ro"], "store: an SQLite URL takes only"),
    ("config-no-file", ["config", "show", "--config", "none.toml"], "config: there is no file none.toml"),
    ("config-folder", ["config", "show", "--config", "."], "config: . cannot be read"),
]

FILES: list[tuple[str, str, str]] = [
    ("syntax", "[store", "config: rota.toml cannot be read"),
    ("unknown", "[store]\ncolour = 1\n", "store.colour: unknown setting"),
    ("unknown-section", "[nose]\nx = 1\n", "nose.x: unknown setting"),
    ("no-section", "url = 'x'\n", "url: must be a table"),
    ("number", "[scheduler]\nlook_s = 'soon'\n", "scheduler.look_s: must be a number"),
    ("range", "[scheduler]\nlook_s = 0\n", "scheduler.look_s: must be from 0.05 to 60"),
    ("whole", "[scheduler]\nbatch_max = 1.5\n", "scheduler.batch_max: must be a whole number"),
    ("truth", "[store]\nmay_forget = 'perhaps'\n", "store.may_forget: must be true or false"),
    ("text", "[store]\nurl = 5\n", "store.url: must be a text"),
    ("nan", "[definitions]\nwatch_s = nan\n", "definitions.watch_s: must be a finite number"),
]

VARIABLES: list[tuple[str, str, str]] = [
    ("ROTA_SCHEDULER_LOOK_S", "soon", "scheduler.look_s: must be a number, not 'soon' (from ROTA_SCHEDULER_LOOK_S)"),
    ("ROTA_SCHEDULER_LOOK_S", "inf", "scheduler.look_s: must be a finite number"),
    ("ROTA_SCHEDULER_BATCH_MAX", "0", "scheduler.batch_max: must be from 1 to 10000"),
    ("ROTA_SCHEDULER_BATCH_MAX", "1e3", "scheduler.batch_max: must be a whole number"),
    ("ROTA_STORE_MAY_FORGET", "1", "store.may_forget: must be true or false"),
    ("ROTA_STORE", "nonsense", "store: this is not a store URL"),
]


@pytest.fixture
def here(stored: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A folder with a store, in which this process is."""
    monkeypatch.chdir(stored.path)
    for name in [name for name in os.environ if name.startswith("ROTA_")]:
        monkeypatch.delenv(name)
    return stored


@pytest.mark.parametrize(("arguments", "said"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_the_error_names_the_option_and_the_reason(
    here: Home, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(arguments) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.startswith("error: ")
    assert "Traceback" not in told
    assert (here.count("rota_job"), here.count("rota_run")) == (3, 0)


@pytest.mark.parametrize(("content", "said"), [case[1:] for case in FILES], ids=[case[0] for case in FILES])
def test_a_wrong_configuration_file_is_refused(
    here: Home, capsys: pytest.CaptureFixture[str], content: str, said: str
) -> None:
    here.write("rota.toml", content)
    assert run(["job", "list"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("name", "value", "said"), VARIABLES)
def test_a_wrong_variable_is_refused(
    here: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, said: str
) -> None:
    monkeypatch.setenv(name, value)
    assert run(["job", "list"]) == 2
    assert said in capsys.readouterr().err


def test_all_problems_are_told_at_once_and_as_json(here: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["job", "pause", "!", "a b", "--json"]) == 2
    told = json.loads(capsys.readouterr().err)
    assert told["error"]["code"] == "invalid_input"
    assert [problem["field"] for problem in told["error"]["problems"]] == ["name", "name"]
    assert set(told["error"]["problems"][0]) == {"field", "reason", "file", "line"}


ENTRIES = [entry for entry in CORPUS if not entry.sdk_only and entry.id != "yaml-raw-surrogate"]
"""All but one that no file can hold."""


@pytest.fixture(scope="module")
def corpus_home(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("corpus"))
    shutil.copytree(template, home.path, dirs_exist_ok=True)
    return home


def put(home: Home, entry: Entry) -> str:
    text = as_yaml(entry)
    (home.path / "bad.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return "bad.yaml"


def problems_in(told: str) -> list[Problem]:
    found: list[dict[str, Any]] = json.loads(told)["error"]["problems"]
    return [Problem(**each) for each in found]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_apply_refuses_every_entry_of_the_corpus(
    corpus_home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], entry: Entry
) -> None:
    monkeypatch.chdir(corpus_home.path)
    assert run(["job", "apply", put(corpus_home, entry), "--yes", "--json"]) == 2
    problems = problems_in(capsys.readouterr().err)
    assert any(names(problem, entry) for problem in problems), f"{wanted(entry)!r} {entry.word!r} not in {problems}"
    assert all(problem.file == "bad.yaml" for problem in problems)
    assert corpus_home.count("rota_job") == 3


@pytest.mark.parametrize("entry", ENTRIES[:: len(ENTRIES) // 5], ids=lambda entry: entry.id)
def test_the_installed_command_refuses_a_sample_of_it(corpus_home: Home, entry: Entry) -> None:
    told = corpus_home.refused(2, "job", "apply", put(corpus_home, entry), "--json")
    assert any(names(problem, entry) for problem in problems_in(told))
    assert corpus_home.count("rota_job") == 3


def test_a_wrong_python_file_is_refused_with_its_line(stored: Home) -> None:
    stored.write("app.py", "import rota\napp = rota.App()\n\n@app.task(cron='61 * * * *')\ndef a(): ...\n")
    assert "app.py:4: a.cron: " in stored.refused(2, "job", "apply", "app.py")
    stored.write("app.py", "import rota\n\nthis is no python\n")
    assert "app.py:3: is not valid Python: invalid syntax" in stored.refused(2, "job", "apply", "app.py")
    stored.write("app.py", "raise RuntimeError('no')")
    assert "app.py:1: raises RuntimeError at import: no" in stored.refused(2, "job", "apply", "app.py")
    assert stored.count("rota_job") == 3
