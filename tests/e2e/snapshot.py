"""Texts that were looked at once and are kept: what commands print, without what differs from run to run.

`pytest --rewrite-snapshots` writes them anew; look at the difference before you commit it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import unified_diff
from pathlib import Path

import pytest

REWRITE = "--rewrite-snapshots"

_LENGTH = r"\d+(?:\.\d+)? ?(?:ms|s|min|h|d)\b(?: \d+ (?:s|min|h)\b)?"
_VARYING = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ": "2026-01-01 12:00:00Z",
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+(?:Z|\+00:00)": "2026-01-01T12:00:00Z",
    r"[A-Z][a-z][a-z] \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC": "Thu 2026-01-01 12:00:00 UTC",
    rf"\({_LENGTH} late\)": "(5 ms late)",
    rf"(?<=left ){_LENGTH} ago": "5 s ago",
    rf"\((?:now|in {_LENGTH})\)": "(in 1 h)",
    r"(?<=127\.0\.0\.1:)\d+": "7700",
    r"(?<=digest )[0-9a-f]{12}": "0123456789ab",
    r"(?<=defined-command-)[0-9a-f]{12}": "0123456789ab",
    r"\b[0-9a-f]{32}\b": "0123456789abcdef0123456789abcdef",
    r"(?<=fired=)\d+": "3",
    r"(?<=skipped=)\d+": "0",
    r"(?<=pid )\d+": "1234",
    r"(?<= is )(?:running|waiting)$": "waiting",
    r"\d+ notes?$": "2 notes",
    r"(?<=job_failing:1#)\d+": "4",
    r'(?<="lasted_s": )[\d.]+': "5.0",
}
"""What differs from run to run, and what is kept instead. Whether a run that was just made has begun is chance, too."""

_COLUMNS = {
    "AT": "2026-01-01 12:00:00Z",
    "BOUNDARY": "namespace",
    "BUSY": "12.5 %",
    "LATE": "5 ms",
    "LEASE": "9 s",
    "LOG": "25 B",
    "NEXT": "in 1 h",
    "TOOK": "5 ms",
}
"""What is kept of columns that measure something."""
_MEASURED = re.compile(r"\d|in |now$|[a-z]+$")

_WORD = r"[A-Z]+(?: [A-Z]+)*(?: \([A-Za-z]\))?"
_HEAD = re.compile(rf"{_WORD}(?: {{2,}}{_WORD})+$")
_MARKS = re.compile(r" *[~^]+ *")
"""Where in a line something was raised: releases of Python differ in that."""
_CELL = re.compile(r"(?:^|(?<=  ))\S")


class Steady:
    """Makes texts steady. `names` are patterns of what this machine calls things, and what to call them."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._patterns = {**names, **_VARYING}
        self._items: dict[str, str] = {}

    def text(self, text: str) -> str:
        lines: list[str] = []
        for block in _blocks([line for line in text.splitlines() if not _MARKS.fullmatch(line)]):
            lines += self._table(block) if _HEAD.match(block[0]) else map(self._line, block)
        return "".join(f"{line}\n" for line in lines)

    def _line(self, line: str) -> str:
        for pattern, instead in self._patterns.items():
            line = re.sub(pattern, instead, line)
        return re.sub(r"(?<=\bitem )\d+", lambda found: self._item(found[0]), line)

    def _item(self, number: str) -> str:
        """Items in the order in which they are seen: their ids come from blocks, and rise in leaps."""
        return self._items.setdefault(number, str(len(self._items) + 1))

    def _cell(self, head: str, cell: str) -> str:
        if head == "ITEM" and cell:
            return self._item(cell)
        return _COLUMNS[head] if head in _COLUMNS and _MEASURED.match(cell) else self._line(cell)

    def _table(self, lines: list[str]) -> list[str]:
        """A table whose columns are as wide as what is kept."""
        starts = [it.start() for it in _CELL.finditer(lines[0])]
        cuts = list(zip(starts, [*starts[1:], None], strict=True))
        heads, *rows = ([line[begin:end].rstrip() for begin, end in cuts] for line in lines)
        kept = [heads, *([self._cell(head, cell) for head, cell in zip(heads, row, strict=True)] for row in rows)]
        widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
        return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in kept]


def _blocks(lines: list[str]) -> list[list[str]]:
    """Tables, each with its rows, and what is between them, line by line."""
    found: list[list[str]] = []
    starts: list[int] = []
    for line in lines:
        if _HEAD.match(line):
            starts = [it.start() for it in _CELL.finditer(line)]
            found.append([line])
        elif starts and line and all(line[at - 2 : at].isspace() or len(line) < at for at in starts[1:]):
            found[-1].append(line)
        else:
            starts = []
            found.append([line])
    return found


def compare(file: Path, text: str, config: pytest.Config) -> None:
    """Fail with the difference if the text is not what is kept in the file; with the option, keep it."""
    if config.getoption(REWRITE):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        return
    kept = file.read_text() if file.exists() else ""
    diff = "".join(unified_diff(kept.splitlines(True), text.splitlines(True), "kept", "now"))
    assert not diff, f"{file.name} differs; if that is right: pytest {REWRITE}\n{diff}"
