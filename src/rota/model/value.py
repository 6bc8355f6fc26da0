"""The base of all values, and their one canonical encoding.

Values that leave the process are encoded as JSON with sorted keys and without the fields that have their default. So
a field that a later release adds does not change the digest of what was stored before.
"""

from __future__ import annotations

import hashlib
import threading
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
S = TypeVar("S", bound=msgspec.Struct)

_encoder = msgspec.json.Encoder(order="sorted")


_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_making = threading.Lock()


def encode(value: object) -> str:
    """Write a value as canonical JSON."""
    return _encoder.encode(value).decode()


def decode(text: str | bytes, kind: type[V]) -> V:
    """Read back what `encode` wrote."""
    decoder = _decoders.get(kind)
    value: V = (decoder or _make_decoder(kind)).decode(text)
    return value


def _make_decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """One at a time: while msgspec learns the fields of a class, another thread that does the same meets a half of them
    and crashes the process."""
    with _making:
        return _decoders.setdefault(kind, msgspec.json.Decoder(kind))


def digest(value: Value) -> str:
    """Name a value by its content: equal values have equal digests."""
    return hashlib.sha256(_encoder.encode(canonical(value))).hexdigest()


def canonical(value: S) -> S:
    """The same value, with the default objects themselves wherever it equals them.

    msgspec leaves a field out when it holds the very object that is its default; an equal one that came from elsewhere
    would be written.
    """
    kept = {}
    for name, default in _defaults(type(value)):
        part = _canonical_part(getattr(value, name))
        if part != default:
            kept[name] = part
    return type(value)(**kept)


def _canonical_part(part: Any) -> Any:
    if isinstance(part, msgspec.Struct):
        return canonical(part)
    if isinstance(part, tuple):
        return tuple(_canonical_part(inner) for inner in part)
    return part


@cache
def _defaults(kind: type[msgspec.Struct]) -> tuple[tuple[str, object], ...]:
    """The fields of a value and their defaults."""
    return tuple(
        (field.name, field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory())
        for field in msgspec.structs.fields(kind)
    )
