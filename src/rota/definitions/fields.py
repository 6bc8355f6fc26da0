"""Readers of single values. Each raises ValueError with one sentence: what it takes, and what it got instead."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeGuard, TypeVar

from pydantic import PlainValidator
from pydantic_core import PydanticCustomError

from rota.definitions.characters import is_plain, is_whole
from rota.definitions.display import listed, shown, suggestion
from rota.errors import InvalidInput, Problem

NAME_MAX = 100
WHOLE_MAX = 2**63 - 1

_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)


def validator(read: Callable[[object], T]) -> PlainValidator:
    """Let pydantic use a function that raises ValueError with a text for people."""

    def validate(value: object) -> T:
        if value is None:
            raise _wrong("is empty; give it a value, or leave the key out")
        try:
            return read(value)
        except ValueError as error:
            raise _wrong(str(error)) from None

    return PlainValidator(validate)


def _wrong(reason: str) -> PydanticCustomError:
    return PydanticCustomError("rota", "{reason}", {"reason": reason})


def whole(low: int, high: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"must be a whole number from {low} to {high}, not {shown(value)}")
        return int(value)

    return read


def number(low: float, high: float, what: str = "number") -> Callable[[object], float]:
    def read(value: object) -> float:
        if not _is_number(value) or not low <= value <= high:
            raise ValueError(f"must be a {what} from {low:.10g} to {high:.10g}, not {shown(value)}")
        return float(value)

    return read


def seconds(value: object) -> float:
    """A number of seconds; the core says which ones make sense."""
    if not _is_number(value) or abs(value) > WHOLE_MAX:
        raise ValueError(f"must be a number of seconds, not {shown(value)}")
    return float(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def text(length: int) -> Callable[[object], str]:
    """A text that is not empty."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be text, not {shown(value)}{_quote_hint(value)}")
        if not value.strip():
            raise ValueError("must not be empty")
        return _bounded(value, length)

    return read


def title(length: int) -> Callable[[object], str]:
    """A text for people, on one line; it may be empty."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be text, not {shown(value)}{_quote_hint(value)}")
        if not is_plain(value):
            raise ValueError(f"must be one line of printable text, not {shown(value)}")
        return _bounded(value, length)

    return read


def _bounded(value: str, length: int) -> str:
    if len(value) > length:
        raise ValueError(f"must have at most {length} characters, not {len(value)}")
    if not is_whole(value):
        raise ValueError(f"must not hold NUL or half characters: {shown(value)}")
    return str(value)


def _quote_hint(value: object) -> str:
    return "; put it in quotes" if isinstance(value, int | float) else ""


def choice(kind: type[E]) -> Callable[[object], E]:
    words = [str(member) for member in kind]

    def read(value: object) -> E:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be one of {listed(words)}, not {shown(value)}{suggestion(value, words)}")
        return kind(value)

    return read


def name(value: object) -> str:
    """The name of a job, project, tenant, calendar, group, quota or resource."""
    if not isinstance(value, str) or not _name.fullmatch(value):
        raise ValueError(
            f"the name must be 1 to {NAME_MAX} of the characters A-Z a-z 0-9 . _ - and begin with a letter or digit, "
            f"not {shown(value)}"
        )
    return str(value)


def names(count: int) -> Callable[[object], tuple[str, ...]]:
    """A list of names, none of them twice."""

    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or len(value) > count:
            got = len(value) if isinstance(value, list | tuple) else shown(value)
            raise ValueError(f"must be a list of at most {count} names, not {got}")
        return once([name(each) for each in value])

    return read


def once(words: Sequence[str]) -> tuple[str, ...]:
    """Refuse words that are given twice."""
    for number, word in enumerate(words):
        if word in words[:number]:
            raise ValueError(f"names {word} twice")
    return tuple(words)


def twin(word: str, others: Iterable[str]) -> str | None:
    """Another name that differs from this one only in capital and small letters."""
    return next((other for other in others if other != word and other.lower() == word.lower()), None)


def checked(given: Mapping[str, Any], readers: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    """Read each field with its reader. Raises InvalidInput with every problem at once."""
    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for field, value in given.items():
        try:
            found[field] = readers[field](value)
        except ValueError as error:
            problems.append(Problem(field, str(error)))
    if problems:
        raise InvalidInput(problems)
    return found
