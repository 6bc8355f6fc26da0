"""Give equal values equal digests.

msgspec leaves a field out of the encoding when it holds the very object that is its default. A value that equals the
default but came from a file is another object, so it would be written, and the digest would differ.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct

V = TypeVar("V", bound=Struct)


def canonical(value: V) -> V:
    """The same value, with the default objects themselves wherever it equals them."""
    kept = {}
    for field in msgspec.structs.fields(value):
        part = _canonical_part(getattr(value, field.name))
        if part != _default(field):
            kept[field.name] = part
    return type(value)(**kept)


def _canonical_part(part: Any) -> Any:
    if isinstance(part, Struct):
        return canonical(part)
    if isinstance(part, tuple):
        return tuple(_canonical_part(inner) for inner in part)
    return part


def _default(field: msgspec.structs.FieldInfo) -> object:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
