"""What a kind of task says about itself. A plugin makes a subclass of `ProgramKind` or of `FunctionKind`.

    definition ── config(value) ──> Task.config, stored ──> attempt ─┬─ ProgramKind: a program of its own
                                                                     └─ WorkerKind: a function in a worker process

Nodes that have a plugin advertise `kind:NAME`, and items of that kind go only to them (`model.job.handler_of`); every
node has ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from rota.definitions.report import listed, shown, suggestion
from rota.model.value import Json

EMPTY = "is empty; give it a value, or leave the key out"


class Problems(Protocol):
    """Where a kind reports what is wrong, by the path of keys below its own."""

    @property
    def count(self) -> int: ...

    def add(self, path: tuple[str | int, ...], reason: str) -> None: ...


class TaskKind:
    """One kind of task. Its name is the key under which a job says what to run, and is stored as `Task.runner`."""

    name: str
    keys: tuple[str, ...] = ()
    """The keys of its mapping, if what a person writes is one: they make better hints."""
    no_process: str = ""
    """Why the bounds of processes (`memory_mb`, `user`, `env`, ...) mean nothing for it; empty if they do."""
    several_at_a_time: bool = False
    """Whether `concurrency` may be more than 1: several items in one worker process."""

    @property
    def timeout_s(self) -> float | None:
        """How long an attempt may take if its task does not say so; none: for ever."""
        return None

    def config(self, value: object, problems: Problems) -> dict[str, Json] | None:
        """Check what a person wrote under the key, and return what is stored of it; none if there are problems."""
        raise NotImplementedError


class ProgramKind(TaskKind):
    """Each attempt is a program, with a process tree of its own."""

    def argv(self, config: Mapping[str, Json]) -> Sequence[str]:
        """The argument list of the program; it is never given to a shell."""
        raise NotImplementedError


class WorkerFunction(NamedTuple):
    """What a worker process calls: `module:function` or the advertised name of a handler, and the app file it is in."""

    what: str
    app: str | None = None


class StoppableCall(Protocol):
    """A call that blocks, and that another thread can end."""

    def make(self) -> Any: ...

    def stop(self) -> None: ...


class WorkerKind(TaskKind):
    """Attempts run in warm worker processes, each of one tenant."""

    own_workers: bool = True
    """Whether its workers do nothing else; false: they are shared with user functions of the same app."""
    per_worker: int | None = None
    """How many attempts of a tenant one worker executes at a time; none: the `concurrency` of the task."""
    sends_config: bool = True
    """Whether each attempt takes its config along to the worker."""

    def function(self, config: Mapping[str, Json], apps: Mapping[str, str]) -> WorkerFunction:
        """What to call. Raises LookupError, with a message for people, if this node does not have it."""
        raise NotImplementedError

    def stoppable(self, item: Any, hosts: tuple[str, ...]) -> StoppableCall | None:
        """In the worker: the call for an item, if it is not a function. `hosts` may be called though not public."""
        return None


class FunctionKind(WorkerKind):
    """A worker process calls one function of the plugin for every attempt: `function(config, params)`."""

    calls: str
    """The function as `package.module:name`; plain or async. What it returns is the result of the task."""

    def function(self, config: Mapping[str, Json], apps: Mapping[str, str]) -> WorkerFunction:
        return WorkerFunction(self.calls)


Reader = Callable[[object], Any]


def read_value(key: str, read: Reader, value: object, problems: Problems) -> dict[str, Json] | None:
    """Read what is no mapping, and store it under a key; a reader raises ValueError with a text for people."""
    try:
        return {key: read(value)}
    except ValueError as error:
        problems.add((), str(error))
        return None


def count_of(value: object) -> str:
    """How many there are, or what is there instead of several, in words."""
    return str(len(value)) if isinstance(value, list | dict) else shown(value)


def read_mapping(
    value: object, readers: Mapping[str, Reader], problems: Problems, *, required: Sequence[str] = ()
) -> dict[str, Json] | None:
    """Read a mapping key by key; a reader raises ValueError with a text for people. None if anything is wrong."""
    if not isinstance(value, dict):
        problems.add((), f"must be a mapping, not {shown(value)}")
        return None
    before = problems.count
    found: dict[str, Json] = {}
    for key, read in readers.items():
        if key in value:
            try:
                found[key] = _read(read, value[key])
            except ValueError as error:
                problems.add((key,), str(error))
        elif key in required:
            problems.add((key,), "is missing")
    for key in value:
        if not isinstance(key, str):
            problems.add((shown(key),), "a key must be text")
        elif key not in readers:
            hint = suggestion(key, readers) or f"; known are {listed(readers)}"
            problems.add((key,), f"is not a known key{hint}")
    return found if problems.count == before else None


def _read(read: Reader, value: object) -> Any:
    if value is None:
        raise ValueError(EMPTY)
    return read(value)
