"""Collect all problems of one source, so that a person can repair them together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from rota.definitions.display import Path, field_text
from rota.errors import InvalidInput, Problem

PROBLEMS_MAX = 1000

T = TypeVar("T")


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
