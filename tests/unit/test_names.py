"""A class name means one thing in the whole product: nobody has to look at an import to know which `Place` it is."""

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src" / "rota"


def test_no_class_name_is_defined_twice() -> None:
    twins = {name: where for name, where in defined().items() if len(where) > 1}
    assert twins == {}, "\n".join(f"{name}: {', '.join(where)}" for name, where in twins.items())


def defined() -> Mapping[str, list[str]]:
    """The files that define a class of each name."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(SOURCE)))
    return found
