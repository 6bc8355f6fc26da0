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
from rota.definitions.report import listed, shown, suggestion
from rota.errors import InvalidInput, Problem
from rota.execution.kinds.kind import EMPTY

NAME_MAX = 100
WHOLE_MAX = 2**63 - 1
PAUSES_MAX = 100
CAUSES_MAX = 100
CODE_MAX = 999
"""Exit codes go up to 255, statuses of HTTP up to 599."""
PATH_BYTES_MAX = 4095
VARIABLES_MAX = 100
VARIABLE_BYTES_MAX = 32 * 1024
ENVIRONMENT_BYTES_MAX = 128 * 1024

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

_name = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_user = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
_identifier = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_RESERVED = frozenset({"PATH", "PYTHONPATH", "PYTHONHOME"})
_RESERVED_BEGINNINGS = ("ROTA_", "LD_")
"""Those of rota itself, and those that would change which code the processes around the task load."""


def validator(read: Callable[[object], T]) -> PlainValidator:
    """Let pydantic use a function that raises ValueError with a text for people."""

    def validate(value: object) -> T:
        if value is None:
            raise wrong(EMPTY)
        try:
            return read(value)
        except ValueError as error:
            raise wrong(str(error)) from None

    return PlainValidator(validate)


def wrong(reason: str) -> PydanticCustomError:
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
    for number, word in enumerate(words):
        if word in words[:number]:
            raise ValueError(f"names {word} twice")
    return tuple(words)


def name_refusal(word: object, others: Iterable[str]) -> str | None:
    """Why a thing beside those of the other names cannot have this name; None if it can."""
    try:
        small = name(word).lower()
    except ValueError as error:
        return str(error)
    other = next((it for it in others if it != word and it.lower() == small), None)
    return other and f"the name differs from {other} only in capital and small letters"


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


def one(field: str, read: Callable[[Any], T], value: object) -> T:
    """Read one value. Raises InvalidInput."""
    try:
        return read(value)
    except ValueError as error:
        raise InvalidInput.of(field, str(error)) from None


def pauses(high: float) -> Callable[[object], float | tuple[float, ...]]:
    """One pause, or a list of them."""
    pause = number(0, high, "number of seconds")

    def read(value: object) -> float | tuple[float, ...]:
        if not isinstance(value, list | tuple):
            return pause(value)
        if not 1 <= len(value) <= PAUSES_MAX:
            raise ValueError(f"must be a list of 1 to {PAUSES_MAX} numbers of seconds, not {len(value)}")
        return tuple(pause(each) for each in value)

    return read


def causes(value: object) -> tuple[str, ...]:
    """Names of failures: exit codes, statuses, exceptions, `timeout`, `memory`."""
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= CAUSES_MAX:
        got = len(value) if isinstance(value, list | tuple) else shown(value)
        raise ValueError(f"must be a list of 1 to {CAUSES_MAX} failures like [75, ValueError, timeout], not {got}")
    return once([_cause(each) for each in value])


def _cause(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= CODE_MAX:
        return str(int(value))
    if isinstance(value, str) and _identifier.fullmatch(value):
        return str(value)
    raise ValueError(
        f"a failure must be an exit code or HTTP status (a number from 1 to {CODE_MAX}), an exception without its "
        f"module (ValueError), timeout or memory, not {shown(value)}"
    )


def directory(value: object) -> str:
    """Read the working directory. Only the node that runs the task can see whether it exists."""
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"must be a full path like /srv/reports, not {shown(value)}")
    if not is_plain(value):
        raise ValueError(f"must be one line of printable text, not {shown(value)}")
    if len(value.encode()) > PATH_BYTES_MAX:
        raise ValueError(f"must have at most {PATH_BYTES_MAX} bytes")
    return str(value)


def user(value: object) -> str:
    """Read the user that the processes run as. Only the node that runs the task can see whether it exists."""
    if not isinstance(value, str) or not _user.fullmatch(value):
        raise ValueError(
            "must be the name of a user: 1 to 32 of the characters A-Z a-z 0-9 . _ - that begin with a letter or _, "
            f"not {shown(value)}"
        )
    return str(value)


def environment(value: object) -> dict[str, str]:
    """Read the environment variables that the processes get besides those of rota."""
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping of names to texts, not {shown(value)}")
    if len(value) > VARIABLES_MAX:
        raise ValueError(f"must have at most {VARIABLES_MAX} variables, not {len(value)}")
    for name, content in value.items():
        _check_variable(name, content)
    size = sum(len(name) + len(content.encode()) + 2 for name, content in value.items())
    if size > ENVIRONMENT_BYTES_MAX:
        raise ValueError(f"takes {size} bytes; at most {ENVIRONMENT_BYTES_MAX} are allowed")
    return {str(name): str(content) for name, content in value.items()}


def _check_variable(name: object, content: object) -> None:
    if not isinstance(name, str) or not _identifier.fullmatch(name):
        raise ValueError(
            "a variable's name must be letters, digits and _, not begin with a digit and have at most 100 characters, "
            f"not {shown(name)}"
        )
    if name in _RESERVED or name.startswith(_RESERVED_BEGINNINGS):
        raise ValueError(f"the variable {name} is reserved; it is set by the node")
    if not isinstance(content, str):
        raise ValueError(f"the variable {name} must be text, not {shown(content)}; put it in quotes")
    if not is_whole(content):
        raise ValueError(f"the variable {name} must not hold NUL or half characters: {shown(content)}")
    if len(content.encode()) > VARIABLE_BYTES_MAX:
        raise ValueError(
            f"the variable {name} has more than {VARIABLE_BYTES_MAX} bytes; hand large values over in a file"
        )
