"""Every event that the product logs stands in docs/log-events.md with its level, and nothing else does.

`execution` is left out: its events are not named `thing.happened` yet.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rota"
LEVELS = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "exception": "error",
    "critical": "critical",
}
LEFT_OUT = ("execution",)
NOT_DOTTED = ("coordinators",)
"""Whose events still are sentences."""
DOTTED = re.compile(r"[a-z]+(\.[a-z][a-z_]*)+")
ROW = re.compile(r"^\| `([^`]+)` \| (\w+) \| .{10,} \|$", re.MULTILINE)


def logged(path: Path) -> Iterator[tuple[str, str]]:
    """The events of one file, with their levels."""
    tree = ast.parse(path.read_text())
    constants = constants_of(tree)
    for it in tree.body:
        if isinstance(it, ast.ImportFrom) and any(alias.name.isupper() for alias in it.names):
            origin = SOURCE.parent / f"{(it.module or '').replace('.', '/')}.py"
            constants = {**(constants_of(ast.parse(origin.read_text())) if origin.is_file() else {}), **constants}
    if "logging.getLogger" in ast.unparse(constants.get("log", ast.Constant(""))):
        return  # the SDK speaks to programs of others, by the logging of Python
    for it in ast.walk(tree):
        if isinstance(it, ast.Call) and isinstance(it.func, ast.Attribute) and it.func.attr in LEVELS and is_log(it):
            events = list(strings(it.args[0], constants))
            assert events, f"{path}:{it.lineno}: which event is this?"
            for event in events:
                yield event, LEVELS[it.func.attr]


def constants_of(tree: ast.Module) -> dict[str, ast.expr]:
    assigned = (it for it in tree.body if isinstance(it, ast.Assign))
    return {name.id: it.value for it in assigned for name in it.targets if isinstance(name, ast.Name)}


def is_log(call: ast.Call) -> bool:
    assert isinstance(call.func, ast.Attribute)
    return ast.unparse(call.func.value).rpartition(".")[2] == "log"


def strings(node: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """The strings that an expression may be: itself, a constant of its module, or one of the values of such a table."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from strings(one, constants)
            yield from strings(other, constants)
        case ast.Name(id=name) if name in constants:
            yield from strings(constants[name], constants)
        case ast.Subscript(value=ast.Name(id=name)) if name in constants:
            table = constants[name]
            assert isinstance(table, ast.Dict)
            for value in table.values:
                yield from strings(value, constants)
        case ast.Attribute(attr=field):
            tables = (it for it in constants.values() if isinstance(it, ast.Dict))
            texts = (it.value for table in tables for it in ast.walk(table) if isinstance(it, ast.Constant))
            yield from (text for text in texts if isinstance(text, str) and text.endswith(f".{field}"))


def test_the_page_of_events_lists_what_is_logged_and_nothing_else() -> None:
    paths = [it for it in sorted(SOURCE.rglob("*.py")) if it.relative_to(SOURCE).parts[0] not in LEFT_OUT]
    found = {event for path in paths for event in logged(path)}
    told = set(ROW.findall((ROOT / "docs" / "log-events.md").read_text()))
    assert found - told == set(), "logged, but not in docs/log-events.md"
    assert told - found == set(), "in docs/log-events.md, but never logged"
    assert len(found) > 40


def test_events_are_named_for_a_thing_and_what_happened_to_it() -> None:
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] not in (*LEFT_OUT, *NOT_DOTTED):
            assert [event for event, _ in logged(path) if not DOTTED.fullmatch(event)] == [], path
