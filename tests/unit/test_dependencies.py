"""Every dependency has an upper bound, a row in docs/building/dependencies.md, and a pin without a host."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"^[A-Za-z0-9._-]+")


def test_every_dependency_has_an_upper_bound() -> None:
    assert [it for it in declared() if "<" not in it.partition(";")[0]] == []


def test_every_dependency_has_a_row_in_the_docs() -> None:
    page = (ROOT / "docs" / "building" / "dependencies.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| ([^| ]+) \|", page, re.MULTILINE)
    assert {name(it) for it in declared()} == set(rows) - {"library"}


def test_the_pins_name_no_host() -> None:
    pins = [path.read_text() for path in sorted((ROOT / "requirements").glob("*.txt"))]
    assert pins
    assert [it for text in pins for it in re.findall(r".*(?:://|@ |--index|--find-links).*", text)] == []


def declared() -> Iterator[str]:
    """What pyproject.toml asks for, as it stands there; `rota[...]` is ourselves."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = content["project"]
    groups = [
        project["dependencies"],
        *project["optional-dependencies"].values(),
        *content["dependency-groups"].values(),
        content["build-system"]["requires"],
    ]
    yield from (it for group in groups for it in group if name(it) != project["name"])


def name(requirement: str) -> str:
    found = NAME.match(requirement)
    assert found, requirement
    return found[0].lower()
