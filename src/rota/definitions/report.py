"""Collect all problems of one source, so that a person can repair them together; and show values from outside in
messages: on one line, short, with nothing unprintable in them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from rota.errors import InvalidInput, Problem

PROBLEMS_MAX = 1000
SHOWN_MAX = 60

T = TypeVar("T")
Path = tuple[str | int, ...]
"""Where a value stands in what a person wrote: keys, and indexes of lists."""

_plain = re.compile(r"[A-Za-z0-9_.-]{1,100}")


class Report:
    """The problems found so far. `within` gives a view of the same report for one part of the source."""

    def __init__(self, *, file: str | None = None, lines: Mapping[Path, int] | None = None) -> None:
        self._file = file
        self._lines = {} if lines is None else lines
        self._root: Path = ()
        self._found: list[Problem] = []

    def within(self, *path: str | int) -> Report:
        part = Report(file=self._file, lines=self._lines)
        part._root = self._root + path
        part._found = self._found
        return part

    def add(self, path: Path, reason: str) -> None:
        whole = self._root + path
        self.add_at(self._line(whole), field_text(whole), reason)

    def read(self, path: Path, reader: Callable[[object], T], value: object) -> T | None:
        """Read a value; if it is wrong, add why and return None."""
        try:
            return reader(value)
        except ValueError as error:
            self.add(path, str(error))
            return None

    def add_at(self, line: int | None, field: str, reason: str) -> None:
        if len(self._found) < PROBLEMS_MAX:
            self._found.append(Problem(field, reason, self._file, line))

    def adopt(self, error: InvalidInput) -> None:
        """Add the problems that the core found; their fields are relative to this view."""
        for problem in error.problems:
            self.add(tuple(problem.field.split(".")) if problem.field else (), problem.reason)

    @property
    def count(self) -> int:
        return len(self._found)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What was found, in the order of the lines; where there are none, in the order in which it was found."""
        return tuple(sorted(dict.fromkeys(self._found), key=lambda problem: problem.line or 0))

    def raise_if_any(self) -> None:
        if self._found:
            raise InvalidInput(self.problems)

    def _line(self, path: Path) -> int | None:
        """The line of the value, or of the nearest thing around it."""
        for end in range(len(path), -1, -1):
            if path[:end] in self._lines:
                return self._lines[path[:end]]
        return None


def shown(value: object) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case str():
            return _cut(repr(str(value)))
        case int() if value.bit_length() > 128:
            return "a huge number"
        case int() | float():
            return repr(value)
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a value of type {type(value).__name__}"


def field_text(path: Path) -> str:
    """Write a path like `jobs.nightly-report.shell[2]`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{_step(step)}" for step in path]
    return "".join(parts).removeprefix(".")


def one_line(text: str, *, length: int = 300) -> str:
    """Make a text of unknown origin fit to be shown: one line, printable."""
    flat = " ".join(text.split())
    clean = "".join(char if char.isprintable() else repr(char)[1:-1] for char in flat[: length + 1])
    return clean if len(clean) <= length else clean[:length] + "…"


def suggestion(word: object, known: Iterable[str]) -> str:
    """Offer the known word that is most like this one, if there is one; best one with the same first letter."""
    if not isinstance(word, str) or len(word) > 100:
        return ""
    found = difflib.get_close_matches(word, list(known), n=3, cutoff=0.6)
    found.sort(key=lambda each: each[:1] != word[:1])
    return f"; did you mean {found[0]}?" if found else ""


def listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _step(step: str) -> str:
    return step if _plain.fullmatch(step) else _cut(repr(str(step)))


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_MAX else text[:SHOWN_MAX] + "…"
