"""Read records one by one: one that this release cannot read is left out and told once; the others go on.

A mixed cluster of two releases shares one store. A newer one may write words that an older one does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from rota.errors import Unreadable
from rota.logger import log

TOLD_MAX = 10_000

R = TypeVar("R", bound=Any)
T = TypeVar("T")


def reads(
    kind: str, name: Callable[[Any], object] = lambda row: row[0]
) -> Callable[[Callable[[R], T]], Callable[[R], T]]:
    """Make a function that turns a row into a value raise `Unreadable`, which names the record."""

    def wrap(make: Callable[[R], T]) -> Callable[[R], T]:
        def made(row: R) -> T:
            try:
                return make(row)
            except (msgspec.MsgspecError, ValueError, KeyError) as fault:  # of an encoded column; of a column of words
                reason = f"unknown word {fault}" if isinstance(fault, KeyError) else str(fault)
                raise Unreadable(f"{kind} {name(row)}", reason) from None

        return made

    return wrap


class Readings:
    """What was read of a store, and which records could not be."""

    def __init__(self) -> None:
        self.unread: dict[str, str] = {}
        """Records that this release cannot read, and why."""

    def all(self, rows: Iterable[R], make: Callable[[R], T]) -> list[T]:
        """The values of those rows that can be read."""
        return [value for _, value in self.pairs(rows, make)]

    def pairs(self, rows: Iterable[R], make: Callable[[R], T]) -> list[tuple[R, T]]:
        """The same, each with its row."""
        found: list[tuple[R, T]] = []
        for row in rows:
            try:
                found.append((row, make(row)))
            except Unreadable as fault:
                self.note(fault)
        return found

    def note(self, fault: Unreadable) -> None:
        """Tell of a record, once."""
        if fault.record not in self.unread and len(self.unread) < TOLD_MAX:
            self.unread[fault.record] = fault.reason
            log.error("store.unreadable", record=fault.record, reason=fault.reason)
