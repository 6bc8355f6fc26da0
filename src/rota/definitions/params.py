"""Check JSON values that people hand to their jobs: their size, their depth, and that JSON can express them."""

from __future__ import annotations

import math
import re
from typing import Any, cast

import msgspec

from rota.definitions.characters import is_whole
from rota.definitions.report import shown
from rota.model.value import Json

BYTES_MAX = 64 * 1024
DEPTH_MAX = 20
WHOLE_MAX = 2**63 - 1

_name = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def params(value: object) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping, not {shown(value)}")
    for name in value:
        if not isinstance(name, str) or not _name.fullmatch(name) or name == "__proto__":
            raise ValueError(
                "a parameter's name must be letters, digits and _, not begin with a digit and have at most 64 "
                f"characters, not {shown(name)}"
            )
    return cast("dict[str, Json]", json(value))


def json(value: object) -> Json:
    """Any JSON value, as a copy."""
    _check(value)
    encoded = msgspec.json.encode(value)
    if len(encoded) > BYTES_MAX:
        raise ValueError(f"takes {len(encoded)} bytes as JSON; at most {BYTES_MAX} are allowed")
    return cast("Json", msgspec.json.decode(encoded))


def _check(value: object) -> None:
    """Check every part. A value that contains itself, or one part many times, reaches a bound too."""
    waiting: list[tuple[object, int]] = [(value, 0)]
    seen = 0
    while waiting:
        part, depth = waiting.pop()
        seen += 1
        if depth > DEPTH_MAX:
            raise ValueError(f"is nested more than {DEPTH_MAX} levels deep")
        if seen > BYTES_MAX:
            raise ValueError(f"has too many parts; at most {BYTES_MAX} bytes of JSON are allowed")
        waiting.extend((inner, depth + 1) for inner in _parts(part))


def _parts(value: object) -> list[Any]:
    """What is inside a value, after a check of the value itself."""
    match value:
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise ValueError(f"a key must be text, not {shown(key)}")
                _check_leaf(key)
            return list(value.values())
        case list():
            return value
        case _:
            _check_leaf(value)
            return []


def _check_leaf(value: object) -> None:
    match value:
        case None | bool():
            return
        case str():
            if not is_whole(value):
                raise ValueError(f"must not hold NUL or half characters: {shown(value)}")
        case int():
            if abs(value) > WHOLE_MAX:
                raise ValueError(f"holds a whole number beyond 64 bits: {shown(value)}")
        case float():
            if not math.isfinite(value):
                raise ValueError(f"holds {value}, which is not a number")
        case _:
            raise ValueError(f"holds {shown(value)}, which JSON cannot say")
