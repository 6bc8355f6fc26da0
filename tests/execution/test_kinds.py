"""Kinds of task come from a registry: a package that is installed adds one, and nothing of ours is touched."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path

import pytest

from rota.definitions.report import Report
from rota.definitions.yaml import read_yaml
from rota.errors import InvalidInput
from rota.execution.kinds.registry import KINDS
from rota.model.job import Definition, handler_of
from rota.model.states import Outcome
from tests.execution.harness import rig

PLUGIN = """
from rota.execution.kinds.kind import FunctionKind, ProgramKind, read_mapping


def text(value):
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value


class GreetKind(FunctionKind):
    name = "greet"
    keys = ("whom",)
    calls = "greeting:greet"

    def config(self, value, problems):
        return read_mapping(value, {"whom": text}, problems, required=["whom"])


def greet(config, params):
    print("greeting", config["whom"])
    return {"greeted": config["whom"], **params}


class CountKind(ProgramKind):
    name = "count"

    def config(self, value, problems):
        if not isinstance(value, int):
            problems.add((), "must be a whole number")
            return None
        return {"to": value}

    def argv(self, config):
        return ["seq", str(config["to"])]
"""

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package into a folder of `sys.path`, as an installer does: a module, and what it declares."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "greeting.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(folder))

    def declare(package: str, entries: str) -> None:
        info = folder / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[rota.kinds]\n{entries}\n")
        KINDS.forget()

    yield declare
    KINDS.forget()


def defined(text: str) -> Definition:
    (definition,) = read_yaml(text, file="jobs.yaml", today=date(2026, 1, 1))
    return definition


async def test_a_plugin_adds_kinds_that_are_defined_in_yaml_and_executed(tmp_path: Path, install: Install) -> None:
    install("greeting", "greet = greeting:GreetKind\ncount = greeting:CountKind")
    greet = defined("jobs: {hello: {every_s: 60, greet: {whom: world}}}").tasks[0]
    count = defined("jobs: {numbers: {every_s: 60, count: 3}}").tasks[0]
    assert (greet.runner, greet.config, count.config) == ("greet", {"whom": "world"}, {"to": 3})
    async with rig(tmp_path, paths=(str(tmp_path / "site"),)) as runner:
        said = runner.attempt(runner=greet.runner, config=greet.config, params={"loud": True})
        end = await runner.do(said)
        counted = runner.attempt(runner=count.runner, config=count.config)
        printed = await runner.do(counted)
        logs = runner.log(said), runner.log(counted)
    assert (end.outcome, end.message) == (Outcome.SUCCEEDED, "")
    assert json.loads(end.result or "") == {"greeted": "world", "loud": True}
    assert printed.outcome is Outcome.SUCCEEDED
    assert logs == (b"greeting world\n", b"1\n2\n3\n")


def test_what_is_wrong_for_a_kind_of_a_plugin_names_field_and_reason(install: Install) -> None:
    install("greeting", "greet = greeting:GreetKind")
    with pytest.raises(InvalidInput) as caught:
        defined("jobs: {hello: {every_s: 60, greet: {who: world}}}")
    assert [(it.field, it.reason) for it in caught.value.problems] == [
        ("jobs.hello.greet.whom", "is missing"),
        ("jobs.hello.greet.who", "is not a known key; did you mean whom?"),
    ]


def test_only_nodes_with_the_plugin_get_its_items(install: Install) -> None:
    install("greeting", "greet = greeting:GreetKind")
    definition = defined("jobs: {hello: {every_s: 60, greet: {whom: world}}}")
    assert handler_of(definition, definition.tasks[0]) == "kind:greet"


@pytest.mark.parametrize("kind", ["shell: [ls]", "http: {url: 'https://example.com'}"])
def test_our_own_programs_and_requests_need_no_handler(kind: str) -> None:
    definition = defined(f"jobs: {{hello: {{every_s: 60, {kind}}}}}")
    assert handler_of(definition, definition.tasks[0]) == ""


def test_an_unknown_kind_is_refused_and_the_known_ones_are_listed(install: Install) -> None:
    install("greeting", "greet = greeting:GreetKind")
    with pytest.raises(InvalidInput, match="magic: is not a known kind of task; known are shell, python, http, greet"):
        KINDS.find("magic")
    with pytest.raises(InvalidInput) as caught:
        defined("jobs: {hello: {every_s: 60, magic: {}}}")
    unknown, nothing = (str(problem) for problem in caught.value.problems)
    assert "jobs.hello.magic: is not a known key; known are" in unknown
    assert unknown.endswith("shell, python, http, greet")
    assert nothing.endswith("says nothing to run; give it one of shell, python, http, greet")


@pytest.mark.parametrize("entries", ["shell = greeting:GreetKind", "greet = greeting:GreetKind"])
async def test_a_node_with_two_kinds_of_one_name_does_not_start(tmp_path: Path, install: Install, entries: str) -> None:
    install("greeting", entries)
    install("other", "greet = greeting:CountKind")
    with pytest.raises(InvalidInput, match=r"two packages add a kind of task of this name: .* uninstall one of them"):
        await _opened(tmp_path)


async def test_a_plugin_that_cannot_be_loaded_fails_its_own_tasks_only(tmp_path: Path, install: Install) -> None:
    install("greeting", "broken = greeting:NoSuchKind")
    async with rig(tmp_path) as runner:
        broken = await runner.do(runner.attempt(runner="broken"))
        fine = await runner.do(runner.shell("true"))
    assert "the plugin greeting:NoSuchKind (rota.kinds) cannot be loaded: AttributeError" in broken.message
    assert (broken.outcome, fine.outcome) == (Outcome.FAILED, Outcome.SUCCEEDED)


def test_a_broken_plugin_is_reported_by_the_jobs_that_name_it(install: Install) -> None:
    install("greeting", "broken = greeting:NoSuchKind")
    with pytest.raises(InvalidInput, match=r"jobs\.hello\.broken: the plugin greeting:NoSuchKind"):
        defined("jobs: {hello: {every_s: 60, broken: {}}}")


def test_help_loads_no_plugins() -> None:
    script = (
        "import sys; from rota.cli.main import main\n"
        "sys.argv = ['rota', '--help']\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert 'rota.plugins' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_examples_of_the_docs_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text()
    for block in re.findall(r'```python title="(\w+\.py)"\n(.*?)```', text, re.DOTALL):
        (tmp_path / block[0]).write_text(block[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    report = Report()
    kind = importlib.import_module("rota_greet").GreetKind()
    assert kind.config({"whom": "world"}, report) == {"whom": "world"}
    module, _, function = kind.calls.partition(":")
    assert getattr(importlib.import_module(module), function)({"whom": "world"}, {}) == {"greeted": "world"}
    assert importlib.import_module("rota_file").FileChannel().to("/var/log/alarms") == ("/var/log/alarms",)


async def _opened(folder: Path) -> None:
    async with rig(folder):
        pass
