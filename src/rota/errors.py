"""Every error that rota raises on purpose.

    RotaError
    ├── InvalidInput        what was given is wrong: each problem names its field and the reason
    ├── NotFound            there is no such job, run or file
    ├── Refused             the request is understood, but the present state forbids it
    │   ├── LogUnreadable   the output of an attempt is there, but cannot be read
    │   ├── CannotStart     a process tree was ordered wrongly: no such program, directory or user; nothing of it ran
    │   ├── DeadlinePassed  the lease of this node is over: no process tree may start until it is renewed
    │   └── BoundaryFailed  no process could be made, or no boundary of that kind is to be had; nothing of it ran
    │       └── ZygoteGone  the process that makes them died meanwhile
    ├── TaskFailed          a task that somebody waits for did not succeed
    ├── LogGap              output that was written before is gone from the log store
    ├── Undelivered         a message about an alarm did not arrive, as far as is known
    ├── StoreError
    │   ├── StoreRefused    this store must not be used: not durable, wrong file system, schema of another release
    │   ├── Unreadable      one record is not to be understood by this release; the others are not concerned
    │   ├── StoreFault      the store refused what was asked: a bug in rota, or a damaged store; nothing was changed
    │   └── StoreUnavailable    the store did not answer; nothing was changed
    │       ├── StoreDenied     the server lets nobody in with this URL: password, database name, TLS
    │       └── CommitUnknown   the store did not answer the commit: the change is there whole, or not at all
    └── CoordinatorError
        ├── CoordinatorRefused      this coordinator cannot be used: no driver, no right, or it lacks what is needed
        ├── CoordinatorLost         it did not answer for longer than a session, and a node shall then end
        ├── CoordinatorUnavailable  the coordinator did not answer; what was asked may have been done
        └── SessionLost             the session is over, and its claims with it

A caller that gets `CommitUnknown` asks again: every verb of the store may be repeated. Adapters turn the errors of
their drivers into these at the edge; no other module sees a driver's error.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


class RotaError(Exception):
    """The base of every error that rota raises on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        """Errors of a pool of processes come home whole, whatever they are made from."""
        return _remade, (type(self), self.args), self.__dict__


def _remade(kind: type[RotaError], args: tuple[object, ...]) -> RotaError:
    error = kind.__new__(kind)
    error.args = args
    return error


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
        """All that is wrong, each with `field`, `reason`, and `file` and `line` if it came from a file."""
        super().__init__("\n".join(str(problem) for problem in self.problems))

    @classmethod
    def of(cls, field: str, reason: str) -> InvalidInput:
        return cls([Problem(field, reason)])


class NotFound(RotaError):
    """There is nothing of that name."""


class Refused(RotaError):
    """The request is understood, but the present state forbids it; nothing was changed."""


class TaskFailed(RotaError):
    """A task that was waited for did not succeed: it failed, or it was cancelled."""

    def __init__(self, what: str, *, run_id: int, state: str, message: str = "", traceback: str = "") -> None:
        self.run_id = run_id
        """The run."""
        self.state = state
        """How the item ended: `failed` or `cancelled`."""
        self.message = message
        """Why."""
        self.traceback = traceback
        """The traceback on the node, as a text, if there is one."""
        reason = f"{what} {state} (run {run_id})" + (f": {message}" if message else "")
        super().__init__(f"{reason}\n\n{traceback}".rstrip() if traceback else reason)


class LogUnreadable(Refused):
    """The output of an attempt is there, but cannot be read."""


class CannotStart(Refused):
    """The program cannot be started as ordered; the message says which step failed and why."""


class DeadlinePassed(Refused):
    """The deadline of the switch has passed, so nothing may start."""


class BoundaryFailed(Refused):
    """This node could not make the boundary; another might."""


class ZygoteGone(BoundaryFailed):
    """The process that makes supervisors died; a new one may do it."""


class LogGap(RotaError):
    """Output that was written before is gone from the log store: only the first `have` bytes are left."""

    def __init__(self, have: int) -> None:
        self.have = have
        super().__init__(f"only the first {have} bytes are left")


class Undelivered(RotaError):
    """A message about an alarm did not arrive, as far as is known; it may be sent again."""


class StoreError(RotaError):
    """Something about the store."""


class StoreRefused(StoreError):
    """This store must not be used as it is; the message says why and what to do."""


class StoreFault(StoreError):
    """The store refused what was asked, and would again: a bug in rota, or a damaged store. Nothing was changed."""


class Unreadable(StoreError):
    """One record is not to be understood by this release: a newer one wrote it, or it is damaged."""

    def __init__(self, record: str, reason: str) -> None:
        self.record = record
        self.reason = reason
        super().__init__(
            f"{record} cannot be read by this release: {reason}. Use the newer release that wrote it, on this node too"
        )


class StoreUnavailable(StoreError):
    """The store did not answer; nothing was changed."""


class StoreDenied(StoreUnavailable):
    """The server is there and lets nobody in with this URL: a wrong password, an unknown database, TLS that it refuses.
    To wait for it is of no use before it was ever reached."""


class CommitUnknown(StoreUnavailable):
    """The store did not answer the commit: the change is there whole, or not at all. Ask again."""


class CoordinatorError(RotaError):
    """Something about the coordinator."""


class CoordinatorRefused(CoordinatorError):
    """This coordinator cannot be used as it is; the message says why and what to do."""


class CoordinatorLost(CoordinatorError):
    """The coordinator did not answer for longer than a session, and `coordinator.on_lost` says that the node ends."""


class CoordinatorUnavailable(CoordinatorError):
    """The coordinator did not answer; what was asked may have been done. Ask again, or read."""


class SessionLost(CoordinatorError):
    """The session is over, and its claims with it. Join anew."""


def old_name(old: str, new: str, value: T) -> T:
    """Answer under a name that goes with the next release, with a warning."""
    warnings.warn(f"{old} is now called {new}; the old name goes with the next release", DeprecationWarning, 3)
    return value
