"""Every error that rota raises on purpose.

    RotaError
    ├── InvalidInput        what was given is wrong: each problem names its field and the reason
    ├── NotFound            there is no such job, run or file
    ├── Refused             the request is understood, but the present state forbids it
    ├── Undelivered         a message about an alarm did not arrive, as far as is known
    ├── StoreError
    │   ├── StoreRefused    this store must not be used: not durable, wrong file system, schema of another release
    │   ├── StoreFault      the store refused what was asked: a bug in rota, or a damaged store; nothing was changed
    │   └── StoreUnavailable    the store did not answer; nothing was changed
    │       └── CommitUnknown   the store did not answer the commit: the change is there whole, or not at all
    └── CoordinatorError
        ├── CoordinatorRefused      this coordinator cannot be used: no driver, no right, or it lacks what is needed
        ├── CoordinatorUnavailable  the coordinator did not answer; what was asked may have been done
        └── SessionLost             the session is over, and its claims with it

A caller that gets `CommitUnknown` asks again: every verb of the store may be repeated. Adapters turn the errors of
their drivers into these at the edge; no other module sees a driver's error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class RotaError(Exception):
    """The base of every error that rota raises on purpose."""


class Problem(NamedTuple):
    """One thing that is wrong with an input."""

    field: str
    reason: str
    file: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = "" if self.file is None else f"{self.file}:{self.line}: " if self.line else f"{self.file}: "
        return f"{place}{self.field}: {self.reason}" if self.field else f"{place}{self.reason}"


class InvalidInput(RotaError):
    """What was given is wrong; nothing was changed."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, field: str, reason: str) -> InvalidInput:
        return cls([Problem(field, reason)])


class NotFound(RotaError):
    """There is nothing of that name."""


class Refused(RotaError):
    """The request is understood, but the present state forbids it; nothing was changed."""


class Undelivered(RotaError):
    """A message about an alarm did not arrive, as far as is known; it may be sent again."""


class StoreError(RotaError):
    """Something about the store."""


class StoreRefused(StoreError):
    """This store must not be used as it is; the message says why and what to do."""


class StoreFault(StoreError):
    """The store refused what was asked, and would again: a bug in rota, or a damaged store. Nothing was changed."""


class StoreUnavailable(StoreError):
    """The store did not answer; nothing was changed."""


class CommitUnknown(StoreUnavailable):
    """The store did not answer the commit: the change is there whole, or not at all. Ask again."""


class CoordinatorError(RotaError):
    """Something about the coordinator."""


class CoordinatorRefused(CoordinatorError):
    """This coordinator cannot be used as it is; the message says why and what to do."""


class CoordinatorUnavailable(CoordinatorError):
    """The coordinator did not answer; what was asked may have been done. Ask again, or read."""


class SessionLost(CoordinatorError):
    """The session is over, and its claims with it. Join anew."""
