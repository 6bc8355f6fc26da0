"""The map of the house is whole: no package, loop or transaction is missing in docs/building/architecture.md, and it
names no file that is not there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "rota"
PAGE = (ROOT / "docs" / "building" / "architecture.md").read_text()
HIDDEN = {"client/spawned", "storage/sql/migrations/versions"}
"""Folders that hold no part of their own."""


def test_every_package_has_a_row() -> None:
    folders = {path.parent.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py")} - {".", *HIDDEN}
    assert [it for it in sorted(folders) if f"`{it}/`" not in PAGE] == []


def test_every_loop_has_a_row() -> None:
    files = [path for folder in ("loops", "alarms") for path in sorted((SOURCE / folder).rglob("*.py"))]
    loops = [path.relative_to(SOURCE).as_posix() for path in files if has_loop(path)]
    assert len(loops) > 10
    assert [it for it in loops if f"`{it}`" not in PAGE] == []


def has_loop(path: Path) -> bool:
    """True if a file defines a loop; `loop.py` defines what a loop is."""
    classes = [it for it in ast.walk(ast.parse(path.read_text())) if isinstance(it, ast.ClassDef)]
    bases = {ast.unparse(base) for it in classes for base in it.bases}
    return any(base == "Loop" or base.endswith("Placer") for base in bases) and path.name != "loop.py"


def test_every_file_of_transactions_has_a_place() -> None:
    files = [path.relative_to(SOURCE).as_posix() for path in sorted((SOURCE / "transactions").glob("[a-z]*.py"))]
    assert [it for it in files if f"`{it}`" not in PAGE] == []


def test_every_file_that_is_named_is_there() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", PAGE)
    assert len(named) > 50
    assert [it for it in named if not ((SOURCE / it).exists() or (ROOT / it).exists())] == []
