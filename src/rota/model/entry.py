"""Entries of a coordinator: small texts under keys.

A key is a path of words (`live/a`, `jobs/17`); its folder is all but the last word, and a folder may be a key itself.
A *claim* is an entry that lives no longer than the session that made it; all others last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from rota.errors import InvalidInput
from rota.model.value import Value

KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}(/[A-Za-z0-9][A-Za-z0-9._-]{0,99}){0,3}", re.ASCII)
V = TypeVar("V")
VALUE_MAX = 900_000
"""How many bytes a value may have: ZooKeeper and etcd take no more than about a million."""


class Entry(Value, frozen=True, kw_only=True):
    """What is kept under a key."""

    key: str
    value: str
    version: int
    """Rises with every write to this key, also when it was deleted in between."""
    session: str | None = None
    """Whose claim it is; none: it lasts."""
    fence: int = 0
    """The number of a claim: each later claim of the same key has a higher one."""

    @property
    def name(self) -> str:
        """The last word of the key."""
        return self.key.rpartition("/")[2]


def folder_of(key: str) -> str:
    """All but the last word of a key."""
    return key.rpartition("/")[0]


def check_keys(keys: Iterable[str]) -> None:
    """Raise InvalidInput for what is no key."""
    for key in keys:
        if not KEY.fullmatch(key):
            raise InvalidInput.of("key", f"{key!r} is not one to four words of A-Z a-z 0-9 . _ - with / between")


def check_entries(values: Mapping[str, str]) -> None:
    """The same, and for a value that is too long for a coordinator."""
    check_keys(values)
    for value in values.values():
        if len(value.encode()) > VALUE_MAX:
            raise InvalidInput.of("value", f"longer than {VALUE_MAX} bytes")


def batches(
    whole: Mapping[str, V], size_of: Callable[[V], int], *, keys_max: int, size_max: int
) -> Iterator[Mapping[str, V]]:
    """Cut values into what one transaction of a coordinator takes; one value that is too large for that has its own."""
    batch: dict[str, V] = {}
    size = 0
    for key, value in whole.items():
        if batch and (len(batch) == keys_max or size + size_of(value) > size_max):
            yield batch
            batch, size = {}, 0
        batch[key] = value
        size += size_of(value)
    if batch:
        yield batch
