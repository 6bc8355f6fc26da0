"""The examples are short and right."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rota.definitions.yaml import read_yaml
from rota.model.value import digest
from tests.factories import load

ROOT = Path(__file__).parents[3]
HELLO = ROOT / "examples" / "hello.py"


async def test_all_examples_load() -> None:
    loaded = await load(ROOT / "examples", today=date(2026, 11, 15))
    assert loaded.problems == ()
    assert {"hello", "nightly-report"} <= {definition.name for definition in loaded.definitions}


def test_hello_world_has_at_most_8_lines_all_told() -> None:
    assert len(HELLO.read_text().splitlines()) <= 8


async def test_hello_world_says_hello(capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {}
    exec(HELLO.read_text(), space)
    space["hello"]()
    assert capsys.readouterr().out == "hello\n"
    assert (await load(HELLO, today=date(2026, 11, 15))).handlers == ("default/default/hello",)


def test_the_two_examples_of_the_reference_are_the_same_job() -> None:
    text = (ROOT / "docs" / "definitions.md").read_text()
    blocks = dict(re.findall(r"```(yaml|python)\n(.*?)```", text, re.DOTALL))
    (written,) = read_yaml(blocks["yaml"], file=None, today=date(2026, 11, 15))
    space: dict[str, Any] = {}
    exec(blocks["python"], space)
    (defined,) = space["app"].definitions(date(2026, 11, 15))
    assert digest(msgspec.structs.replace(written, tasks=defined.tasks)) == digest(defined)
