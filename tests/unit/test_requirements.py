"""Every requirement that the repository quotes is explained in docs/building/requirements.md, in words of our own."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "building" / "requirements.md"

ID = re.compile(r"\b(?:[SVA][0-4]\.\d+|P\.\d+|P\d{1,2})\b")
ROW = re.compile(rf"^\| ({ID.pattern}) \| \S", re.MULTILINE)
ELSEWHERE = re.compile(r"\b[Dd]ocuments? [0-4]\b|\bM\d\b|\b[Dd]esign section|\b(?:design|reliability)\.md\b")


def test_every_id_that_is_quoted_is_explained() -> None:
    known = set(ROW.findall(PAGE.read_text()))
    missing = [f"{path}: {name}" for path, text in sources() for name in ID.findall(text) if name not in known]
    assert missing == []


def test_no_id_is_explained_twice() -> None:
    rows = ROW.findall(PAGE.read_text())
    assert sorted(rows) == sorted(set(rows))


def test_nothing_points_to_a_paper_that_a_reader_does_not_have() -> None:
    found = [f"{path}: {match}" for path, text in sources() for match in ELSEWHERE.findall(text)]
    assert found == []


def sources() -> Iterator[tuple[str, str]]:
    """All that people read here: the code, the tests and the pages, with their paths."""
    for folder, pattern in (("src", "*.py"), ("tests", "*.py"), ("docs", "*.md")):
        for path in sorted((ROOT / folder).rglob(pattern)):
            if path not in (PAGE, Path(__file__)):
                yield str(path.relative_to(ROOT)), path.read_text()
