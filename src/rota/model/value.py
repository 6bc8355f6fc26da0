"""The base of all values, and their one canonical encoding.

Values that leave the process are encoded as JSON with sorted keys and without the fields that have their default. So
a field that a later release adds does not change the digest of what was stored before.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

if TYPE_CHECKING:
    Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
else:
    Json = Any  # msgspec knows no recursive unions; what is stored was checked when it came in


class Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """An immutable fact."""


V = TypeVar("V")

_encoder = msgspec.json.Encoder(order="sorted")


_decoder: Any = cache(msgspec.json.Decoder)


def encode(value: object) -> str:
    """Write a value as canonical JSON."""
    return _encoder.encode(value).decode()


def decode(text: str, kind: type[V]) -> V:
    """Read back what `encode` wrote."""
    value: V = _decoder(kind).decode(text)
    return value


def digest(value: Value) -> str:
    """Name a value by its content."""
    return hashlib.sha256(_encoder.encode(value)).hexdigest()
