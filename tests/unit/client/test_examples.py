"""The examples are short and right."""

import ast
from datetime import date
from pathlib import Path

from rota.definitions.folder import load

ROOT = Path(__file__).parents[3]
HELLO = ROOT / "examples" / "hello.py"


async def test_all_examples_load() -> None:
    loaded = await load(ROOT / "examples", today=date(2026, 11, 15))
    assert loaded.problems == ()
    assert {"hello", "hello_again", "nightly-report"} <= {definition.name for definition in loaded.definitions}


def test_hello_world_has_at_most_8_lines_of_code() -> None:
    tree = ast.parse(HELLO.read_text())
    docstring = tree.body[0].end_lineno or 0
    assert sum(bool(line.strip()) for line in HELLO.read_text().splitlines()[docstring:]) <= 8
